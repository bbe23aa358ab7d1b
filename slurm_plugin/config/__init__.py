"""The site's one configuration: what may stand in it, how it is read, and what the hook is told of it."""
