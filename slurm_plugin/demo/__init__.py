"""The demo: the whole story on a private Slurm, or from recorded accounting if Slurm cannot be installed."""
