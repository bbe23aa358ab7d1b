"""Which waiting job had better come first: orders tried by simulating them, within the site's bounds. Pure."""
