"""What Slurm tells of its past: how sacct is asked, window by window, and what its answers mean."""
