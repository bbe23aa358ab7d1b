"""The one way from us to Slurm's commands about the cluster's state and limits."""
