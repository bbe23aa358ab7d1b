"""Reads what the collectors on the nodes wrote about GPUs, from where the last read ended."""
