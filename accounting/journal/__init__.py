"""The journals: linked lines, read from where the last read ended, checked, and removed when they are old."""
