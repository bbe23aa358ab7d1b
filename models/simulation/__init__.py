"""A cluster in a loop: what a policy would have done with a load, event by event."""
