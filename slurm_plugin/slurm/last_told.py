"""What slurmdbd told last, for a plan that goes on while it is away."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from accounting.errors import SlurmError
from slurm_plugin.log_lines import SaidOnce

log = logging.getLogger(__name__)
Told = TypeVar("Told")


class LastTold(Generic[Told]):
    """One thing that is asked again and again; `what` says what it is."""

    def __init__(self, what: str, nothing: Told) -> None:
        """Nothing is told yet."""
        self._what, self._told = what, nothing
        self._failures = SaidOnce()

    def now(self, ask: Callable[[], Told]) -> Told:
        """Ask, and return what is told; where that fails, what was told last, which is said once."""
        try:
            self._told = ask()
            self._failures.over()
        except SlurmError as error:
            if self._failures.is_new(str(error)):
                log.warning("%s is not known anew: %s", self._what, error)
        return self._told
