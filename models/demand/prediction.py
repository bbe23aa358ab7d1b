"""From a request to a prediction: the history finds similar jobs, the chains say how much the job needs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from accounting.request import JobRequest
from models.demand.chain import (
    SIZED,
    Estimate,
    Estimator,
    Growth,
    Sight,
    Untold,
    demand_chain,
    gpu_chain,
    is_asked_about,
    untold_of,
)
from models.demand.more_cpus import MoreCpus, more_cpus
from models.demand.shared_out import shared_out
from models.demand.slowdown import cpus_in_time, fewest_cpus
from models.demand.slowed import unslowed_cpus
from models.demand.too_few import enough_to_go_on
from models.past.families import Family, basis_of
from models.past.history import History
from models.past.jobs import Learned, PastJob

# GPUs are few and a count has no tail: one job that left some idle says little.
LEAST_METERED = 5


class ChainSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the site wants of predictions: margins as fractions, and how many jobs are enough evidence.

    `most_failures` is the share of all jobs that may get less than they need. `most_slowdown` is by which share of
    its run a job may be expected to run longer for want of CPUs.
    """

    memory_margin: float = 0.01
    cores_margin: float = 0.01
    min_evidence: int = 1
    most_failures: float = 0.01
    most_slowdown: float = 0.0

    @property
    def enough_metered(self) -> int:
        """How many metered jobs are enough evidence for GPUs."""
        return max(self.min_evidence, LEAST_METERED)

    def margin(self, dimension: Learned) -> float:
        """Return the margin that is added to a prediction of a dimension, as a fraction."""
        return self.cores_margin if dimension == "cores" else self.memory_margin


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a job will need, in the units of Estimate; None for a dimension without enough evidence.

    `basis` says in words what it rests on, `jobs_seen` how many comparable jobs there were. `untold` says why they
    show nothing of memory, '' if they do. `more_cpus` says what memory is if it gets more CPUs than recent jobs had,
    None if that is not known. `fewest_cpus` are the fewest CPUs per task, below the need where that is
    possible, that slow the job by no more than the site accepts. It is None if the site accepts no slowdown, or if
    the cores that the job needs, its run time or its time limit are not known.
    """

    model: str
    basis: str
    jobs_seen: int
    memory: Estimate | None = None
    untold: Untold = ""
    more_cpus: MoreCpus | None = None
    cores: Estimate | None = None
    fewest_cpus: float | None = None
    gpus: Estimate | None = None
    gpu_source: str = ""


class Predictor:
    """A history, its growth models and the chains over them. It never changes, except for jobs that join."""

    def __init__(
        self, model: str, history: History, growth: dict[Learned, Growth], settings: ChainSettings
    ) -> None:
        self.model = model
        self._history = history
        self.settings = settings
        self.growth = growth

        def chain(dimension: Learned) -> Estimator:
            return demand_chain(
                dimension,
                growth.get(dimension),
                settings.margin(dimension),
                settings.min_evidence,
                settings.most_failures,
                settings.most_slowdown,
            )

        self._memory, self._cores, self._wall = chain("memory"), chain("cores"), chain("wall")
        self._gpu_mem = chain("gpu_mem")
        # Growth models know families; all jobs of a user, or all with one limit, are no family.
        self._wide_wall = demand_chain("wall", None, 0.0, settings.min_evidence, settings.most_failures)
        self._gpus: Estimator = gpu_chain(settings.enough_metered)

    def predict(self, request: JobRequest) -> Prediction:
        """Return what the job will need; dimensions without enough evidence are None."""
        sight = self.sight(request)
        if sight is None:
            return Prediction(model=self.model, basis="no finished job like it is known", jobs_seen=0)
        evidence = sight.evidence
        seen = len(evidence.jobs)
        memory, cores = self._memory(sight), self._cores(sight)
        return Prediction(
            model=self.model,
            basis=basis_of(seen, evidence.words),
            jobs_seen=seen,
            memory=memory,
            untold="" if memory else untold_of(evidence, self.settings.most_slowdown),
            more_cpus=evidence.once(more_cpus, lambda: more_cpus(evidence)),
            cores=cores,
            fewest_cpus=self.fewest_cpus(sight, cores),
            gpus=self._gpus(sight),
            gpu_source=evidence.gpu_sources,
        )

    def fewest_cpus(self, sight: Sight, cores: Estimate | None) -> float | None:
        """Return how few CPUs per task a job may get if the site accepts that jobs run longer; None if it may not."""
        bears, limit_s = self.settings.most_slowdown, sight.request.wall_s
        if cores is None or not bears or not limit_s:
            return None
        wall = self._wall(sight)
        if wall is None:
            return None
        in_time = cpus_in_time(cores.upper, wall.upper, limit_s)
        jobs = sight.evidence.jobs
        fewest = fewest_cpus(jobs, cores.upper, bears, in_time)
        # With fewer CPUs than this a job is not slowed: it cannot go on at all.
        cannot = max(enough_to_go_on(jobs), shared_out(sight.evidence, "cores"))
        return max(fewest, unslowed_cpus(sight.evidence, fewest, bears), cannot)

    def sees_limit(self, request: JobRequest) -> bool:
        """Return whether the prediction for a job may depend on its time limit."""
        if self.settings.most_slowdown:
            return True
        evidence = self._history.evidence(request, self.settings.min_evidence)
        if evidence is None:
            return False
        uses = (evidence.use(dimension) for dimension in SIZED if dimension in self.growth)
        return any(past is not None and is_asked_about(past) for past in uses)

    def wall_time(self, request: JobRequest) -> Estimate | None:
        """Return how many seconds the job will run; None without enough evidence. No submission waits for this."""
        sight = self.sight(request)
        return None if sight is None else self._wall(sight)

    def wide_wall_time(self, request: JobRequest) -> tuple[Estimate, str] | None:
        """Return how many seconds a job will run whose family is not known, and whose jobs say so; None if none do.

        It goes by the last jobs of its user, else by all jobs that had its limit: enough to plan by, too little to
        grant by.
        """
        evidence = self._history.wide_evidence(request, self.settings.min_evidence)
        if evidence is None:
            return None
        found = self._wide_wall(Sight(request, evidence, self._history.user_habit(request)))
        return None if found is None else (found, evidence.words)

    def gpu_mem_mib(self, request: JobRequest) -> Estimate | None:
        """Return the MiB that the job will use of any one GPU; None without enough evidence.

        Slurm has no request for it, so it decides no grant, and no submission waits for it.
        """
        sight = self.sight(request)
        return None if sight is None else self._gpu_mem(sight)

    def join(self, request: JobRequest, job: PastJob, *, corrects: bool = False) -> bool:
        """Count a job that has ended since, once; return whether it was new. Do not predict at the same time.

        A job that `corrects` what was reported of the same run before replaces it.
        """
        return self._history.join(request, job, corrects=corrects)

    def discard(self, families: int) -> bool:
        """Forget this many families of the history; return whether there are more. For a predictor out of use."""
        return self._history.discard(families)

    def forget_estimates(self, request: JobRequest) -> None:
        """Forget the estimates computed for such a job's family: the next are the same, unless a job joins."""
        evidence = self._history.evidence(request, self.settings.min_evidence)
        if evidence is not None:
            evidence.worked_out.clear()

    def joined(self, families: Sequence[Family]) -> int:
        """Return a number that rises whenever what is known of one of these families changes."""
        return self._history.joined(families)

    def sight(self, request: JobRequest) -> Sight | None:
        """Return what the chains see of a request; None if no finished job like it is known."""
        evidence = self._history.evidence(request, self.settings.min_evidence)
        return None if evidence is None else Sight(request, evidence, self._history.user_habit(request))
