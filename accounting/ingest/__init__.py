"""Writes what was read into the store: windows, files, spools, and what has to be tried again."""
