"""The journals: lines that are linked, read on from where they were read to, checked, and gone when they are old."""
