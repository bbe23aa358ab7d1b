"""What jobs like this one did before: families, their recent past, and what of it counts for a request."""
