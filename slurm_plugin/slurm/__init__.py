"""The only way from this package to Slurm's commands about the cluster's state and limits."""
