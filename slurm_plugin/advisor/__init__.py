"""The backfill advisor: the pending queue in a better order, by SiteFactor alone."""
