"""The size of a submission's input: of the files that its script names, as far as its user may read them.

Nothing here may hold up an answer: files are looked at in a thread (aside.py). If that takes too long, or the size of
any file may not be told, the size of the input is not known. This is off if the site lists no roots.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Sequence

from slurm_plugin.config.settings import Config, Inputs
from slurm_plugin.policy.script_inputs import input_names
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.aside import Aside
from slurm_plugin.service.readable_files import Reader, file_bytes, is_below

# Share of the hook's deadline: the rest is for the answer itself and for its transfer.
MOST_OF_DEADLINE = 0.4
# How long a user's groups are remembered, and for how many users.
GROUPS_HOLD_S, MOST_READERS = 600.0, 4096
MIB = 2**20

FileBytes = Callable[[str, Sequence[str], Reader], int | None]


class InputSizes:
    """Finds the size of submissions' input, one submission after the other."""

    def __init__(self, config: Config, file_bytes: FileBytes = file_bytes) -> None:
        self._inputs = config.inputs
        self._file_bytes = file_bytes
        self._readers: dict[int, tuple[float, Reader]] = {}
        wait_s = min(config.inputs.deadline_ms, config.hook.deadline_ms * MOST_OF_DEADLINE) / 1000
        self._aside: Aside[Submission, float] = Aside(self.look, wait_s)

    def mib(self, submission: Submission) -> float | None:
        """Return the size of the input in MiB; None if it is not known, or not in time."""
        if not self._inputs.roots or not submission.script:
            return None
        return self._aside.ask(submission)

    def look(self, submission: Submission) -> float | None:
        """Return the size of the input in MiB, however long it takes; raises KeyError if the user is not known."""
        names = named_below(submission, self._inputs)
        if not names or len(names) > self._inputs.most_files:
            return None
        reader, total = self._reader(submission.uid), 0
        for name in names:
            size = self._file_bytes(name, self._inputs.roots, reader)
            if size is None:
                return None
            total += size
        return total / MIB if total else None

    def _reader(self, uid: int) -> Reader:
        asked_s, reader = self._readers.get(uid, (0.0, None))
        now_s = time.monotonic()
        if reader is None or now_s - asked_s > GROUPS_HOLD_S:
            if len(self._readers) >= MOST_READERS:
                self._readers.clear()
            reader = reader_of(uid)
            self._readers[uid] = now_s, reader
        return reader


def named_below(submission: Submission, inputs: Inputs) -> list[str]:
    """Return the files that a submission names below the site's roots."""
    names = input_names(submission.script, submission.work_dir)
    return [name for name in names if any(is_below(name, root) for root in inputs.roots)]


def reader_of(uid: int) -> Reader:
    """Return a user and that user's groups, as this machine knows them; raises KeyError for an unknown user."""
    entry = pwd.getpwuid(uid)
    return Reader(uid, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)))
