"""Sizes waiting jobs again, once per cycle of the advisor: carries out through the gateway what late.py decides.

It knows what the service knows: the model in use and its feed of ended jobs, Slurm's limits, the journal of
decisions. A new decision is journalled once slurmctld has it: until then the token, which is written with it, is its
only copy.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from accounting.decisions.decision import Decision, Fixed
from accounting.decisions.token import find_token
from accounting.key_file import journal_key
from accounting.presence import is_there
from accounting.request import JobRequest
from slurm_plugin.advisor.decided import Decided
from slurm_plugin.advisor.late import (
    HELD_AGAIN,
    SCRIPT_NOT_KNOWN,
    STARTS_NOW,
    Again,
    alike,
    size_again,
    why_left,
)
from slurm_plugin.advisor.left_alone import LeftAlone
from slurm_plugin.advisor.standing import cpus_must_stay
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.rules import Terms, terms_for
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import BRAKED, Answer, chain_settings_of, fill_in
from slurm_plugin.service.journal import Journal
from slurm_plugin.slurm.queue import Resize, Written
from slurm_plugin.slurm.release import read_release
from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot

log = logging.getLogger(__name__)

JOURNAL = "decisions-advisor"
# At most this share of a period is spent on writes; the rest waits for the next one.
WRITING_SHARE = 0.5
# At most this share is spent on jobs that were not looked at before, or of which more is known now.
LOOKING_SHARE = 0.25
NEXT_TIME = "next-time"
KILL_SWITCH = "kill-switch"


class Resizer(Protocol):
    """What changes jobs: the gateway, of which only this is needed here. A dry run is a problem like any other."""

    def resize(self, change: Resize) -> Written:
        """Change what a pending job asks for; all of it or nothing."""


class LateSizing:
    """Sizes waiting jobs again and again, as long as the advisor runs."""

    def __init__(self, config: Config, model: CurrentModel | None = None) -> None:
        """Follow a model, the advisor's own if it has one; raises one of our errors if that fails."""
        folder = Path(config.service.journal)
        self._config = config
        self._model = model or CurrentModel(Path(config.models.directory), chain_settings_of(config))
        self._facts = CurrentFacts(config)
        self._decided = Decided(folder)
        self._journal = Journal(folder, JOURNAL, journal_key(config.service.journal_key))
        self._cpus_stay = cpus_must_stay(read_release())
        self._left_alone = LeftAlone()
        self._asked: JobRequest | None = None
        self._answers: dict[tuple[str, JobRequest, Fixed | None], Answer] = {}
        self.left: Counter[str] = Counter()

    def refresh(self) -> None:
        """Take up a new model, every job that has ended until now, and Slurm's limits."""
        self._model.refresh()
        self._model.catch_up()
        self._facts.refresh_when_due()
        self._facts.refresh_brakes()

    def run(self, snapshot: Snapshot, gateway: Resizer, starting: frozenset[int]) -> list[Written]:
        """Size waiting jobs; return the result of each change. `starting` are those that Slurm would start now.

        Raises SlurmError if slurmctld does not answer. Jobs that get more come first, then the next in the queue.
        """
        changes = self.changes(snapshot, starting)
        until_s = time.monotonic() + WRITING_SHARE * self._config.advisor.period_s
        written: list[Written] = []
        for again in changes[: self._config.advisor.most_changes]:
            if time.monotonic() > until_s:
                break
            # Looking at a long queue takes a while, and writing too: the switch counts from the next job on.
            if self._is_stopped(again):
                self.left[KILL_SWITCH] += 1
                continue
            written.append(self._carry_out(again, gateway))
        if changes or self.left:
            sized = sum(not one.problem for one in written)
            log.info("sized again: %d of %d jobs; %s", sized, len(changes), _counted(self.left))
        return written

    def changes(self, snapshot: Snapshot, starting: frozenset[int]) -> list[Again]:
        """Return what would be changed, in the order of execution; `left` counts why the others stay."""
        self.left, self._answers = Counter(), {}
        fresh, decisions = self._fresh(snapshot)
        # Counted from here: reading what is new in the journal may have taken a whole share, in each cycle.
        until_s = time.monotonic() + LOOKING_SHARE * self._config.advisor.period_s
        found: list[tuple[QueuedJob, Again]] = []
        for number, job in enumerate(fresh):
            if time.monotonic() > until_s:
                self.left[NEXT_TIME] += len(fresh) - number
                break
            # Some task of an array is always about to start; sizing is for the others.
            if job.job_id in starting and job.tasks == 1:
                self.left[STARTS_NOW] += 1
                continue
            again = self._look(job, decisions, snapshot.time_s)
            if again is not None:
                found.append((job, again))
        found.sort(key=lambda one: (not one[1].raises, -one[0].priority, one[0].job_id))
        return [again for _, again in found]

    def _fresh(self, snapshot: Snapshot) -> tuple[list[QueuedJob], Mapping[str, Decision]]:
        """Return the jobs to look at, in queue order, and the decisions that waiting jobs name."""
        waiting = [job for job in snapshot.jobs if job.waits]
        self._left_alone.begin(self._model.predictor, self._facts.facts, snapshot.time_s)
        fresh: list[QueuedJob] = []
        named: dict[str, float] = {}
        for job in waiting:
            known = self._left_alone.of(job)
            if known is None:
                fresh.append(job)
            else:
                self.left[known.reason] += 1
            names = _named(job) if known is None else known.named
            named |= dict.fromkeys(names, job.submit_s)
        fresh.sort(key=lambda job: (-job.priority, job.job_id))
        return fresh, self._decided.of(named, snapshot.time_s)

    def _look(self, job: QueuedJob, decisions: Mapping[str, Decision], now_s: float) -> Again | None:
        """Return the change of a job; None if it stays, with the reason counted in `left`."""
        self._asked = None
        again = size_again(
            job,
            decisions,
            self._decide,
            self._terms_for,
            os.urandom(6).hex(),
            now_s,
            cpus_stay=self._cpus_stay,
        )
        if isinstance(again, Again) and self._is_stopped(again):
            self.left[KILL_SWITCH] += 1  # not kept: the switch may be gone in the next cycle
            return None
        if isinstance(again, Again):
            return again
        self.left[again] += 1
        if again != SCRIPT_NOT_KNOWN:  # that becomes known as soon as the journal can be read
            self._left_alone.keep(job, self._asked, again, _named(job))
        return None

    def _is_stopped(self, again: Again) -> bool:
        """Whether the kill switch forbids a change; what a brake gives back is no cut, and goes on."""
        if again.decision.reason == BRAKED:
            return False
        try:
            return is_there(Path(self._config.hook.kill_switch))
        except OSError:
            return True

    def _carry_out(self, again: Again, gateway: Resizer) -> Written:
        written = gateway.resize(again.change)
        if written.problem:
            return written
        # If the disk refuses, the token in the job's comment still holds the decision: one copy is enough.
        self._journal.keep(again.decision)
        return written

    def _decide(self, undecided: Decision, comment: str) -> Answer:
        """Decide as at submission; jobs that ask alike get one answer in a cycle, each under its own name."""
        self._asked = undecided.request
        key = (comment, *alike(undecided))
        known = self._answers.get(key)
        if known is None:
            known = fill_in(undecided, comment, self._model.predictor, self._config, self._facts.facts)
            self._answers[key] = known
            self._facts.learn_from(known.decision)
        own = {name: getattr(undecided, name) for name in ("id", "request", "replaces")}
        return msgspec.structs.replace(known, decision=msgspec.structs.replace(known.decision, **own))

    def _terms_for(self, request: JobRequest) -> Terms:
        return terms_for(request, self._config, self._facts.facts)


def _named(job: QueuedJob) -> tuple[str, ...]:
    """Return the ids of the decisions behind a job that may be changed, now or once released; none for other jobs."""
    token = find_token(job.admin_comment)
    if token is None or why_left(job, token) not in ("", HELD_AGAIN):
        return ()
    return tuple(filter(None, (token.decision_id, token.was)))


def _counted(left: Counter[str]) -> str:
    return ", ".join(f"{count} left: {reason}" for reason, count in left.most_common()) or "none left"
