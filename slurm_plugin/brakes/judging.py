"""When evidence is enough to stop cutting. Pure."""

from __future__ import annotations

import math

from accounting.units import counted
from models.sequential import evidence_log
from slurm_plugin.brakes.evidence import Ledger
from slurm_plugin.brakes.tallies import Counts, Tally, added
from slurm_plugin.policy.braked import Brake

# The wealth at which a brake is pulled: against the bound alone, and against jobs left whole, where uncertainty about
# these costs the test most of its power. Of n jobs that fail within the bound this stops with a probability of at
# most n / 30,000 and n / 2,000; in fact far less (python -m bench.brakes).
ENOUGH_KILLS, ENOUGH_FAILS = 30_000.0, 2_000.0
ENOUGH_LOGS = math.log(ENOUGH_KILLS), math.log(ENOUGH_FAILS)
# To bound the work, no more running jobs than this are counted, though more would lower the evidence further.
MOST_RUNNING = 2000


def is_enough(brake: Brake, ledger: Ledger, running: int = 0) -> bool:
    """Whether a brake is to be pulled, given that this many more jobs of a family run.

    Killed tasks of an array end first: those that still run have not failed so far, and count as such.
    """
    tally = ledger.tally(brake)
    for _ in range(min(running, MOST_RUNNING)):
        tally = added(tally, Counts(shrunk=1), ledger.bound)
    # What is left without any two users is never more than this, and takes longer to compute.
    if not _by_kills(tally) and evidence_log(tally.fails) < ENOUGH_LOGS[1]:
        return False
    return brake.level == "family" or ledger.is_enough_without_any_two(brake, ENOUGH_LOGS)


def _by_kills(tally: Tally) -> bool:
    return evidence_log(tally.kills) >= ENOUGH_LOGS[0]


def reason_of(tally: Tally) -> str:
    """Return in words what a brake was pulled for."""
    by_kills = _by_kills(tally)
    odds = math.exp(min(evidence_log(tally.kills if by_kills else tally.fails), 700))
    what = "cut jobs were killed for memory" if by_kills else "cut jobs failed more often than uncut ones"
    return f"{what}; evidence {odds:.0e} to 1; {figures(tally.counts)}"


def figures(counts: Counts) -> str:
    """Return counts in words."""
    return (
        f"of {counted(counts.shrunk, 'job')} that were cut {counts.failed} failed, {counts.wanted} of them for "
        f"lack of memory; of {counted(counts.whole, 'uncut job')} {counts.whole_failed} failed"
    )
