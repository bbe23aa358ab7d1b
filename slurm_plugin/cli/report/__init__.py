"""`rightsizer report`."""
