"""The service that answers the hook: one JSON line each way over a Unix socket, fast and without heavy imports."""
