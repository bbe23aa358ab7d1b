"""What happened: Slurm's vocabulary, sacct, labels and the store."""
