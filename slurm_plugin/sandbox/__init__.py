"""A private Slurm in one folder: real munge, MariaDB, slurmdbd, slurmctld and several slurmd on this host.

It may touch nothing outside its folder, except the cgroup directories that its own slurmd make, and it ends
no process that it cannot prove to be its own.
"""
