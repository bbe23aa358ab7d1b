"""From a request to a prediction: the history looks up what is alike, the chains say how much it needs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from accounting.request import JobRequest
from models.demand.chain import (
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
from models.demand.shared_out import shared_out
from models.demand.slowdown import cpus_in_time, fewest_cpus
from models.demand.slowed import unslowed_cpus
from models.demand.too_few import enough_to_go_on
from models.past.families import Family
from models.past.history import History
from models.past.jobs import Learned, PastJob

# GPUs are few and a count has no tail: one job that left some idle says little.
LEAST_METERED = 5
# What submissions wait for, and growth models tell.
SIZED: tuple[Learned, ...] = ("memory", "cores")


class ChainSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the site wants of predictions: margins as fractions, and from how many jobs on to believe one.

    `most_failures` is the share of all jobs that may get less than they need, `most_slowdown` by which share of its run
    a job may be expected to run longer for want of CPUs.
    """

    memory_margin: float = 0.01
    cores_margin: float = 0.01
    min_evidence: int = 1
    most_failures: float = 0.01
    most_slowdown: float = 0.0

    @property
    def enough_metered(self) -> int:
        """From how many metered jobs on to believe what they say of GPUs."""
        return max(self.min_evidence, LEAST_METERED)

    def margin(self, dimension: Learned) -> float:
        """Return what is added to a prediction, as a fraction."""
        return self.cores_margin if dimension == "cores" else self.memory_margin


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a job will need, in the units of Estimate; None where there is not enough evidence.

    `basis` says in words what it rests on, `jobs_seen` how many comparable jobs there were; `untold` why they let
    nothing be said of memory, '' where they do. `fewest_cpus` a task are below what it needs, and slow it by no more
    than the site bears; None where the site bears nothing.
    """

    model: str
    basis: str
    jobs_seen: int
    memory: Estimate | None = None
    untold: Untold = ""
    cores: Estimate | None = None
    fewest_cpus: float | None = None
    gpus: Estimate | None = None
    gpu_source: str = ""


class Predictor:
    """A history, its growth models and the chains over them. But for jobs that join, it never changes."""

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
        # Growth models know families, and neither all of a user's jobs nor all with a limit are one.
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
            basis=f"{seen} earlier {evidence.words}",
            jobs_seen=seen,
            memory=memory,
            untold="" if memory else untold_of(evidence, self.settings.most_slowdown),
            cores=cores,
            fewest_cpus=self.fewest_cpus(sight, cores),
            gpus=self._gpus(sight),
            gpu_source=evidence.gpu_sources,
        )

    def fewest_cpus(self, sight: Sight, cores: Estimate | None) -> float | None:
        """Return what a job may get of the CPUs it needs, a task, where the site bears that jobs run longer."""
        bears, limit_s = self.settings.most_slowdown, sight.request.wall_s
        if cores is None or not bears or not limit_s:
            return None
        wall = self._wall(sight)
        if wall is None:
            return None
        in_time = cpus_in_time(cores.upper, wall.upper, limit_s)
        jobs = sight.evidence.jobs
        fewest = fewest_cpus(jobs, cores.upper, bears, in_time)
        # A job that cannot go on with fewer is not slowed by them.
        cannot = max(enough_to_go_on(jobs), shared_out(sight.evidence, "cores"))
        return max(fewest, unslowed_cpus(sight.evidence, fewest, bears), cannot)

    def sees_limit(self, request: JobRequest) -> bool:
        """Whether what is predicted of a job may depend on its time limit."""
        if self.settings.most_slowdown:
            return True
        evidence = self._history.evidence(request, self.settings.min_evidence)
        if evidence is None:
            return False
        uses = (evidence.use(dimension) for dimension in SIZED if dimension in self.growth)
        return any(past is not None and is_asked_about(past) for past in uses)

    def wall_time(self, request: JobRequest) -> Estimate | None:
        """Return how many seconds the job will run; None without enough evidence. No submission waits for it."""
        sight = self.sight(request)
        return None if sight is None else self._wall(sight)

    def wide_wall_time(self, request: JobRequest) -> tuple[Estimate, str] | None:
        """Return how many seconds a job runs of which nothing is known, and whose jobs say so; None where none do.

        By its user's last jobs, else by all that had its limit: enough to plan by, too little to grant by.
        """
        evidence = self._history.wide_evidence(request, self.settings.min_evidence)
        if evidence is None:
            return None
        found = self._wide_wall(Sight(request, evidence, self._history.user_habit(request)))
        return None if found is None else (found, evidence.words)

    def gpu_mem_mib(self, request: JobRequest) -> Estimate | None:
        """Return the MiB that the job will use of any one GPU; None without enough evidence.

        Slurm knows no request for it: it decides no grant, and no submission waits for it.
        """
        sight = self.sight(request)
        return None if sight is None else self._gpu_mem(sight)

    def join(self, request: JobRequest, job: PastJob, *, corrects: bool = False) -> bool:
        """Let a job that has ended since count too, once; whoever predicts must not do so at the same time.

        One that `corrects` what was told of the same run before takes its place.
        """
        return self._history.join(request, job, corrects=corrects)

    def discard(self, families: int) -> bool:
        """Forget so many families of the history; return whether there are more. For one that predicts no more."""
        return self._history.discard(families)

    def forget_estimates(self, request: JobRequest) -> None:
        """Let the next estimates of such a job's family be worked out anew: the same ones, unless a job joins."""
        evidence = self._history.evidence(request, self.settings.min_evidence)
        if evidence is not None:
            evidence.worked_out.clear()

    def joined(self, families: Sequence[Family]) -> int:
        """Return a number that rises whenever what is known of one of these families changes."""
        return self._history.joined(families)

    def sight(self, request: JobRequest) -> Sight | None:
        """Return what the chains see of a request; None where no finished job like it is known."""
        evidence = self._history.evidence(request, self.settings.min_evidence)
        return None if evidence is None else Sight(request, evidence, self._history.user_habit(request))
