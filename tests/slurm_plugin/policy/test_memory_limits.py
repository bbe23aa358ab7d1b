"""MaxMemPerCPU of the cluster or a partition: after the hook Slurm never makes more of a job than without it."""

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.request import Grant, JobRequest, granted
from slurm_plugin.config.settings import Config, Policy
from slurm_plugin.policy.facts import WHOLE_NODE_MIB, MemoryTerms, Partition, SiteFacts, strictest
from slurm_plugin.policy.memory_limits import counts_anew, kept_by_limits
from slurm_plugin.policy.sizing import CARRIES, size
from slurm_plugin.service.decide import decide, memory_comes_with_cpus, with_memory_terms
from slurm_plugin.slurm.limits import parse_config_terms, parse_partitions, select_parameters
from tests.builders import request, submission
from tests.slurm_plugin.policy.sized import limits, prediction

CONFIG = """\
Configuration data as of 2026-01-01T00:00:00
DefMemPerCPU            = 1000
JobDefaults             = DefCpuPerGPU=2,DefMemPerGPU=4000
MaxMemPerCPU            = 2000
SLURM_CONF              = /etc/slurm/slurm.conf
"""
PARTITIONS = """\
PartitionName=main AllowQos=ALL Default=YES QoS=N/A JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
PartitionName=own Default=NO QoS=low JobDefaults=DefMemPerGPU=9000 DefMemPerCPU=500 MaxMemPerCPU=3000 TRES=cpu=4
PartitionName=node Default=NO QoS=N/A JobDefaults=(null) DefMemPerNode=6000 MaxMemPerNode=64000
"""


def facts_of(config: str = CONFIG, partitions: str = PARTITIONS) -> SiteFacts:
    cluster = parse_config_terms(config)
    return SiteFacts(
        memory=cluster, partitions=parse_partitions(partitions, cluster, select_parameters(config))
    )


def test_memory_terms_are_read_from_the_cluster_and_its_partitions() -> None:
    facts = facts_of()
    cluster = MemoryTerms(
        max_per_cpu_mib=2000, default_per_cpu_mib=1000, default_per_gpu_mib=4000, default_cpus_per_gpu=2
    )
    assert facts.memory == cluster
    assert facts.partitions["main"] == Partition(memory=cluster, is_default=True)
    assert facts.partitions["own"].qos == "low"
    assert facts.partitions["own"].memory == MemoryTerms(
        max_per_cpu_mib=3000, default_per_cpu_mib=500, default_per_gpu_mib=9000, default_cpus_per_gpu=2
    )
    assert facts.partitions["node"].memory == msgspec.structs.replace(
        cluster, default_per_cpu_mib=0, default_per_node_mib=6000, max_per_node_mib=64000
    )


@pytest.mark.parametrize(
    ("partition", "max_mib", "per_cpu_mib", "per_node_mib"),
    [
        ("", 2000, 1000, 0),
        ("own", 3000, 500, 0),
        ("own,main", 2000, 500, 0),
        ("own,node", 2000, 500, 6000),
        ("one_that_is_new", 2000, 1000, 0),
    ],
)
def test_the_strictest_of_the_partitions_holds(
    partition: str, max_mib: int, per_cpu_mib: int, per_node_mib: int
) -> None:
    terms = facts_of().memory_for(JobRequest(user="alice", partition=partition))
    assert terms is not None
    assert (terms.max_per_cpu_mib, terms.default_per_cpu_mib) == (max_mib, per_cpu_mib)
    assert terms.default_per_node_mib == per_node_mib


def test_without_slurm_no_terms_are_known_and_a_limit_without_a_default_counts_the_whole_node() -> None:
    assert SiteFacts().memory_for(JobRequest(user="alice")) is None
    terms = facts_of("MaxMemPerCPU = 2000\nDefMemPerNode = UNLIMITED\n", "").memory_for(
        JobRequest(user="alice")
    )
    assert terms is not None
    assert terms.default_per_node_mib == WHOLE_NODE_MIB
    assert facts_of("MaxMemPerNode = UNLIMITED\n", "").memory_for(JobRequest(user="alice")) == MemoryTerms()


@pytest.mark.parametrize("partition", ["plain", "plain,own", "own,plain", "plain,node"])
def test_a_default_of_another_partition_does_not_let_cpus_be_cut_if_one_has_none(partition: str) -> None:
    plain = "PartitionName=plain Default=NO QoS=N/A DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
    facts = facts_of("MaxMemPerCPU = 2000\nDefMemPerNode = UNLIMITED\n", PARTITIONS + plain)
    asked = request(partition=partition, cpus_per_task=8)
    terms = facts.memory_for(asked)
    assert terms is not None
    site = with_memory_terms(limits(), terms, known=True)
    assert not size(asked, prediction(memory=400.0, cores=0.5), site).grant


@pytest.mark.parametrize(
    ("partition", "site", "comes"),
    [("", {}, True), ("own", {}, True), ("node", {}, False), ("node", {"def_mem_per_cpu_mib": 500}, True)],
)
def test_slurm_and_the_site_say_whether_memory_comes_with_cpus(
    partition: str, site: dict[str, int], comes: bool
) -> None:
    facts, asked = facts_of(), request(partition=partition)
    config = Config(policy=msgspec.structs.replace(Policy(), **site))
    assert memory_comes_with_cpus(asked, config, facts) is comes
    uncounted = facts_of(CONFIG + "SelectTypeParameters = CR_CORE\n")
    assert not memory_comes_with_cpus(asked, config, uncounted)
    assert memory_comes_with_cpus(asked, config, SiteFacts()) is bool(site), "Slurm was not asked"


def test_gpus_that_bring_memory_or_cpus_in_one_of_the_partitions_are_kept() -> None:
    plain, brings = MemoryTerms(), MemoryTerms(default_per_gpu_mib=4000, default_cpus_per_gpu=2)
    for terms in (strictest([plain, brings]), strictest([brings, plain])):
        assert (terms.default_per_gpu_mib, terms.default_cpus_per_gpu) == (4000, 2)


@pytest.mark.parametrize(
    ("own_mib", "slurms_mib", "used_mib"),
    [(None, 1000, 1000), (None, 0, 0), (0, 1000, 1000), (4000, 1000, 1000), (500, 1000, 500), (500, 0, 500)],
)
def test_the_smaller_default_per_cpu_holds(own_mib: int | None, slurms_mib: int, used_mib: int) -> None:
    own, terms = limits(def_mem_per_cpu_mib=own_mib), MemoryTerms(default_per_cpu_mib=slurms_mib)
    assert with_memory_terms(own, terms, known=True).def_mem_per_cpu_mib == used_mib
    assert with_memory_terms(own, MemoryTerms(), known=False).def_mem_per_cpu_mib == own_mib


@pytest.mark.parametrize(
    ("asked", "grant"),
    [
        # The memory stays, as it is needed, and so do the CPUs that carry it.
        ({"cpus_per_task": 8, "mem_per_node_mib": 16000}, Grant()),
        ({"cpus_per_task": 16, "mem_per_node_mib": 16000}, Grant(cpus_per_task=8)),
        ({"cpus_per_task": 16, "mem_per_node_mib": 64000}, Grant(cpus_per_task=8, mem_per_node_mib=15008)),
        # To Slurm a share above the limit means several CPUs.
        ({"cpus_per_task": 8, "mem_per_cpu_mib": 4000}, Grant(mem_per_cpu_mib=1876)),
        ({"cpus_per_task": 10, "mem_per_cpu_mib": 4000}, Grant(cpus_per_task=8, mem_per_cpu_mib=1876)),
    ],
)
def test_cpus_are_cut_as_far_as_they_carry_the_memory(asked: dict[str, int], grant: Grant) -> None:
    site = limits(max_mem_per_cpu_mib=2000)
    assert size(request(**asked), prediction(memory=15000.0, cores=0.5), site).grant == grant


def test_the_reason_says_that_memory_keeps_the_cpus() -> None:
    asked = request(cpus_per_task=8, mem_per_node_mib=16000)
    sized = size(asked, prediction(memory=15900.0, cores=0.5), limits(max_mem_per_cpu_mib=2000))
    assert sized.reasons[1].reason == CARRIES


def test_the_cpus_carry_default_memory_per_node_too() -> None:
    site = limits(max_mem_per_cpu_mib=2000, def_mem_per_node_mib=6000)
    assert size(request(cpus_per_task=8), prediction(cores=0.5), site).grant == Grant(cpus_per_task=3)
    whole = limits(max_mem_per_cpu_mib=2000, def_mem_per_node_mib=WHOLE_NODE_MIB)
    assert not size(request(cpus_per_task=8), prediction(cores=0.5), whole).grant
    by_cpu = request(cpus_per_task=8, mem_per_cpu_mib=1000)
    grant = size(by_cpu, prediction(memory=900.0, cores=0.5), site).grant
    assert grant == Grant(cpus_per_task=1), "it asked for memory: the default is not its own"


def test_a_cpu_brings_its_own_share_if_that_is_below_the_limit() -> None:
    site = limits(max_mem_per_cpu_mib=2000, def_mem_per_cpu_mib=500)
    needs = prediction(memory=2900.0, cores=0.5)
    assert size(request(cpus_per_task=8), needs, site).grant == Grant(cpus_per_task=6)
    high = limits(max_mem_per_cpu_mib=2000, def_mem_per_cpu_mib=4000)
    assert size(request(cpus_per_task=8), needs, high).grant == Grant(cpus_per_task=2)


def test_gpus_that_bring_memory_or_cpus_by_default_are_kept() -> None:
    terms = MemoryTerms(default_per_gpu_mib=4000, default_cpus_per_gpu=2)
    assert kept_by_limits(request(cpus_per_task=None, gpus_per_node=4), terms, 1) == {"gpus": "DefCpuPerGPU"}
    assert kept_by_limits(request(cpus_per_task=2, gpus_per_node=4), terms, 1) == {"gpus": "DefMemPerGPU"}
    assert kept_by_limits(request(cpus_per_task=2, gpus_per_node=4, mem_per_node_mib=9), terms, 1) == {}
    assert kept_by_limits(request(cpus_per_task=None, gpus_per_node=4), MemoryTerms(), 1) == {}


@pytest.mark.parametrize(
    ("asked", "threads", "kept"),
    [
        # With 8000 MiB it is one task of 4 CPUs; with less, two tasks of one (24.11 and later).
        ({"cpus_per_task": 1, "mem_per_node_mib": 8000}, 2, True),
        ({"cpus_per_task": 1, "mem_per_cpu_mib": 8000}, 2, True),
        ({"cpus_per_task": 2, "mem_per_node_mib": 8000}, 4, True),
        ({"cpus_per_task": 2, "mem_per_node_mib": 8000}, 2, False),
        ({"cpus_per_task": 1, "mem_per_node_mib": 8000}, 1, False),
        ({"cpus_per_task": 1, "mem_per_node_mib": 2000}, 2, False),
        ({"cpus_per_task": None, "mem_per_node_mib": 8000}, 2, False),
        ({"cpus_per_task": 2, "mem_per_node_mib": 4000}, 4, False),
        ({"cpus_per_task": 1, "mem_per_node_mib": 8000, "num_tasks": 2}, 2, False),
    ],
)
def test_memory_stays_if_less_would_start_more_tasks(
    asked: dict[str, Any], threads: int, *, kept: bool
) -> None:
    found = kept_by_limits(request(**asked), MemoryTerms(max_per_cpu_mib=2000), threads)
    assert found == ({"memory": "MaxMemPerCPU"} if kept else {})
    assert kept_by_limits(request(**asked), MemoryTerms(), threads) == {}


@pytest.mark.parametrize(
    ("asked", "threads", "kept"),
    [
        ({"cpus_per_task": 1, "mem_per_node_mib": 4000, "num_tasks": 4}, 2, True),
        ({"cpus_per_task": 1, "mem_per_cpu_mib": 4000, "num_tasks": 4}, 2, True),
        ({"cpus_per_task": 1, "mem_per_node_mib": 2000, "num_tasks": 4}, 2, False),
        ({"cpus_per_task": 1, "mem_per_node_mib": 4000, "num_tasks": 4}, 1, False),
        ({"cpus_per_task": None, "mem_per_node_mib": 4000, "num_tasks": 4}, 2, False),
    ],
)
def test_memory_stays_if_slurm_starts_tasks_that_share_cpus_only_with_more_of_them(
    asked: dict[str, Any], threads: int, *, kept: bool
) -> None:
    """On 24.11, `-n 4 -c 1 --overcommit` waits for ever on cores of two threads, unless its memory raises its CPUs."""
    terms = MemoryTerms(max_per_cpu_mib=2000)
    found = kept_by_limits(request(**asked), terms, threads, overcommits=True)
    assert found == ({"memory": "MaxMemPerCPU"} if kept else {})
    assert kept_by_limits(request(**asked), terms, threads) == {}


def test_overcommit_keeps_memory_where_it_raises_cpus() -> None:
    facts = SiteFacts(
        memory=MemoryTerms(max_per_cpu_mib=2000),
        partitions={"main": Partition(is_default=True, memory=MemoryTerms(max_per_cpu_mib=2000))},
        cpus_per_core={"main": 2},
    )
    for other, keeps in (("min_cpus", True), ("ntasks_per_core", False)):
        asked = submission(num_tasks=4, cpus_per_task=1, mem_per_node_mib=4000, other=(other,))
        decision = decide(asked, None, Config(), "d", 0.0, facts).decision
        assert (decision.reason == f"form-not-handled:MaxMemPerCPU+{other}") == keeps


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("SelectTypeParameters    = CR_CORE_MEMORY", {}),
        ("SelectTypeParameters    = CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK", {}),
        ("SelectTypeParameters    = CR_CORE", {"memory": "SelectTypeParameters"}),
        ("SelectTypeParameters    = NONE", {"memory": "SelectTypeParameters"}),
        ("SchedulerType           = sched/backfill", {}),
        ("VSizeFactor             = 0 percent", {}),
        ("VSizeFactor             = 110 percent", {"memory": "VSizeFactor"}),
    ],
)
def test_memory_that_is_not_allocated_or_limits_address_space_is_kept(
    said: str, kept: dict[str, str]
) -> None:
    facts = facts_of(f"{CONFIG}{said}\n")
    for partition in ("main", "node,own", "unknown"):
        terms = facts.memory_for(request(partition=partition))
        assert terms
        assert kept_by_limits(request(cpus_per_task=2, mem_per_node_mib=900), terms, 1) == kept


@pytest.mark.parametrize(
    ("said", "granted_mib"),
    [
        ("ConstrainRAMSpace       = yes\nAllowedRAMSpace         = 50.0%", 896),
        ("ConstrainRAMSpace       = yes\nAllowedRAMSpace         = 98.5%", 480),
        ("ConstrainRAMSpace       = yes\nAllowedRAMSpace         = 100.0%", 448),
        ("ConstrainRAMSpace       = yes\nAllowedRAMSpace         = 150.0%", 448),
        ("ConstrainRAMSpace       = no\nAllowedRAMSpace         = 50.0%", 448),
    ],
)
def test_a_job_is_granted_more_where_slurm_limits_it_to_less_than_it_has(said: str, granted_mib: int) -> None:
    """With AllowedRAMSpace=50, a job of 280 MiB with a grant of 320 was killed at 160 (22.05)."""
    facts = facts_of(f"{CONFIG}{said}\n")
    asked = request(cpus_per_task=1, mem_per_node_mib=1600)
    for partition in ("main", "node,own", "unknown"):
        terms = facts.memory_for(request(partition=partition))
        assert terms
        bounds = with_memory_terms(limits(), terms, known=True)
        assert size(asked, prediction(memory=448.0), bounds).grant == Grant(mem_per_node_mib=granted_mib)


@dataclass(frozen=True)
class Given:
    """What slurmctld makes of a job: CPUs per task, total CPUs, total MiB on one node."""

    cpus_per_task: int
    cpus: int
    mem_mib: int


def slurm_gives(asked: JobRequest, limit_mib: int) -> Given:
    """Compute like Slurm (`_valid_pn_min_mem` of 24.11 and later) what a job on one node gets."""
    each, tasks = asked.cpus_per_task or 1, asked.num_tasks
    if asked.mem_per_cpu_mib is not None:
        times = math.ceil(asked.mem_per_cpu_mib / limit_mib)
        cpus = each * times * tasks
        return Given(each * times, cpus, cpus * math.ceil(asked.mem_per_cpu_mib / times))
    assert asked.mem_per_node_mib is not None
    needed = math.ceil(asked.mem_per_node_mib / limit_mib)
    if needed <= each:
        return Given(each, each * tasks, asked.mem_per_node_mib)
    anew = math.ceil(needed / tasks)
    return Given(anew, anew * tasks, asked.mem_per_node_mib)


@st.composite
def asks(draw: st.DrawFn) -> JobRequest:
    kind = draw(st.sampled_from(["mem_per_node_mib", "mem_per_cpu_mib"]))
    return request(
        num_tasks=draw(st.integers(1, 16)),
        cpus_per_task=draw(st.none() | st.integers(1, 64)),
        **{kind: draw(st.integers(1, 60000))},
    )


PREDICTIONS = st.builds(
    prediction, memory=st.none() | st.floats(0, 50000), cores=st.none() | st.floats(0, 70)
)


@given(asks(), PREDICTIONS, st.integers(1, 8000), st.floats(0, 1), st.integers(1, 4))
def test_slurm_never_gives_more_than_without_us(
    asked: JobRequest, predicted: Any, limit_mib: int, least_share: float, cpus_step: int
) -> None:
    terms = MemoryTerms(max_per_cpu_mib=limit_mib)
    site = limits(max_mem_per_cpu_mib=limit_mib, least_share=least_share, cpus_step=cpus_step)
    grant = size(asked, predicted, site, kept_by_limits(asked, terms, cpus_step)).grant
    after = granted(asked, grant)
    before, now = slurm_gives(asked, limit_mib), slurm_gives(after, limit_mib)
    assert now.cpus <= before.cpus
    assert now.mem_mib <= before.mem_mib
    if predicted.cores is not None and cpus_step == 1:
        # Nor fewer CPUs than it keeps busy, of those that it would have.
        assert now.cpus >= min(before.cpus, math.ceil(predicted.cores.upper - 1e-6) * asked.num_tasks)
    if grant.cpus_per_task is not None and asked.mem_per_node_mib is not None:
        # Slurm leaves such a job as it was granted: its environment stays consistent.
        assert now.cpus_per_task == grant.cpus_per_task


def test_a_job_whose_tasks_slurm_recounts_is_recognised() -> None:
    assert counts_anew(request(num_tasks=4, cpus_per_task=8, mem_per_node_mib=20000), 2000)
    assert counts_anew(request(num_tasks=2, cpus_per_task=8, mem_per_node_mib=16001), 2000)
    assert not counts_anew(request(num_tasks=2, cpus_per_task=8, mem_per_node_mib=16000), 2000)
    assert counts_anew(request(num_tasks=2, cpus_per_task=8, mem_per_node_mib=20000), 2000)
    assert not counts_anew(request(num_tasks=2, nodes=2, cpus_per_task=8, mem_per_node_mib=20000), 2000)
    assert not counts_anew(request(num_tasks=16, cpus_per_task=1, mem_per_node_mib=32000), 2000)
    assert not counts_anew(request(num_tasks=4, cpus_per_task=None, mem_per_node_mib=6000), 2000)
    assert not counts_anew(request(num_tasks=1, cpus_per_task=8, mem_per_node_mib=20000), 2000)
    assert not counts_anew(request(num_tasks=4, cpus_per_task=8, mem_per_node_mib=20000), 0)


def test_a_job_whose_tasks_slurm_recounts_keeps_its_memory_and_cpus() -> None:
    asked, terms = (
        request(num_tasks=4, cpus_per_task=8, mem_per_node_mib=20000),
        MemoryTerms(max_per_cpu_mib=2000),
    )
    kept = kept_by_limits(asked, terms, 1)
    assert kept == {"memory": "MaxMemPerCPU", "cores": "MaxMemPerCPU"}
    predicted, site = prediction(memory=9000.0, cores=6.5), limits(max_mem_per_cpu_mib=2000)
    more = granted(asked, size(asked, predicted, site).grant)
    assert slurm_gives(more, 2000).cpus > slurm_gives(asked, 2000).cpus, "what it would get otherwise"
    assert not size(asked, predicted, site, kept).grant
