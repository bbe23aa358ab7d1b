"""The single root of every error that this project raises on purpose.

    RightsizerError            one line: what is wrong and what to do next (exit code 1)
    ├── ConfigError            the configuration cannot be used (exit code 2)
    ├── DumpError              a file cannot be read as a table of Slurm's jobs
    ├── SeriesError            a series of demand cannot be read, or is too short to forecast
    ├── StoreError             the accounting store cannot be used
    ├── SlurmError             a Slurm command is missing, failed, or gave an unreadable answer
    ├── ModelError             no model, or a damaged one
    │   └── UnreadModelError   a model that could not be read now, which says nothing about the model
    ├── ScheduleError          no schedule can be made of what was given
    ├── ServiceError           the service cannot start
    └── SandboxError           the private cluster cannot be started or used

Expected outcomes (a job that is left alone, a row that is quarantined) are values with reasons, not errors.
"""

from __future__ import annotations

import sys


class RightsizerError(Exception):
    """One line: what is wrong and what to do next. The command line prints it and exits with `exit_code`."""

    exit_code = 1


class ConfigError(RightsizerError):
    """The configuration cannot be used."""

    exit_code = 2


class DumpError(RightsizerError):
    """A file cannot be read as a table of Slurm's jobs."""


class SeriesError(RightsizerError):
    """A series of demand cannot be read, or is too short to forecast."""


class StoreError(RightsizerError):
    """The accounting store cannot be used."""


class SlurmError(RightsizerError):
    """A Slurm command is missing, failed, or gave an answer that this program cannot read."""


class LateAnswerError(SlurmError):
    """A Slurm command, or slurmdbd's database, did not answer in time; the request may have been too large."""


class ModelError(RightsizerError):
    """There is no model, or the existing one cannot be trusted."""


class UnreadModelError(ModelError):
    """A model could not be read because of a fault of the machine, such as too many open files; a retry may work."""


class ScheduleError(RightsizerError):
    """No schedule can be made of what was given."""


class ServiceError(RightsizerError):
    """The service cannot start, or is not running."""


class SandboxError(RightsizerError):
    """The private cluster cannot be started or used."""


def install_with(extra: str) -> str:
    """Return the command that installs the packages of an extra.

    It installs from our source at our versions: on a package index, somebody else may own our name.
    """
    return (
        f"run `{sys.prefix}/bin/pip install -c constraints.txt '.[{extra}]'` in the folder of rightsizer's "
        "source"
    )
