"""SelectTypeParameters of the cluster or a partition: whether memory is allocated, and whether whole sockets are."""

import pytest

from slurm_plugin.policy.facts import MemoryTerms, SiteFacts
from slurm_plugin.policy.forms import kept_by_form
from slurm_plugin.policy.memory_limits import kept_by_limits
from slurm_plugin.slurm import facts as slurm_facts
from slurm_plugin.slurm.limits import parameters_in, parse_node_terms
from tests.builders import request

# As scontrol prints them: cores with two threads, twice, and once counted as one CPU each; with four; and with one.
NODES = """\
NodeName=a-1 CoresPerSocket=16 CPUTot=64 Sockets=2 Boards=1 ThreadsPerCore=2 Partitions=main,sockets,mixed Reason=x
NodeName=a-2 CoresPerSocket=16 CPUTot=32 Sockets=2 Boards=1 ThreadsPerCore=2 Partitions=counted
NodeName=a-3 CoresPerSocket=16 CPUTot=64 Sockets=1 Boards=1 ThreadsPerCore=4 Partitions=mixed
NodeName=a-4 CoresPerSocket=8 CPUTot=32 Sockets=4 Boards=1 ThreadsPerCore=1 Partitions=cores
NodeName=a-5 CoresPerSocket=8 CPUTot=32 Sockets=4 Boards=1 ThreadsPerCore=1  BootTime=None
"""
PARTITIONS = """\
PartitionName=main Default=YES QoS=N/A SelectTypeParameters=NONE
PartitionName=sockets Default=NO QoS=N/A SelectTypeParameters=CR_SOCKET_MEMORY
PartitionName=cores Default=NO QoS=N/A SelectTypeParameters=CR_CORE
"""


def facts_of(parameters: str) -> SiteFacts:
    config = f"SelectType              = select/cons_tres\nSelectTypeParameters    = {parameters}\n"
    answers = {"memory": config, "partitions": PARTITIONS, "cpus_per_core": NODES}
    return slurm_facts._read(answers, SiteFacts())[0]


def test_no_grant_has_fewer_cpus_than_a_core() -> None:
    """Slurm gives both threads of a core, and from 24.11 on an srun in a `-c 1` without `-n` starts two tasks."""
    steps = {"": 2, "main": 2, "counted": 1, "mixed": 4, "cores": 1, "main,cores": 2, "new": 4}
    facts = facts_of("CR_CORE_MEMORY")
    assert {name: facts.cpus_step_for(request(partition=name)) for name in steps} == steps
    assert SiteFacts().cpus_step_for(request()) == 1
    assert parse_node_terms("No nodes in the system\n").cpus_per_core == {"": 1}


@pytest.mark.parametrize(
    "nodes", ["No nodes in the system\n", "NodeName=a CoresPerSocket=8 CPUTot=8 Sockets=1 Partitions=main"]
)
def test_a_core_has_two_threads_if_its_nodes_do_not_exist_yet(nodes: str) -> None:
    """A dynamic partition has no nodes while nothing is pending; on 26.05 a `-c 1` then ran its srun twice."""
    facts = SiteFacts(cpus_per_core=parse_node_terms(nodes).cpus_per_core)
    assert facts.cpus_step_for(request(partition="dynamic")) == 2


@pytest.mark.parametrize(
    ("parameters", "main", "sockets", "new"),
    [
        ("CR_CORE_MEMORY", False, True, False),
        ("CR_SOCKET_MEMORY,CR_LLN", True, True, True),
        # slurmctld reports that it then cannot use a partition's own parameters.
        ("CR_CPU_MEMORY,CR_CORE_DEFAULT_DIST_BLOCK", False, False, False),
    ],
)
def test_cpus_stay_where_jobs_get_whole_sockets(
    parameters: str, *, main: bool, sockets: bool, new: bool
) -> None:
    """A `-c 8` that was cut to 4 still got its socket of 8, and an srun in it started two tasks (24.11)."""
    facts = facts_of(parameters)
    whole = {"": main, "main": main, "sockets": sockets, "new": new, "main,sockets": main or sockets}
    for name, is_whole in whole.items():
        forms = facts.forms_of(request(partition=name))
        assert kept_by_form(forms) == ({"cores": "whole_sockets"} if is_whole else {}), name


def test_memory_stays_if_a_socket_has_room_for_more_tasks() -> None:
    """A `-c 2 --mem=8000` with 2000 MiB per CPU started two tasks on a socket of 8; with less memory four (24.11)."""
    facts, limit = facts_of("CR_CORE_MEMORY"), MemoryTerms(max_per_cpu_mib=2000)
    for name, kept in (("sockets", {"memory": "MaxMemPerCPU"}), ("cores", {})):
        asked = request(partition=name, cpus_per_task=2, mem_per_node_mib=8000)
        assert kept_by_limits(asked, limit, facts.cpus_step_for(asked)) == kept


@pytest.mark.parametrize(
    ("parameters", "main", "sockets", "cores"),
    [
        ("CR_CORE_MEMORY", True, True, False),
        ("CR_SOCKET", False, True, False),
        ("CR_CPU_MEMORY", True, True, True),
        ("CR_CPU", False, False, False),
    ],
)
def test_the_partition_says_whether_memory_is_allocated(
    parameters: str, *, main: bool, sockets: bool, cores: bool
) -> None:
    facts = facts_of(parameters)
    counts = {"main": main, "sockets": sockets, "cores": cores, "new": main, "main,cores": main and cores}
    for name, is_counted in counts.items():
        asked = request(partition=name, mem_per_node_mib=8000)
        terms = facts.memory_for(asked)
        assert terms is not None
        kept = {} if is_counted else {"memory": "SelectTypeParameters"}
        assert kept_by_limits(asked, terms, 1) == kept, name


def test_a_partition_without_parameters_has_those_of_the_cluster() -> None:
    assert parameters_in("NONE", "CR_CORE_MEMORY") == "CR_CORE_MEMORY"
    assert parameters_in(None, None) is None
    # The cluster's are not known yet, and so neither is what they mean for the partition.
    assert parameters_in("CR_CORE", None) is None
