"""What the minimum and the maximum of a QOS mean for a submission."""

from typing import Any

import pytest

from accounting.decisions.decision import Fixed
from accounting.request import JobRequest
from slurm_plugin.config.settings import Config, Rule
from slurm_plugin.policy.facts import MemoryTerms, Minimum, SiteFacts
from slurm_plugin.policy.forms import ALL, kept_by_form
from slurm_plugin.policy.rules import fits, limits_of
from slurm_plugin.policy.submission import job_request
from slurm_plugin.service.decide import with_floors
from slurm_plugin.slurm.account_maximums import parse_account_maximums
from slurm_plugin.slurm.given_qos import parse_given_qos
from slurm_plugin.slurm.limits import (
    parse_partitions,
    parse_qos,
    parse_qos_maximums,
)
from tests.builders import submission

ASSOCIATIONS = """\
here|root|||normal|
here|root|root||normal|
here|demo|alice||large,normal|
here|only|bob||large|
here|demo|bob||large,normal|
here|ours|carol||large,normal|
here|ours|carol|main|large,normal|large
here|ours|dave||large,normal|large
there|only|alice||large|
"""


@pytest.mark.parametrize(
    ("least", "gpus"),
    [("gres/gpu:a100=2", 2), ("gres/gpu=1,gres/gpu:a100=4", 4), ("gres/gpu=3,gres/gpu:a100=2", 3)],
)
def test_the_minimum_of_a_gpu_type_holds_for_gpus_of_any_type(least: str, gpus: int) -> None:
    """Below that minimum Slurm lets a job wait for ever (QOSMinGRES), and the job's GPU type is not known here."""
    assert parse_qos(f"large|{least}\n") == {"large": Minimum(gpus=gpus)}


def test_the_qos_of_the_job_and_of_the_partition_set_the_minimum() -> None:
    facts = SiteFacts(
        qos_minimums=parse_qos("normal|\nlarge|cpu=4,mem=2G\ngpu|gres/gpu=2,cpu=1\n"),
        partitions=parse_partitions(
            "PartitionName=a AllowQos=ALL Default=YES QoS=gpu x=1\nPartitionName=b Default=NO QoS=N/A\n",
            MemoryTerms(),
            None,
        ),
    )
    assert facts.minimum_for(JobRequest(user="alice", qos="normal", partition="b")) == Minimum()
    assert facts.minimum_for(JobRequest(user="alice")) == Minimum(cpus=1, gpus=2)
    assert facts.minimum_for(JobRequest(user="alice", qos="large", partition="b,a")) == Minimum(
        cpus=4, gpus=2, mem_mib=2048
    )


def test_a_minimum_of_billing_keeps_the_whole_request() -> None:
    """Slurm held a cut job that it would have started with its original request: QOSMinBilling (22.05 to 26.05)."""
    facts = SiteFacts(
        qos_minimums=parse_qos("normal|\nbilled|billing=6\n"),
        partitions=parse_partitions(
            "PartitionName=a Default=YES QoS=N/A\nPartitionName=b QoS=billed\n", MemoryTerms(), None
        ),
    )
    assert facts.forms_of(JobRequest(user="alice", qos="normal")) == ()
    assert facts.forms_of(JobRequest(user="alice", qos="billed")) == ("min_billing",)
    assert facts.forms_of(JobRequest(user="alice", partition="a,b")) == ("min_billing",)
    assert set(kept_by_form(["min_billing"])) == ALL


def test_a_minimum_that_is_a_share_of_the_cluster_keeps_the_whole_request() -> None:
    """With MinTRES=cpu=25,mem=25 of 32 CPUs and 128000 MiB, `-c 10 --mem=40000` waited with 256 MiB (24.11)."""
    facts = SiteFacts(
        qos_minimums=parse_qos("normal||Relative\nshare|cpu=25,mem=25M|Relative\namount|cpu=2|DenyOnLimit\n"),
        partitions=parse_partitions(
            "PartitionName=a Default=YES QoS=N/A\nPartitionName=b QoS=share\n", MemoryTerms(), None
        ),
    )
    assert facts.forms_of(JobRequest(user="alice", qos="normal")) == ()
    assert facts.forms_of(JobRequest(user="alice", qos="amount")) == ()
    assert facts.forms_of(JobRequest(user="alice", qos="share")) == ("min_share",)
    assert facts.forms_of(JobRequest(user="alice", partition="a,b")) == ("min_share",)
    assert set(kept_by_form(["min_share"])) == ALL


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({"qos": "Debug", "cpus_per_task": 5}, True),
        ({"qos": "debug", "cpus_per_task": 4, "mem_per_node_mib": 8000}, False),
        ({"qos": "debug", "num_tasks": 5}, True),
        ({"qos": "debug", "mem_per_node_mib": 8193}, True),
        ({"qos": "debug", "gpus_per_job": 2}, True),
        # Such a job waits until there is room, or is one of several that it may have.
        ({"qos": "waits", "cpus_per_task": 5}, False),
        ({"qos": "debug,normal", "cpus_per_task": 5}, False),
        ({"qos": "normal", "partition": "b", "cpus_per_task": 5}, True),
        ({"qos": "normal", "partition": "a,b", "cpus_per_task": 5}, False),
    ],
)
def test_a_request_above_the_maximum_of_a_qos_is_left_so_that_slurm_refuses_it(
    asked: dict[str, Any], refused: bool
) -> None:
    text = "normal||||||\ndebug||DenyOnLimit|cpu=9,mem=8G|cpu=4|gres/gpu=1|\nwaits|||cpu=4|||\n"
    assert parse_qos(text) == {}
    facts = SiteFacts(
        qos_maximums=parse_qos_maximums(text),
        partitions=parse_partitions(
            "PartitionName=a Default=YES QoS=N/A\nPartitionName=b QoS=debug\n", MemoryTerms(), None
        ),
        most_gpus={"a": 4, "b": 4},
    )
    forms = facts.forms_of(JobRequest(user="alice", **asked))
    assert forms == (("qos_maximum",) if refused else ())


@pytest.mark.parametrize(
    ("line", "asked", "refused"),
    [
        # MaxTRESPerNode: Slurm shares out by the nodes that are asked for, not by those that tasks need (22.05).
        ("|||||cpu=4", {"cpus_per_task": 5}, True),
        ("|||||cpu=4", {"num_tasks": 2, "cpus_per_task": 4}, True),
        ("|||||cpu=4", {"num_tasks": 2, "cpus_per_task": 4, "nodes": 2}, False),
        ("|||||cpu=4", {"num_tasks": 9, "nodes": 2}, False),
        ("|||||cpu=4", {"num_tasks": 10, "nodes": 2}, True),
        ("|||||mem=4000M", {"mem_per_node_mib": 8000}, True),
        # MaxTRESMins, GrpTRESRunMins, MaxTRESRunMinsPU, each times the minutes of the limit.
        ("||||||cpu=20", {"cpus_per_task": 8, "wall_s": 180}, True),
        ("||||||cpu=24", {"cpus_per_task": 8, "wall_s": 180}, False),
        ("||||||cpu=20", {"cpus_per_task": 8}, False),
        ("||||||||mem=20000M", {"mem_per_node_mib": 8000, "wall_s": 180}, True),
        ("|||||||||cpu=20", {"cpus_per_task": 8, "wall_s": 180}, True),
    ],
)
def test_maximums_of_a_node_and_of_minutes_are_maximums_too(
    line: str, asked: dict[str, Any], refused: bool
) -> None:
    """Such jobs were let in with less; brought back as asked, they waited with QOSMaxCpuPerNode (22.05, 24.11)."""
    facts = SiteFacts(qos_maximums=parse_qos_maximums(f"debug||DenyOnLimit{line}\n"))
    forms = facts.forms_of(JobRequest(user="alice", qos="debug", **asked))
    assert forms == (("qos_maximum",) if refused else ())


@pytest.mark.parametrize(
    ("limited", "account", "user", "qos", "refused"),
    [
        # It is the user's only QOS.
        ("large", "Only", "bob", "", True),
        ("large", "only", "bob", "normal", False),
        ("large", "demo", "bob", "", False),
        ("large", "ours", "dave", "large", True),
        # What everybody is given, but for those who are given another.
        ("normal", "demo", "alice", "", True),
        ("normal", "Only", "bob", "", False),
    ],
)
def test_the_maximum_of_a_qos_that_slurm_assigns_unseen_by_the_hook_counts_too(
    limited: str, account: str, user: str, qos: str, refused: bool
) -> None:
    """Cut, such jobs were let in; brought back as asked, they waited with QOSMaxCpuPerJobLimit (22.05)."""
    maximums = parse_qos_maximums(f"{limited}||DenyOnLimit|cpu=4\n")
    facts = SiteFacts(qos_maximums=maximums, given_qos=parse_given_qos(ASSOCIATIONS, "here", maximums))
    asked = JobRequest(account=account, user=user, qos=qos, cpus_per_task=8)
    assert facts.forms_of(asked) == (("qos_maximum",) if refused else ())


LIMITED = """\
here|root|||normal||||||||
here|small|||normal||root|cpu=4|||||
here|small|bob||strict|||cpu=4|||||
here|small|carol||strict|||cpu=64|||||
here|all|||normal||root||mem=4000M|||cpu=60|
here|below|||normal||all||||||
here|below|bob||strict||||||||
here|node|bob||strict|||||cpu=4|||
here|time|bob||strict||||||cpu=30||
there|free|bob||strict|||cpu=4|||||
here|free|bob||strict||||||||
"""


@pytest.mark.parametrize(
    ("account", "user", "qos", "asked", "refused"),
    [
        ("small", "bob", "strict", {"cpus_per_task": 5}, True),
        ("small", "bob", "strict", {"cpus_per_task": 4}, False),
        ("small", "bob", "normal", {"cpus_per_task": 5}, False),
        # Her own limit counts instead of her account's.
        ("small", "carol", "strict", {"cpus_per_task": 5}, False),
        # A limit of the QOS counts instead of one of the same kind.
        ("small", "bob", "wide", {"cpus_per_task": 5}, False),
        ("small", "bob", "wide_together", {"cpus_per_task": 5}, True),
        ("small", "bob", "wide", {"cpus_per_task": 33}, True),
        # What all of an account may have together also counts for accounts below it.
        ("below", "bob", "strict", {"mem_per_node_mib": 4001}, True),
        ("below", "bob", "wide", {"mem_per_node_mib": 4001}, True),
        ("below", "bob", "strict", {"cpus_per_task": 8, "wall_s": 480}, True),
        ("below", "bob", "strict", {"cpus_per_task": 8, "wall_s": 420}, False),
        ("node", "bob", "strict", {"cpus_per_task": 5}, True),
        ("time", "bob", "strict", {"cpus_per_task": 8, "wall_s": 240}, True),
        ("free", "bob", "strict", {"cpus_per_task": 5}, False),
    ],
)
def test_limits_of_accounts_count_with_a_qos_that_refuses_jobs(
    account: str, user: str, qos: str, asked: dict[str, Any], refused: bool
) -> None:
    """Cut, such jobs were let in; brought back as asked, they waited with AssocMaxCpuPerJobLimit (22.05, 24.11)."""
    maximums = "strict||DenyOnLimit|\nwide||DenyOnLimit|cpu=32|\nwide_together||DenyOnLimit||cpu=32|\n"
    facts = SiteFacts(
        qos_maximums=parse_qos_maximums(maximums), account_maximums=parse_account_maximums(LIMITED, "here")
    )
    forms = facts.forms_of(JobRequest(account=account, user=user, qos=qos, **asked))
    assert forms == (("qos_maximum",) if refused else ())


@pytest.mark.parametrize(
    ("qos", "partition", "cpus", "refused"),
    [
        # Either QOS may refuse; the partition's amounts count first, then the job's own, then the association's.
        ("strict", "wide", 8, False),
        ("strict", "wide", 513, True),
        ("strict", "plain", 8, True),
        ("lenient", "strict", 8, False),
        ("lenient", "strict", 513, True),
        ("lenient", "plain", 513, False),
        ("over", "wide", 8, True),
        ("over", "wide", 6, False),
        # Where a user has an association for one partition, that alone counts there.
        ("strict", "own", 8, False),
        ("strict", "own", 65, True),
    ],
)
def test_maximums_of_partition_job_and_association_replace_each_other_as_in_slurm(
    qos: str, partition: str, cpus: int, refused: bool
) -> None:
    """The order of `_acct_policy_validate` (22.05 to 26.05)."""
    maximums = (
        "strict||DenyOnLimit|\nwide|||cpu=512\nlenient|||cpu=512\nover||DenyOnLimit,OverPartQOS|cpu=6\n"
    )
    partitions = "".join(
        f"PartitionName={name} QoS={of}\n"
        for name, of in (("plain", "N/A"), ("wide", "wide"), ("strict", "strict"), ("own", "N/A"))
    )
    associations = (
        "here|demo|||normal||root||||||\nhere|demo|bob||||| cpu=4|||||\nhere|demo|bob|own||||cpu=64|||||\n"
    )
    facts = SiteFacts(
        qos_maximums=parse_qos_maximums(maximums),
        account_maximums=parse_account_maximums(associations.replace(" ", ""), "here"),
        partitions=parse_partitions(partitions, MemoryTerms(), None),
    )
    forms = facts.forms_of(
        JobRequest(account="demo", user="bob", qos=qos, partition=partition, cpus_per_task=cpus)
    )
    assert forms == (("qos_maximum",) if refused else ())


@pytest.mark.parametrize(
    ("qos", "partition", "asked", "refused"),
    [
        ("half", "plain", {"cpus_per_task": 2}, False),
        ("half", "plain", {"cpus_per_task": 3}, True),
        ("triple", "plain", {"cpus_per_task": 12, "mem_per_node_mib": 24000}, False),
        ("triple", "plain", {"cpus_per_task": 13}, True),
        ("triple", "plain", {"mem_per_node_mib": 24001}, True),
        ("none", "plain", {"cpus_per_task": 4}, False),
        ("none", "plain", {"cpus_per_task": 5}, True),
        # A limit of a node is not multiplied, nor is one of minutes.
        ("triple", "plain", {"gpus_per_node": 2, "nodes": 1}, True),
        ("triple", "plain", {"cpus_per_task": 4, "wall_s": 31 * 60}, True),
        # The partition's QOS says it first, then the job's.
        ("half", "tripled", {"cpus_per_task": 4}, False),
        ("half", "nothing", {"cpus_per_task": 3}, True),
    ],
)
def test_a_limit_factor_of_a_qos_multiplies_the_limits_of_accounts(
    qos: str, partition: str, asked: dict[str, Any], refused: bool
) -> None:
    """As on 22.05: of 4 CPUs of an account, a job has 2 with LimitFactor=0.5, and 12 with LimitFactor=3."""
    factors = {"half": "0.500000", "triple": "3.000000", "none": "0.000000", "plain": ""}
    qos_lines = "".join(
        f"{name}||DenyOnLimit{'|' * 11}{factor}\n" for name, factor in factors.items() if name != "plain"
    )
    partitions = "".join(
        f"PartitionName={name} QoS={of}\n"
        for name, of in (("plain", "N/A"), ("tripled", "triple"), ("nothing", "plain"))
    )
    facts = SiteFacts(
        qos_maximums=parse_qos_maximums(qos_lines + f"plain||{'|' * 11}\n"),
        account_maximums=parse_account_maximums(
            "here|all|||normal||root||mem=8000M||||\nhere|all|bob||normal|||cpu=4||gres/gpu=1|cpu=120||\n",
            "here",
        ),
        partitions=parse_partitions(partitions, MemoryTerms(), None),
    )
    request = JobRequest(account="all", user="bob", qos=qos, partition=partition, **asked)
    assert facts.forms_of(request) == (("qos_maximum",) if refused else ())


def test_a_maximum_of_one_type_of_gpus_limits_no_others() -> None:
    facts = SiteFacts(qos_maximums=parse_qos_maximums("debug||DenyOnLimit|gres/gpu:a100=2,gres/gpu:h100=1\n"))
    assert facts.forms_of(JobRequest(user="alice", qos="debug", gpus_per_job=4, nodes=1)) == ()


def test_a_maximum_in_percent_is_no_amount() -> None:
    """MaxTRES=mem=50 was read as 50 MiB, and no job of such a QOS was cut (24.11)."""
    assert parse_qos_maximums("half||DenyOnLimit,Relative|mem=50M\n") == {}
    assert parse_qos_maximums("half||Relative|mem=50M\nwaits|||cpu=4\n") == {}


def test_a_job_that_names_several_qos_has_the_minimum_of_each() -> None:
    facts = SiteFacts(qos_minimums=parse_qos("large|cpu=4\nwide|cpu=2,mem=2G\n"))
    asked = JobRequest(user="alice", qos="normal,Large,wide")
    assert facts.minimum_for(asked) == Minimum(cpus=4, mem_mib=2048)
    assert fits(Rule(name="r", qos=("lar*",)), asked, facts)
    assert not fits(Rule(name="r", qos=("narrow", "normal,*")), asked, facts)


@pytest.mark.parametrize(
    ("account", "user", "qos", "least"),
    [
        ("demo", "alice", "", 0),
        # It is the user's only QOS.
        ("Only", "bob", "", 4),
        ("demo", "bob", "", 0),
        # It is the default in one partition, and slurmctld uses it only for jobs that name that partition.
        ("ours", "carol", "", 4),
        ("ours", "carol", "normal", 4),
        # The hook sees it.
        ("ours", "dave", "", 0),
        ("ours", "dave", "large", 4),
    ],
)
def test_a_qos_that_slurm_assigns_unseen_by_the_hook_sets_the_minimum_too(
    account: str, user: str, qos: str, least: int
) -> None:
    """sbatch refused, or let wait for ever, a job cut below it that would have run uncut (22.05 to 26.05)."""
    minimums = parse_qos("large|cpu=4\n")
    facts = SiteFacts(qos_minimums=minimums, given_qos=parse_given_qos(ASSOCIATIONS, "here", minimums))
    asked = JobRequest(account=account, user=user, qos=qos)
    assert facts.minimum_for(asked) == Minimum(cpus=least)


@pytest.mark.parametrize(
    ("of_root", "given"),
    [("here|root|||large,normal|large", "large"), ("there|root|||large|large", "normal")],
)
def test_without_any_other_source_the_qos_is_that_of_root_or_normal(of_root: str, given: str) -> None:
    minimums = parse_qos("large|cpu=4\nnormal|cpu=2\n")
    facts = SiteFacts(qos_minimums=minimums, given_qos=parse_given_qos(of_root, "here", minimums))
    least = {"large": 4, "normal": 2}[given]
    assert facts.minimum_for(JobRequest(user="eve")) == Minimum(cpus=least)
    assert facts.minimum_for(JobRequest(user="eve", qos="other")) == Minimum()


def test_no_grant_is_below_the_minimum_of_a_qos() -> None:
    asked = submission(num_tasks=2, cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4)
    limits = with_floors(
        limits_of(Config().policy),
        job_request(asked),
        Fixed(),
        Minimum(cpus=5, gpus=2, mem_mib=4096),
        2,
    )
    assert (limits.min_cpus_per_task, limits.min_gpus, limits.memory_floor_mib) == (3, 2, 4096)
    assert limits.cpus_step == 2
