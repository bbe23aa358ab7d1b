"""`rightsizer explain`: one job, queued or ended."""
