"""Checks whether journal, store, tokens and Slurm still agree."""
