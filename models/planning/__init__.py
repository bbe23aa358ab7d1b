"""The order in which waiting jobs had better start: orders are tried by simulation, within the site's bounds. Pure."""
