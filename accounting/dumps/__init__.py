"""Tables of jobs that others made: files printed by sacct, or exported from slurmdbd's job table."""
