"""The site's one configuration: its schema, how it is read, and which parts of it the Lua hook receives."""
