"""Reads what ended, and pulls brakes: in a thread of the service, at most a second after the feed.

    <brakes.directory>/evidence.json   what was counted, and how far the feed was read: replaced as a whole

It stops nothing but cutting, and no failure of its own may stop an answer: what cannot be read or written is logged
once, and again if the failure changes or comes back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from accounting.damage import UNREADABLE
from accounting.errors import RightsizerError, SlurmError
from accounting.owned_files import make_folder, replace_whole
from accounting.request import JobRequest
from models.past.beside import by_end
from models.past.recent import Finished
from models.versions.feed import FeedReader, read_parts
from slurm_plugin.brakes.evidence import Evidence, Ledger
from slurm_plugin.brakes.judging import is_enough, reason_of
from slurm_plugin.brakes.pulled import Pulled, pulled_file
from slurm_plugin.brakes.words import words_of
from slurm_plugin.config.settings import Config
from slurm_plugin.log_lines import SaidOnce
from slurm_plugin.policy.braked import ALL, Brake
from slurm_plugin.slurm.running import count_running
from slurm_plugin.switches import switches, throw

log = logging.getLogger(__name__)

EVIDENCE = "evidence.json"
LOOK_S = 1.0
# What was counted since the last save is still in the feed.
SAVE_S = 60.0
# The feed may report a run twice, if an ingest was interrupted: this many last ones are remembered.
REMEMBERED_RUNS = 4096

# As returned by `by_end`; two numbers in what earlier releases kept.
Run = tuple[int, ...]


class Kept(msgspec.Struct, frozen=True):
    """What survives a restart: the evidence, how far the feed was read, and the last runs."""

    evidence: Evidence = Evidence()
    offsets: dict[str, int] = {}
    runs: tuple[Run, ...] = ()


class Watch:
    """Looks again and again at what has ended since."""

    def __init__(
        self, config: Config, hold: Callable[[Brake], None], comes_with_cpus: Callable[[JobRequest], bool]
    ) -> None:
        """`hold` is called with each brake as it is pulled, and repeatedly as long as no disk takes it.

        `comes_with_cpus` says whether a job like this that asks for no memory gets a fixed amount for each CPU.
        """
        folder = Path(config.brakes.directory)
        self._config, self._hold, self._comes_with_cpus = config, hold, comes_with_cpus
        self._file = pulled_file(config.brakes)
        self._path = folder / EVIDENCE
        self._failures, self._failures_of_squeue = SaidOnce(), SaidOnce()
        kept = self._kept()
        self._ledger = Ledger(kept.evidence, config.brakes.most_excess)
        self._feed = FeedReader(Path(config.models.directory), kept.offsets)
        self._runs: dict[Run, None] = dict.fromkeys(kept.runs)
        self._unsaved, self._save_s = False, 0.0
        self._unwritten: dict[Brake, Pulled] = {}
        self._asked_s, self._counted = 0.0, dict[Brake, int]()

    def retune(self, config: Config) -> None:
        """Throw the kill switches of another configuration from now on; the rest of it applies from the next start."""
        self._config = config

    def look(self) -> None:
        """Count what has ended since, pull what is to be pulled, and save what was counted."""
        now_s = time.time()
        stopped = self._file.read().brakes | self._unwritten.keys()
        try:
            for part in read_parts(self._feed):
                for one in part.jobs:
                    stopped |= self._count(one, now_s, stopped)
                    # Lets an answer that waits for the interpreter go first.
                    time.sleep(0)
            for brake in self._ledger.close_portions(now_s):
                stopped |= self._judge(brake, now_s, stopped)
            self._write()
            self._save(time.monotonic())
        except (OSError, RightsizerError) as error:
            if self._failures.is_new(str(error)):
                log.error("the brakes do not see all: %s", error)  # noqa: TRY400
        else:
            self._failures.over()

    def _count(self, one: Finished, now_s: float, stopped: frozenset[Brake]) -> frozenset[Brake]:
        """Count a run that was not counted before; return what is now stopped because of it."""
        run = by_end(one.job)
        if one.trial is None or run in self._runs:
            return frozenset()
        self._runs[run] = None
        while len(self._runs) > REMEMBERED_RUNS:
            del self._runs[next(iter(self._runs))]
        self._unsaved = True
        trial = one.trial
        if trial.killed_with_fewer_cpus and self._comes_with_cpus(one.request):
            trial = msgspec.structs.replace(trial, wanted="out_of_memory")
        changed = self._ledger.add(one.request, trial, now_s, stopped)
        return frozenset[Brake]().union(*(self._judge(brake, now_s, stopped) for brake in changed))

    def _judge(self, brake: Brake, now_s: float, stopped: frozenset[Brake]) -> frozenset[Brake]:
        self._unsaved = True
        if brake in stopped or not is_enough(brake, self._ledger):
            return frozenset()
        if brake.level == "family" and not is_enough(brake, self._ledger, self._running(brake, now_s)):
            return frozenset()
        tally = self._ledger.against(brake)
        self._pull(Pulled(brake=brake, time_s=now_s, why=reason_of(tally), counts=tally.counts))
        self._ledger.begin_anew(brake)
        return frozenset({brake})

    def _running(self, family: Brake, now_s: float) -> int:
        """Return how many jobs of a family run; asked once per look, and 0 if that is not known."""
        if self._asked_s != now_s:
            self._asked_s, self._counted = now_s, {}
        if family not in self._counted:
            try:
                self._counted[family] = count_running(family.user, family.name)
            except SlurmError as error:
                if self._failures_of_squeue.is_new(str(error)):
                    log.error("the brakes do not know what runs: %s", error)  # noqa: TRY400
                self._counted[family] = 0
            else:
                self._failures_of_squeue.over()
        return self._counted[family]

    def _pull(self, one: Pulled) -> None:
        self._hold(one.brake)
        log.error("stopped cutting %s: %s", words_of(one.brake), one.why)
        if one.brake == ALL:
            for switch in switches(self._config):
                _throw(switch)
        self._unwritten[one.brake] = one

    def _write(self) -> None:
        """Write down what is pulled; what the disk refuses holds in this process, and is tried again."""
        for brake, one in tuple(self._unwritten.items()):
            self._hold(brake)
            self._file.pull(one)
            del self._unwritten[brake]

    def _kept(self) -> Kept:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Kept)
        except (FileNotFoundError, NotADirectoryError):
            return Kept()
        except (OSError, *UNREADABLE) as error:
            lost = "what the brakes had counted is lost (%s: %s); they begin with what the feed holds"
            log.error(lost, self._path, error)  # noqa: TRY400
            return Kept()

    def _save(self, moment_s: float) -> None:
        if self._unsaved and moment_s >= self._save_s:
            make_folder(self._path.parent)
            kept = Kept(self._ledger.evidence, self._feed.offsets, tuple(self._runs))
            replace_whole(self._path, msgspec.json.encode(kept))
            self._unsaved, self._save_s = False, moment_s + SAVE_S


def _throw(switch: Path) -> None:
    try:
        throw(switch)
    except OSError as error:
        untouched = "cannot make %s: %s; the service leaves every job alone all the same"
        log.error(untouched, switch, error.strerror)  # noqa: TRY400
