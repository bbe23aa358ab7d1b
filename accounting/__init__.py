"""What happened: Slurm's vocabulary, and a room for each thing done with it (ARCHITECTURE.md, «Rooms»)."""
