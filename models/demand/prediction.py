"""From a request to a prediction: the history looks up what is alike, the chains say how much it needs."""

from __future__ import annotations

import msgspec

from accounting.request import JobRequest
from models.demand.chain import Estimate, Estimator, GrowthModel, Sight, demand_chain, gpu_chain
from models.evidence import Learned
from models.families import describe_family
from models.history import History


class ChainSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the site wants of predictions: margins as fractions, and from how many jobs on to believe one."""

    memory_margin: float = 0.15
    cores_margin: float = 0.25
    min_evidence: int = 5


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a job will need, in the units of Estimate; None where there is not enough evidence.

    `basis` says in words what it rests on, `jobs_seen` how many comparable jobs there were.
    """

    model: str
    basis: str
    jobs_seen: int
    memory: Estimate | None = None
    cores: Estimate | None = None
    gpus: Estimate | None = None
    gpu_source: str = ""


class Predictor:
    """A history, its growth models and the chains over them; immutable once built."""

    def __init__(
        self, model: str, history: History, growth: dict[Learned, GrowthModel], settings: ChainSettings
    ) -> None:
        self.model = model
        self._history = history
        self._enough = settings.min_evidence
        enough = settings.min_evidence
        self._memory = demand_chain("memory", growth.get("memory"), settings.memory_margin, enough)
        self._cores = demand_chain("cores", growth.get("cores"), settings.cores_margin, enough)
        self._wall = demand_chain("wall", growth.get("wall"), settings.memory_margin, enough)
        self._gpus: Estimator = gpu_chain(enough)

    def predict(self, request: JobRequest) -> Prediction:
        """Return what the job will need; dimensions without enough evidence are None."""
        sight = self._sight(request)
        if sight is None:
            return Prediction(model=self.model, basis="no finished job like it is known", jobs_seen=0)
        evidence = sight.evidence
        seen = len(evidence.jobs)
        return Prediction(
            model=self.model,
            basis=f"{seen} earlier {describe_family(evidence.family)}",
            jobs_seen=seen,
            memory=self._memory(sight),
            cores=self._cores(sight),
            gpus=self._gpus(sight),
            gpu_source="+".join(sorted({job.gpu_source for job in evidence.jobs if job.gpu_source})),
        )

    def wall_time(self, request: JobRequest) -> Estimate | None:
        """Return how many seconds the job will run; None without enough evidence. No submission waits for it."""
        sight = self._sight(request)
        return None if sight is None else self._wall(sight)

    def _sight(self, request: JobRequest) -> Sight | None:
        evidence = self._history.evidence(request, self._enough)
        return None if evidence is None else Sight(request, evidence, self._history.habits(request))
