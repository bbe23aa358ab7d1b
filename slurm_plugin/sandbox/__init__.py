"""A private Slurm in one folder: real munge, MariaDB, slurmdbd, slurmctld and several slurmd on this host.

It may touch nothing outside its folder except cgroups: those that its own slurmd make, and with cgroup v2 those that
scopes.py makes and undoes. It ends no process that it cannot prove to be its own.
"""
