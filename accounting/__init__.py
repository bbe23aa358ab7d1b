"""What happened: Slurm's vocabulary, and one package for each thing done with it (ARCHITECTURE.md, "Rooms")."""
