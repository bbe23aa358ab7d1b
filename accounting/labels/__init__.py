"""Labels computed from records: what was used, how far that can be trusted, and what it cost. Pure."""
