"""What was decided of a submission, and what else tells the same: the token, the store, Slurm."""
