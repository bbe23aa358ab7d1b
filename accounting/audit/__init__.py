"""Whether journal, store, tokens and Slurm still tell the same."""
