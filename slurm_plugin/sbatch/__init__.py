"""A submission as sbatch would read it: command line, environment and script. Pure."""
