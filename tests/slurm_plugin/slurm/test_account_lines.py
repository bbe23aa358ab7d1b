"""Limits of accounts, users and QOS, as sacctmgr and scontrol print them."""

from slurm_plugin.slurm import account_lines
from slurm_plugin.slurm.snapshot import AssociationState, QosState


def test_which_account_is_the_parent_of_which() -> None:
    told = (
        "root|||||||||\nroot|root||root||||||\nphysics|||root||||||\nlasers|||physics||||||\n"
        "lasers|ann||||||||\n"
    )
    found = account_lines.parse_association_states(told)
    assert account_lines.parents_of(found) == {"physics": "root", "lasers": "physics"}


def test_which_qos_preempts_which() -> None:
    # As sacctmgr of 22.05, 24.11 and 26.05 prints it; a QOS without its own mode has that of the cluster.
    text = (
        "normal||cluster|||1.000000||||||||||||\nscavenger||cancel|00:10:00||1.000000||||||||||||\n"
        "urgent|normal,scavenger|cluster|||1.000000||||||||||||\n"
    )
    assert account_lines.parse_qos_states(text) == {
        "normal": QosState(),
        "scavenger": QosState(preempt_mode="CANCEL", exempt_s=600.0),
        "urgent": QosState(preempts=frozenset({"normal", "scavenger"})),
    }


def test_percentages_of_the_cluster_are_no_amounts() -> None:
    """With Flags=Relative and 32 CPUs, slurmctld made 16 CPUs of GrpTRES=cpu=50 (24.11 and 26.05)."""
    (found,) = account_lines.parse_qos_states(
        "q1||cluster||Relative|1.000000||cpu=50|cpu=50|5|cpu=25|cpu=9|2|cpu=40|cpu=9|7|cpu=60|\n"
    ).values()
    assert found == QosState(
        together={"jobs": 5}, of_user={"jobs": 2}, of_account={"jobs": 7}, has_budget=True
    )


def test_how_much_jobs_may_have_at_once() -> None:
    # As sacctmgr of 22.05, 24.11 and 26.05 prints it.
    (found,) = account_lines.parse_qos_states(
        "q1||cluster||NoReserve,OverPartQOS,UsageFactorSafe|2.000000|0.500000|cpu=8,mem=10G,node=2,billing=9|"
        "billing=30,cpu=20,gres/gpu=7,mem=2000M,node=3|5|cpu=4,gres/gpu=2|cpu=40||gres/gpu:a100=1|cpu=50|7||01:40:00\n"
    ).values()
    assert found == QosState(
        together={
            "jobs": 5,
            "cpu": 8,
            "mem": 10_240,
            "node": 2,
            "billing": 9,
            "cpu RunMins": 20,
            "mem RunMins": 2000,
            "node RunMins": 3,
            "billing RunMins": 30,
            "gres/gpu RunMins": 7,
        },
        of_user={"cpu": 4, "gres/gpu": 2, "cpu RunMins": 40},
        of_account={"gres/gpu:a100": 1, "jobs": 7, "cpu RunMins": 50},
        over_partition=True,
        usage_factor=2.0,
        usage_factor_asked=True,
        has_budget=True,
        account_factor=0.5,
    )
    account, user = account_lines.parse_association_states(
        "a1|||root|mem=5000M|cpu=20|9|4|cpu=300|01:17:00\na1|ann|main||cpu=3|||2||\n"
    )
    assert account == AssociationState(
        account="a1",
        parent="root",
        together={"mem": 5000, "cpu RunMins": 20, "jobs": 9},
        most_jobs=4,
        has_budget=True,
    )
    assert user == AssociationState(
        account="a1", user="ann", partition="main", together={"cpu": 3}, most_jobs=2
    )


def test_what_is_left_of_budgets() -> None:
    # As scontrol of 22.05 and 26.05 prints it; the used minutes of GrpWall have fractions.
    limits = (
        "GrpTRES=cpu=9(2) GrpTRESMins=cpu={cpu},mem=N(7),energy=5(1),gres/gpu=40(41) GrpTRESRunMins=cpu=N(10)"
    )
    told = (
        "Current Association Manager state\nAssociation Records\n"
        f"ClusterName=c Account=a0 UserName= Partition= Priority=0 GrpWall=77(3.90) {limits.format(cpu='300(12)')}\n"
        f"ClusterName=c Account=a0 UserName=ann(5) Partition=p Priority=0 GrpWall=N(1.00) {limits.format(cpu='N(0)')}\n"
        "ClusterName=c Account=b0 UserName= Partition= Priority=0 GrpWall=N(0.00) GrpTRESMins=cpu=N(10)\n\n"
        "QOS Records\nQOS=q0(2) UsageRaw=0.000000 GrpJobs=N(0) GrpWall=N(0.00) GrpTRESMins=cpu=10(0),mem=N(0)\n"
    )
    assert account_lines.parse_budgets(told) == {
        "account a0": {"cpu Mins": 288, "gres/gpu Mins": -1, "GrpWall": 74},
        "account a0 ann p": {"gres/gpu Mins": -1},
        "qos q0": {"cpu Mins": 10},
    }
