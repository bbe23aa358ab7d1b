"""The rows that growth models learn from, for millions of jobs at once: each job by what had ended before it. Pure.

Row for row, this computes in NumPy what `History.evidence` and `features` compute one by one (a test compares them).
"""

from __future__ import annotations

import numpy as np

from accounting.frames import Flags, Floats, Ints
from models.demand.chain import SETTLED_JOBS, SETTLED_STREAK
from models.demand.features import FEATURES
from models.past.columns import PastColumns
from models.past.jobs import LEARNED, Learned
from models.past.kills import KILLED_BUMP
from models.training.matrix import Inputs, Matrix
from models.training.windows import Comparable, Ended, Uses, parts, uses_in

# A submission goes by the place of a kind of family, the narrowest first; by NOBODY if no family counts.
NOBODY = -1
# How many of FEATURES, the first ones, come from the family's past.
OF_THE_PAST = FEATURES.index("asked_over_max")


class Look:
    """One kind of family, and how many comparable jobs, and complete ones among them, each submission finds there."""

    def __init__(self, past: PastColumns, place: int, recent_jobs: int) -> None:
        self._past = past
        self.ended = Ended(past, past.families[place], recent_jobs)
        self.comparable = Comparable(past, self.ended)
        self.seen, self.complete = np.zeros((2, len(past)), np.int64)
        self.stands = np.ones(len(past), np.bool_)

    def at(self, submissions: Ints) -> None:
        """Find the comparable jobs of some submissions."""
        complete, script = self._past.complete[self.ended.rows], self._past.script.codes[self.ended.rows]
        for part in parts(self.ended, submissions):
            tells = self.comparable.of(part)
            self.seen[part.submissions] = tells.sum(axis=0)
            self.complete[part.submissions] = (tells & complete[part.places]).sum(axis=0)
            ran = np.where(tells, script[part.places], 0)
            self.stands[part.submissions] = _stands_for(ran, self._past.script.codes[part.submissions])


def _stands_for(ran: Ints, wants: Ints) -> Flags:
    """Return whether windows of scripts count for others, as `stands_for` (past/likeness.py); 0 is not known."""
    most = ran.max(axis=0)
    least = np.where(ran > 0, ran, np.iinfo(np.int64).max).min(axis=0)
    same = (wants == 0) | (most == 0) | ((most == wants) & (least == wants))
    # If three scripts (VARIED_SCRIPTS) differ, some code lies between the least and the highest.
    varied: Flags = same | ((ran > least) & (ran < most)).any(axis=0)
    return varied


def build_matrices(past: PastColumns, recent_jobs: int) -> dict[Learned, Matrix]:
    """Return the training rows of each dimension, from the last `recent_jobs` of each family at each submission."""
    needs = {dimension: _needs(past, dimension) for dimension in LEARNED}
    taught = {dimension: ~np.isnan(logs) for dimension, (logs, _) in needs.items()}
    submissions, found = _looked_back(past, taught, recent_jobs)
    habits = _habits(past, submissions, recent_jobs)
    matrices: dict[Learned, Matrix] = {}
    for dimension in LEARNED:
        of_past, highest_log = found.pop(dimension)
        logs, bounded = needs[dimension]
        logs, bounded = logs[submissions], bounded[submissions]
        known = of_past[:, 0] > 0
        asked = _of_request(past, submissions, dimension, highest_log, habits)
        matrices[dimension] = Matrix(
            inputs=np.hstack([of_past[known], asked[known]]),
            targets=(logs - highest_log)[known],
            settled=((of_past[:, 0] >= SETTLED_JOBS) & (of_past[:, 1] >= SETTLED_STREAK))[known],
            bounded=bounded[known],
            users=past.user.codes[submissions][known],
            submit_s=past.submit_s[submissions][known],
            names=past.user.words,
        )
    return matrices


def _looked_back(
    past: PastColumns, taught: dict[Learned, Flags], recent_jobs: int
) -> tuple[Ints, dict[Learned, tuple[Inputs, Floats]]]:
    """Return the submissions that have a past to learn from, by time, and what is found there (`_found`)."""
    looks = tuple(Look(past, place, recent_jobs) for place in range(len(past.families)))
    speaks = _who_speaks(looks, np.logical_or.reduce(list(taught.values())))
    submissions = np.lexsort((np.arange(len(past)), past.submit_s))
    submissions = submissions[speaks[submissions] != NOBODY]
    return submissions, _found(past, looks, speaks, submissions, taught)


def _needs(past: PastColumns, dimension: Learned) -> tuple[Floats, Flags]:
    """Return `need_of` each job: its logarithm, NaN if it teaches nothing; and which needs are bounds."""
    bounded = {
        "memory": past.mem_at_least,
        "cores": np.zeros(len(past), np.bool_),
        "wall": past.wall_at_least,
        "gpu_mem": np.zeros(len(past), np.bool_),
    }[dimension]
    return np.where(past.shows_need(dimension) | bounded, np.log(past.use(dimension)), np.nan), bounded


def _who_speaks(looks: tuple[Look, ...], taught: Flags) -> Ints:
    """Return the kind of family of each job that teaches: the narrowest with a complete job, else the fullest."""
    speaks = np.full(len(taught), NOBODY)
    most = np.zeros(len(taught), np.int64)
    fullest = speaks.copy()
    for place, look in enumerate(looks):
        look.at(np.flatnonzero(taught & (speaks == NOBODY)))
        speaks[(speaks == NOBODY) & look.stands & (look.complete > 0)] = place
        fuller = look.stands & (look.seen > most)
        fullest[fuller], most[fuller] = place, look.seen[fuller]
    return np.where(speaks == NOBODY, fullest, speaks)


def _found(
    past: PastColumns,
    looks: tuple[Look, ...],
    speaks: Ints,
    submissions: Ints,
    taught: dict[Learned, Flags],
) -> dict[Learned, tuple[Inputs, Floats]]:
    """Return, for each dimension, what the past shows (rows × OF_THE_PAST), and its highest logarithm.

    Both are 0 for a job that teaches nothing of the dimension: most jobs have no GPU.
    """
    found: dict[Learned, tuple[Inputs, Floats]] = {
        dimension: (np.zeros((len(submissions), OF_THE_PAST), np.float32), np.zeros(len(submissions)))
        for dimension in LEARNED
    }
    row = np.empty(len(past), np.int64)
    row[submissions] = np.arange(len(submissions))
    for place, look in enumerate(looks):
        # A dimension that nobody metered is left out.
        known = {
            dimension: _needed(past, dimension, look.ended.rows)
            for dimension in LEARNED
            if not np.isnan(past.use(dimension)).all()
        }
        # Memory use that shows that a request would have been too little. A request that is not known counts as
        # infinite: nothing exceeds it.
        used_mib = np.where(past.mem_at_least, np.nan, past.use("memory"))[look.ended.rows]
        asked_mib = np.where(past.asked_mem_mib > 0, past.asked_mem_mib, np.inf)
        for part in parts(look.ended, np.flatnonzero(speaks == place)):
            comparable = look.comparable.of(part)
            above = comparable & (used_mib[part.places] > asked_mib[part.submissions])
            for dimension, (logs, tells) in known.items():
                of_past, highest_log = found[dimension]
                some = np.flatnonzero(taught[dimension][part.submissions])
                if not len(some):
                    continue
                rows, places = row[part.submissions[some]], part.places.take(some, axis=1)
                beyond = above.take(some, axis=1) if dimension == "memory" and above.any() else None
                uses = uses_in(
                    np.where(comparable.take(some, axis=1), logs[places], -np.inf), tells[places], beyond
                )
                of_past[rows], highest_log[rows] = _of_the_past(uses), uses.highest_log
    return found


def _needed(past: PastColumns, dimension: Learned, rows: Ints) -> tuple[Floats, Flags]:
    """Return what jobs are known to have needed, as logarithms (-inf if unknown), and which show their need."""
    use, tells = past.use(dimension)[rows], past.shows_need(dimension)[rows]
    if dimension == "memory":
        killed = past.mem_at_least[rows]
        use, tells = np.where(killed, use * KILLED_BUMP, use), tells | killed
    return np.nan_to_num(np.log(use), nan=-np.inf), tells


def _of_the_past(uses: Uses) -> Floats:
    return np.stack(
        [
            uses.count,
            uses.streak,
            uses.highest_log,
            uses.mean_log,
            uses.last_log,
            uses.spread_log,
            np.sqrt(uses.above_median / np.maximum(uses.count, 1)),
            # Both are -inf if nothing is known; such a row is left out later.
            uses.last_log - np.where(uses.count, uses.highest_log, 0.0),
        ],
        axis=1,
    )


def _of_request(
    past: PastColumns,
    submissions: Ints,
    dimension: Learned,
    highest_log: Floats,
    habits: dict[Learned, Floats],
) -> Inputs:
    """Return the rest of FEATURES: what is asked, and how much of what they ask the cohort uses."""
    asked_log = np.log(past.asked(dimension)[submissions])
    unknown = np.full(len(submissions), np.nan)
    columns = [
        asked_log - highest_log,
        asked_log,
        past.num_tasks[submissions],
        np.log(past.cpus[submissions]),
        np.nan_to_num(past.asked_gpus[submissions], nan=0.0),
        np.log(past.asked("wall")[submissions]),
        habits.get(dimension, unknown),
    ]
    return np.stack(columns, axis=1, dtype=np.float32, casting="same_kind")


def _habits(past: PastColumns, submissions: Ints, recent_jobs: int) -> dict[Learned, Floats]:
    """Return, for memory and cores, the `Habit` of each submission's cohort: means over windows, by running sums."""
    asked_mib, asked_cpus = (
        np.where(asked > 0, asked, np.nan) for asked in (past.asked_mem_mib, past.asked_cpus)
    )
    ratios: dict[Learned, Floats] = {
        "memory": np.log(np.where(past.mem_short, np.nan, past.use("memory")) / asked_mib),
        "cores": np.log(past.use("cores") * past.num_tasks / asked_cpus),
    }
    ended = Ended(past, past.cohort, recent_jobs)
    first, end = ended.first[submissions], ended.end[submissions]
    habits: dict[Learned, Floats] = {}
    for dimension, ratio in ratios.items():
        each = ratio[ended.rows]
        known = np.cumsum(np.append(0, ~np.isnan(each)))
        total = np.cumsum(np.append(0.0, np.nan_to_num(each, nan=0.0)))
        count = known[end] - known[first]
        mean = (total[end] - total[first]) / np.maximum(count, 1)
        habits[dimension] = np.where(count > 0, mean, np.nan)
    return habits
