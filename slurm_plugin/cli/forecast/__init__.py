"""`rightsizer forecast`."""
