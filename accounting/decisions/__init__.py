"""What was decided about a submission, and where else it is recorded: the token, the store, Slurm."""
