"""What Slurm tells of its past: sacct, slurmdbd's database, and which windows to ask for."""
