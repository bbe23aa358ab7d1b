"""Keeps the last answer of slurmdbd, so that plans go on while it is away, and need not ask it every minute."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from accounting.errors import SlurmError
from slurm_plugin.log_lines import SaidOnce

log = logging.getLogger(__name__)
Told = TypeVar("Told")
# 6,000 associations take slurmdbd a second.
LASTS_S = 600.0


class LastTold(Generic[Told]):
    """One thing that is asked again and again; `what` says in words what it is."""

    def __init__(self, what: str, nothing: Told) -> None:
        """Nothing has been answered yet."""
        self._what, self._told = what, nothing
        self._asked_s = -math.inf
        self._failures = SaidOnce()

    def now(self, ask: Callable[[], Told]) -> Told:
        """Return an answer no older than LASTS_S; if asking fails, the last one, and log that once."""
        if time.monotonic() - self._asked_s < LASTS_S:
            return self._told
        try:
            self._told = ask()
            self._asked_s = time.monotonic()
            self._failures.over()
        except SlurmError as error:
            if self._failures.is_new(str(error)):
                log.warning("%s is not known anew: %s", self._what, error)
        return self._told
