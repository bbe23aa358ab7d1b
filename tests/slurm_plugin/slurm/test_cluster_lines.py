"""scontrol's output about nodes, partitions, reservations and configuration, as each release prints it."""

import math

import pytest

from slurm_plugin.policy.facts import MemoryTerms
from slurm_plugin.slurm import cluster_lines
from slurm_plugin.slurm.hostlist import expand_nodes
from slurm_plugin.slurm.nodes import parse_nodes
from tests.slurm_plugin.slurm.captured import Captured


def test_nodes_partitions_and_reservations_are_read(captured: Captured) -> None:
    first, second = cluster_lines.parse_node_states(captured.text("nodes"))
    assert (first.cpus, first.mem_mib, first.gpus, first.away) == (16, 64_000, 4, False)
    assert set(first.partitions) == {"main", "side", "shut"}
    assert second.partitions == ("main",)
    partitions = {one.name: one for one in cluster_lines.parse_partition_states(captured.text("partitions"))}
    assert (partitions["main"].tier, partitions["side"].tier) == (1, 3)
    assert [name for name, one in partitions.items() if not one.up] == ["shut"]
    (talk,) = cluster_lines.parse_reservations(captured.text("reservations"))
    assert (talk.name, talk.nodes, talk.users, talk.accounts) == ("talk", (first.name,), ("root",), ())
    assert talk.end_s - talk.start_s == 3600


def test_the_reason_of_an_admin_is_not_taken_for_a_state_or_a_partition() -> None:
    line = (
        "NodeName=n1 CPUTot=16 RealMemory=64000 State=IDLE+DRAIN Partitions=main CfgTRES=cpu=16,mem=64000M "
        "Comment=was RealMemory=1 Reason=set State=FUTURE, then Partitions=side [root@2026-01-01T00:00:00]"
    )
    (node,) = cluster_lines.parse_node_states(line)
    assert (node.partitions, node.mem_mib, node.away) == (("main",), 64_000, True)
    assert parse_nodes(line, "main").away == 1


@pytest.mark.parametrize(
    ("words", "held"),
    [
        ("Gres=gpu:4 CfgTRES=cpu=16,mem=64000M,gres/gpu=4 AllocTRES=cpu=2,mem=2G,gres/gpu=3", (2, 2048, 3)),
        ("Gres=gpu:4 CfgTRES=cpu=16,mem=64000M,gres/gpu=4 AllocTRES=", (0, 0, 0)),
        ("Gres=(null) CfgTRES=cpu=16,mem=64000M AllocTRES=cpu=2", (2, 0, 0)),
        ("Gres=gpu:4 CfgTRES=cpu=16,mem=64000M AllocTRES=cpu=2,mem=2G", None),
        ("Gres=gpu:h100:2,gpu:a100:2 CfgTRES=cpu=16,gres/gpu:a100=2 AllocTRES=cpu=2,gres/gpu:a100=1", None),
    ],
)
def test_what_jobs_hold_of_a_node_is_known_if_slurm_counts_all_its_gpus(
    words: str, held: tuple[int, int, int] | None
) -> None:
    (node,) = cluster_lines.parse_node_states(f"NodeName=n1 CPUTot=16 RealMemory=64000 State=MIXED {words}")
    assert node.held == held


@pytest.mark.parametrize(
    ("shape", "of_core", "of_socket"),
    [
        ("CoresPerSocket=16 CPUTot=64 Sockets=2 ThreadsPerCore=2", 2, 32),
        # If CPUs= in slurm.conf counts cores, Slurm does not allocate threads.
        ("CoresPerSocket=16 CPUTot=32 Sockets=2 ThreadsPerCore=2", 1, 16),
        ("CPUTot=16", 1, 1),
        ("CoresPerSocket=0 CPUTot=0 Sockets=0", 1, 1),
    ],
)
def test_how_many_cpus_a_core_and_a_socket_have(shape: str, of_core: int, of_socket: int) -> None:
    (node,) = cluster_lines.parse_node_states(f"NodeName=n1 {shape} RealMemory=64000 State=IDLE")
    assert (node.cpus_per_core, node.cpus_per_socket) == (of_core, of_socket)


def test_which_partitions_give_whole_sockets() -> None:
    text = (
        "PartitionName=a SelectTypeParameters=NONE\nPartitionName=b SelectTypeParameters=CR_SOCKET_MEMORY\n"
    )
    for cluster, whole in (("CR_CORE_MEMORY", [False, True]), ("CR_SOCKET", [True, True])):
        found = cluster_lines.parse_partition_states(text, cluster)
        assert [one.whole_sockets for one in found] == whole


def test_which_jobs_a_partition_accepts_and_how_much_it_gives() -> None:
    shut, wide = cluster_lines.parse_partition_states(
        "PartitionName=shut AllowGroups=staff,root AllowAccounts=physics,chem AllowQos=Long,normal MaxNodes=4 "
        "MaxCPUsPerNode=6 MaxCPUsPerSocket=3\n"
        "PartitionName=wide AllowGroups=ALL DenyAccounts=guests DenyQos=low MaxNodes=UNLIMITED "
        "MaxCPUsPerNode=UNLIMITED\n"
    )
    assert (shut.groups, shut.accounts, shut.all_qos) == (
        ("staff", "root"), ("physics", "chem"), ("long", "normal"),
    )  # fmt: skip
    assert (shut.most_nodes, shut.most_cpus_per_node, shut.most_cpus_per_socket) == (4, 6, 3)
    assert (wide.groups, wide.accounts, wide.denied_accounts, wide.denied_qos) == (
        (), (), ("guests",), ("low",),
    )  # fmt: skip
    assert (wide.most_nodes, wide.most_cpus_per_node, wide.most_cpus_per_socket) == (math.inf, None, None)


@pytest.mark.parametrize(("cluster", "over_s"), [("0 min", 0.0), ("5 min", 300.0), ("UNLIMITED", math.inf)])
def test_how_long_jobs_may_run_beyond_their_limits(cluster: str, over_s: float) -> None:
    assert cluster_lines.parse_terms(f"OverTimeLimit           = {cluster}\n").over_limit_s == over_s
    lines = (f"PartitionName=p OverTimeLimit={own}" for own in ("NONE", "0", "UNLIMITED"))
    found = cluster_lines.parse_partition_states("\n".join(lines))
    assert [one.over_limit_s for one in found] == [None, 0.0, math.inf]


def test_what_jobs_get_that_ask_for_no_limit_or_no_memory() -> None:
    lines = (
        "PartitionName=own DefaultTime=00:02:00 MaxTime=1-00:00:00 DefMemPerNode=77 MaxMemPerCPU=200\n"
        "PartitionName=none DefaultTime=NONE MaxTime=UNLIMITED DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
        "PartitionName=ever DefaultTime=UNLIMITED MaxTime=UNLIMITED"
    )
    own, none, ever = cluster_lines.parse_partition_states(
        lines, memory=MemoryTerms(default_per_cpu_mib=1000)
    )
    assert (own.default_s, none.default_s, ever.default_s) == (120.0, None, math.inf)
    assert own.memory == MemoryTerms(default_per_node_mib=77, max_per_cpu_mib=200)
    assert none.memory == ever.memory == MemoryTerms(default_per_cpu_mib=1000)


def test_a_draining_partition_still_starts_the_jobs_that_it_has() -> None:
    line = "PartitionName={} PriorityTier=1 State={} MaxTime={}"
    states = (("UP", "UNLIMITED"), ("DRAIN", "1-00:00:00"), ("DOWN", "UNLIMITED"), ("INACTIVE", "UNLIMITED"))
    text = "\n".join(line.format(state.lower(), state, longest) for state, longest in states)
    found = cluster_lines.parse_partition_states(text)
    assert [one.name for one in found if one.up] == ["up", "drain"]
    assert cluster_lines.parse_closed_partitions(text) == {"drain", "inactive"}
    assert [one.longest_s for one in found[:2]] == [math.inf, 86_400.0]


def test_a_reservation_says_how_much_of_its_nodes_it_holds() -> None:
    (part,) = cluster_lines.parse_reservations(
        "ReservationName=course StartTime=1795330843 EndTime=1795334443 Duration=01:00:00 Nodes=n[1-2] NodeCnt=2 "
        "CoreCnt=4 Features=(null) PartitionName=main Flags=SPEC_NODES TRES=cpu=4,gres/gpu=2 Users=root State=ACTIVE"
    )
    assert (part.nodes, part.cpus, part.gpus, part.cores) == (("n1", "n2"), 4, 2, ())


def test_a_reservation_says_how_many_cores_of_each_node_it_holds() -> None:
    """22.05 and 24.11: `scontrol create reservation TRES=cpu=20` takes one node after the other."""
    (part,) = cluster_lines.parse_reservations(
        "ReservationName=cpt StartTime=1795330843 EndTime=1795334443 Nodes=n[1-2] NodeCnt=2 CoreCnt=20 Features=(null) "
        "PartitionName=main Flags=   NodeName=n1 CoreIDs=0-15   NodeName=n2 CoreIDs=0-2,8 TRES=cpu=20 Users=root"
    )
    assert (part.nodes, part.cpus, part.cores) == (("n1", "n2"), 20, (("n1", 16), ("n2", 4)))


def test_how_jobs_are_preempted() -> None:
    config = (
        "PreemptMode             = WITHIN,REQUEUE\nPreemptType             = preempt/qos\n"
        "PreemptExemptTime       = 00:01:30\n"
    )
    terms = cluster_lines.parse_terms(config)
    assert (terms.preempt_type, terms.preempt_mode, terms.preempt_exempt_s) == (
        "preempt/qos",
        "WITHIN,REQUEUE",
        90.0,
    )
    line = "PartitionName={} PreemptMode={} State=UP"
    lines = "\n".join(
        line.format(*words) for words in (("low", "REQUEUE"), ("high", "OFF"), ("gang", "GANG,SUSPEND"))
    )
    found = cluster_lines.parse_partition_states(lines)
    assert [one.preempt_mode for one in found] == ["REQUEUE", "", "GANG,SUSPEND"]


@pytest.mark.parametrize(
    ("enforced", "hold"),
    [
        ("associations,limits,qos", True),
        ("associations,limits,qos,safe", True),
        ("associations", False),
        ("none", False),
    ],
)
def test_whether_limits_are_enforced(enforced: str, hold: bool) -> None:
    assert cluster_lines.parse_terms(f"AccountingStorageEnforce = {enforced}\n").limits_hold is hold


def test_when_slurm_counts_run_minutes_again() -> None:
    # As scontrol of 22.05 and 26.05 prints it with SLURM_TIME_FORMAT=%s.
    found = cluster_lines.parse_terms(
        "BOOT_TIME               = 1795901312\nPriorityCalcPeriod      = 00:01:00\n"
    )
    assert (found.counts_from_s, found.counts_each_s) == (1795901312.0, 60.0)


@pytest.mark.parametrize(
    ("auth_info", "again_s"),
    [
        ("(null)", 120),
        ("socket=/run/munge", 120),
        ("socket=/run/munge,cred_expire=300", 300),
        ("cred_expire=x", 120),
    ],
)
def test_a_requeued_job_waits_until_its_credential_has_expired(auth_info: str, again_s: float) -> None:
    assert cluster_lines.parse_terms(f"AuthInfo = {auth_info}\n").again_s == again_s


@pytest.mark.parametrize(
    ("min_job_age", "forgets_s"),
    [("300 sec", 420), ("2 sec", 122), ("0 sec", 86_400), ("200000 sec", 86_400), ("(null)", 420)],
)
def test_when_slurmctld_has_forgotten_a_job_that_ended(min_job_age: str, forgets_s: float) -> None:
    assert cluster_lines.parse_terms(f"MinJobAge               = {min_job_age}\n").forgets_s == forgets_s


@pytest.mark.parametrize(("release", "does"), [("22.05.8", False), ("23.11.10", False), ("24.05.0", True)])
def test_which_releases_count_run_minutes_of_a_user(release: str, *, does: bool) -> None:
    assert cluster_lines.parse_terms(f"SLURM_VERSION           = {release}\n").counts_for_each is does


def test_how_many_licences_jobs_may_have() -> None:
    text = (
        "LicenseName=matlab Total=5 Used=2 Free=3 Reserved=1 Remote=no\n"
        # Of a server's licences 4 of 9 are ours, and others hold one of these too many.
        "LicenseName=ansys@db Total=4 Used=1 Free=2 Reserved=0 Remote=yes LastConsumed=6 LastDeficit=1 LastUpdate=0\n"
    )
    assert cluster_lines.parse_licences(text) == {"matlab": 4, "ansys@db": 3}
    assert cluster_lines.parse_licences("No licenses configured in Slurm.\n") == {}


def test_no_partition_has_a_preempt_mode_of_its_own_by_default(captured: Captured) -> None:
    assert not any(
        one.preempt_mode for one in cluster_lines.parse_partition_states(captured.text("partitions"))
    )


def test_the_scheduling_configuration_is_read(captured: Captured) -> None:
    terms = cluster_lines.parse_terms(captured.text("config"))
    assert (terms.priority_type, terms.scheduler_type) == ("priority/multifactor", "sched/backfill")
    assert "bf_continue" in terms.parameters
    assert (terms.weights["Age"], terms.weights["FairShare"], terms.site_factor_plugin) == (1000, 0, "")
    assert cluster_lines.parse_cluster_name(captured.text("config")).startswith("sandbox-")


@pytest.mark.parametrize(
    ("said", "counts"),
    [("CR_CORE_MEMORY", True), ("CR_CORE,CR_ONE_TASK_PER_CORE", False), ("CR_MEMORY", True), ("NONE", False)],
)
def test_whether_memory_is_allocated(said: str, *, counts: bool) -> None:
    assert cluster_lines.parse_terms(f"SelectTypeParameters    = {said}").memory_counts is counts
    assert cluster_lines.parse_terms("").memory_counts


def test_whether_cores_and_threads_are_allocated_together() -> None:
    found = [
        cluster_lines.parse_terms(f"SelectTypeParameters    = {said}")
        for said in ("CR_CORE_MEMORY,CR_ONE_TASK_PER_CORE", "CR_CPU_MEMORY,CR_LLN", "NONE")
    ]
    assert [one.one_task_per_core for one in found] == [True, False, False]
    assert [one.counts_threads for one in found] == [False, True, False]


def test_which_node_states_mean_that_a_node_is_unavailable() -> None:
    text = "".join(
        f"NodeName=n{number} CPUTot=4 RealMemory=8000 State={state} Partitions=main\n"
        for number, state in enumerate(
            (
                *("IDLE", "DOWN*", "MIXED+DRAIN", "IDLE+POWERED_DOWN", "FUTURE", "IDLE+PLANNED"),
                *("MIXED+NOT_RESPONDING+POWERING_UP", "IDLE+NOT_RESPONDING", "DOWN+POWERING_UP"),
                # Seen on 24.11: nodes that did not come up within ResumeTimeout, before and after `state=resume`.
                *("DOWN+CLOUD+POWERED_DOWN", "IDLE+CLOUD+POWERED_DOWN+NOT_RESPONDING", "IDLE+POWERING_DOWN"),
            )
        )
    )
    found = cluster_lines.parse_node_states(text)
    assert [(node.name, node.away) for node in found] == [
        ("n0", False), ("n1", True), ("n2", True), ("n3", False), ("n5", False),
        ("n6", False), ("n7", True), ("n8", True), ("n9", True), ("n10", False), ("n11", False),
    ]  # fmt: skip
    assert [node.name for node in found if node.asleep] == ["n3", "n9", "n10", "n11"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3],m", ("n1", "n2", "n3", "m")),
        ("n[08-10,20]", ("n08", "n09", "n10", "n20")),
        ("r[1-2]n[1-2]x", ("r1n1x", "r1n2x", "r2n1x", "r2n2x")),
        ("a-b-[1,3-4]", ("a-b-1", "a-b-3", "a-b-4")),
    ],
)
def test_host_lists_are_expanded(text: str, names: tuple[str, ...]) -> None:
    assert expand_nodes(text) == names
