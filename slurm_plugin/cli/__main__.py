"""`python -m slurm_plugin.cli` is the `rightsizer` command, for interpreters whose scripts are not on PATH."""

from slurm_plugin.cli import main

if __name__ == "__main__":
    main()
