"""`rightsizer train`, `evaluate`, `predict`, `models`, `promote` and `rollback`."""
