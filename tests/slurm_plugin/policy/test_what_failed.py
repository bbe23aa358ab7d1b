"""What failed is not granted again while it is remembered, whatever the policy; after that it is forgotten."""

import math
import os
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.request import JobRequest, granted
from models.demand.prediction import ChainSettings, Predictor
from models.past.history import History
from models.past.jobs import PastJob
from models.past.kills import KILLED_BUMP
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.limits import Limits
from slurm_plugin.policy.rules import limits_of
from slurm_plugin.policy.sizing import UNTOLD, size

ASKED_MIB, ASKED_CPUS = 16_000, 16
ASKED = JobRequest(
    user="ann", job_name="fit", cpus_per_task=ASKED_CPUS, mem_per_node_mib=ASKED_MIB, wall_s=3600
)
EXAMPLES = int(os.environ.get("RIGHTSIZER_FAILED_EXAMPLES", "20"))


class Policy(NamedTuple):
    """A site's settings, and how many jobs a family remembers."""

    limits: Limits
    settings: ChainSettings
    recent_jobs: int


POLICIES = st.builds(
    Policy,
    st.builds(
        Limits,
        memory_floor_mib=st.integers(1, 500),
        memory_step_mib=st.integers(1, 256),
        min_saving=st.floats(0, 0.5),
        headroom=st.floats(0, 1),
        least_share=st.floats(0, 0.5),
        min_cpus_per_task=st.integers(1, 4),
        cpus_step=st.sampled_from((1, 2)),
    ),
    st.builds(
        ChainSettings,
        memory_margin=st.floats(0, 0.5),
        cores_margin=st.floats(0, 0.5),
        min_evidence=st.integers(1, 3),
        most_failures=st.floats(0.001, 0.5),
        most_slowdown=st.sampled_from((0.0, 0.0, 0.2)),
    ),
    st.integers(4, 50),
)
NEEDS = st.lists(st.integers(1, ASKED_MIB), min_size=1, max_size=80)


class Family:
    """Jobs that end one after the other, each sized from what is known then, like the service sizes it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.history = History(policy.recent_jobs)
        self.predictor = Predictor("m", self.history, {}, policy.settings)
        # How many jobs have ended; and for those that failed, which ones and what they had.
        self.ended, self.failed = 0, dict[int, float]()

    def sized(self) -> JobRequest:
        return granted(ASKED, size(ASKED, self.predictor.predict(ASKED), self.policy.limits).grant)

    def end(
        self,
        given: JobRequest,
        mem_mib: float,
        cores: float,
        *,
        killed: bool = False,
        late: bool = False,
        stopped: bool = False,
        job_id: int = 0,
    ) -> None:
        self.ended += 1
        job = PastJob(
            end_s=100 * self.ended,
            num_tasks=1,
            asked_cpus=ASKED_CPUS,
            asked_mem_mib=ASKED_MIB,
            asked_gpus=None,
            complete=not (killed or stopped),
            mem_mib=mem_mib,
            mem_at_least=killed,
            cores_per_task=cores,
            wall_s=3600 if late else 100,
            gpus=None,
            gpu_source="",
            script="",
            job_id=job_id or self.ended,
            wall_at_least=late,
            given_cpus=given.cpus_per_task,
            given_mem_mib=given.mem_per_node_mib,
        )
        self.history.join(given, job)

    def grants_mib(self, need_mib: float) -> int | None:
        """Return the memory of the next job that is not left whole for comparison."""
        while self.predictor.predict(ASKED).untold == "compared":
            self.run_memory(need_mib, comes_back=True)
        return self.sized().mem_per_node_mib

    def run_memory(self, need_mib: float, *, comes_back: bool) -> int:
        """Run a job that needs this much; it comes back with its original request, or not. Return what it was given."""
        given = self.sized()
        mib = given.mem_per_node_mib or 0
        if mib < need_mib:
            self.end(given, mib, 0.5, killed=True)
            self.failed[self.ended] = mib
        if mib >= need_mib or comes_back:
            self.end(given, need_mib, 0.5)
        return mib

    def run_hidden(self, need_mib: float, seen_mib: float) -> None:
        """Run a job that needs more than Slurm measures; if it is killed it comes back with its original request."""
        given = self.sized()
        mib = given.mem_per_node_mib or 0
        if mib >= need_mib:
            self.end(given, seen_mib, 0.5)
            return
        self.end(given, mib, 0.5, killed=True)
        self.failed[self.ended] = mib
        self.end(ASKED, seen_mib, 0.5, job_id=self.ended)

    def run_cores(self, need: float) -> int:
        """Run a job that keeps this many cores busy; with fewer its time runs out. Return what it was given."""
        given = self.sized()
        cpus = given.cpus_per_task or 0
        late = cpus < need
        self.end(given, 100.0, min(0.99 * cpus, need), late=late)
        if late:
            self.failed[self.ended] = cpus
        return cpus

    def run_steps(self, need: int, *, waits: bool, comes_back: bool = True) -> None:
        """Run a job that cannot go on with fewer CPUs, and keeps half a core busy with `need`.

        With fewer it fails, or waits until its time is over; it comes back with its original request, or not.
        """
        given = self.sized()
        cpus = given.cpus_per_task or 0
        if cpus >= need:
            self.end(given, 100.0, 0.5)
            return
        self.end(given, 100.0, 0.01, late=waits, stopped=not waits)
        self.failed[self.ended] = cpus
        if comes_back:
            self.end(ASKED, 100.0, 0.5, job_id=self.ended)

    @property
    def remembered(self) -> float:
        """Return the most that failed, among the jobs that are remembered."""
        first = self.ended - self.policy.recent_jobs
        return max((amount for number, amount in self.failed.items() if number > first), default=0.0)


@settings(max_examples=EXAMPLES)
@given(POLICIES, NEEDS, st.booleans())
def test_memory_is_above_what_failed_while_that_is_remembered_and_at_most_the_request(
    policy: Policy, needs: list[int], comes_back: bool
) -> None:
    family = Family(policy)
    for need_mib in needs:
        least = min(ASKED_MIB, KILLED_BUMP * family.remembered)
        assert least <= family.run_memory(need_mib, comes_back=comes_back) <= ASKED_MIB


@settings(max_examples=EXAMPLES)
@given(POLICIES, st.integers(1, 1000), st.integers(1001, ASKED_MIB), st.integers(1, 20))
def test_the_bump_is_gone_after_as_many_successes_as_a_family_remembers(
    policy: Policy, need_mib: int, once_mib: int, before: int
) -> None:
    failed, spared = Family(policy), Family(policy)
    for family in (failed, spared):
        for _ in range(before):
            family.run_memory(need_mib, comes_back=True)
    failed.run_memory(once_mib, comes_back=True)
    for family in (failed, spared):
        for _ in range(policy.recent_jobs):
            family.run_memory(need_mib, comes_back=True)
    assert failed.grants_mib(need_mib) == spared.grants_mib(need_mib)


@settings(max_examples=EXAMPLES)
@given(POLICIES, st.integers(1, 200), st.integers(201, ASKED_MIB), st.booleans())
def test_a_family_that_has_grown_fails_at_most_a_few_times_among_its_remembered_jobs(
    policy: Policy, before_mib: int, need_mib: int, comes_back: bool
) -> None:
    family = Family(policy)
    for _ in range(policy.settings.min_evidence + 5):
        family.run_memory(before_mib, comes_back=True)
    for _ in range(policy.recent_jobs - 1):
        family.run_memory(need_mib, comes_back=comes_back)
    smallest = min(family.failed.values(), default=need_mib)
    most = 1 if comes_back else 1 + math.ceil(math.log(need_mib / smallest) / math.log(KILLED_BUMP))
    assert len(family.failed) <= most


@pytest.mark.parametrize("need_mib", [1000, 2048, 12_000])
@pytest.mark.parametrize(("before", "kills"), [(1, 1), (8, 1), (20, 2), (50, 2)])
def test_a_family_whose_need_slurm_does_not_measure_is_left_whole(
    before: int, kills: int, need_mib: int
) -> None:
    """At once, unless the first job had hardly more than was measured: then from the second on."""
    family = Family(Policy(limits_of(Config().policy), ChainSettings(), 100))
    for _ in range(before):
        family.end(ASKED, 200.0, 0.5)
    for _ in range(40):
        family.run_hidden(need_mib, 200.0)
    assert len(family.failed) <= kills
    sized = size(ASKED, family.predictor.predict(ASKED), family.policy.limits)
    assert sized.grant.mem_per_node_mib is None
    [memory] = [reason for reason in sized.reasons if reason.dimension == "memory"]
    assert memory.reason == UNTOLD["unseen"]


@settings(max_examples=EXAMPLES)
@given(POLICIES, st.lists(st.floats(0.1, ASKED_CPUS), min_size=1, max_size=60))
def test_cpus_are_above_those_that_ran_out_of_time_and_at_most_the_request(
    policy: Policy, needs: list[float]
) -> None:
    family = Family(policy)
    for need in needs:
        least = math.ceil(min(ASKED_CPUS, KILLED_BUMP * family.remembered))
        assert least <= family.run_cores(need) <= ASKED_CPUS


@pytest.mark.parametrize(("waits", "comes_back"), [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize(("before", "need"), [(3, 16), (20, 4), (50, 2)])
@pytest.mark.parametrize("most_slowdown", [0.0, 0.2])
def test_a_family_that_cannot_go_on_with_fewer_cpus_keeps_them(
    most_slowdown: float, before: int, need: int, waits: bool, comes_back: bool
) -> None:
    """One of its jobs is stopped; if it does not come back, the jobs before it are the evidence."""
    chain = ChainSettings(most_slowdown=most_slowdown)
    family = Family(Policy(limits_of(Config().policy), chain, 100))
    for _ in range(before):
        family.end(ASKED, 100.0, 0.5)
    for _ in range(40):
        family.run_steps(need, waits=waits, comes_back=comes_back)
    assert list(family.failed.values()) == [1]
    assert family.sized().cpus_per_task == ASKED_CPUS


def test_a_family_that_hangs_now_and_then_is_still_cut() -> None:
    """Ten jobs that ended well with as few CPUs show that CPUs were not the cause."""
    family = Family(Policy(limits_of(Config().policy), ChainSettings(), 100))
    for _ in range(20):
        family.end(ASKED, 100.0, 0.5)
    for _ in range(10):
        family.run_steps(1, waits=True)
    for _ in range(3):
        family.end(family.sized(), 100.0, 0.01, late=True)
        for _ in range(15):
            family.run_steps(1, waits=True)
        assert family.sized().cpus_per_task == 1


def test_jobs_that_always_run_until_their_limit_are_still_cut() -> None:
    family = Family(Policy(limits_of(Config().policy), ChainSettings(), 50))
    whole = family.sized()
    for _ in range(20):
        family.end(whole, 100.0, 0.99, late=True)
    cut = family.sized()
    assert cut.cpus_per_task == 1
    for _ in range(20):
        family.end(cut, 100.0, 0.99, late=True)
    assert family.sized().cpus_per_task == 1
