"""Reads Slurm's past: how sacct is asked, window by window, and what its answers mean."""
