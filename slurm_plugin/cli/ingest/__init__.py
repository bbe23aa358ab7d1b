"""`rightsizer ingest`."""
