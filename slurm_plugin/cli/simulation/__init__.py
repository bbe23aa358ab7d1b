"""`rightsizer simulate` and `rightsizer replay`."""
