"""The demo: the whole story on a private Slurm, or from recorded accounting where Slurm cannot be installed."""
