"""What the doctor says is missing from slurm.conf."""

from pathlib import Path

import msgspec
import pytest

from slurm_plugin.doctor.checks import judge
from slurm_plugin.doctor.seen import SlurmSeen
from tests.builders import executable
from tests.slurm_plugin.doctor.surrounded import Surrounded
from tests.slurm_plugin.surroundings import say_settings


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"JobSubmitPlugins": "(null)"}, "not asked about any submission"),
        ({"JobSubmitPlugins": "require_timelimit"}, "not asked about any submission"),
        ({"JobAcctGatherType": "jobacct_gather/none"}, "JobAcctGatherType is neither"),
        ({"AccountingStorageType": "accounting_storage/none"}, "nothing to learn from"),
        ({"SelectTypeParameters": "CR_CORE"}, "does not name memory"),
        ({"VSizeFactor": "110 percent"}, "VSizeFactor limits address space"),
        ({"JobAcctGatherFrequency": "0"}, "samples no tasks"),
        ({"JobAcctGatherFrequency": "energy=30,task=0", "SLURM_VERSION": "24.05.1"}, "samples no tasks"),
        ({"AccountingStorageEnforce": "associations,nosteps"}, "are not stored"),
        ({"GresTypes": "gpu,nic", "AccountingStorageTRES": "cpu,mem,gres/gpu:a100"}, "lacks gres/gpu:"),
        ({"SelectType": "select/linear", "SelectTypeParameters": "NONE"}, "nothing is cut"),
    ],
)
def test_a_setting_that_slurm_conf_lacks_is_a_warning(
    surrounded: Surrounded, change: dict[str, str], said: str
) -> None:
    say_settings(surrounded.site, **change)
    surrounded.expect("slurm.conf", "warning", said, r"slurm\.conf\.fragment")


def test_on_slurm_22_05_with_cgroup_v2_the_other_plugin_is_right(surrounded: Surrounded) -> None:
    say_settings(surrounded.site, JobAcctGatherType="jobacct_gather/linux")
    surrounded.expect("slurm.conf", "ok", "all the settings that rightsizer needs")


@pytest.mark.parametrize("version", ["cgroup/v2", "autodetect"])
def test_the_kernels_own_peak_needs_no_samples(version: str, surrounded: Surrounded) -> None:
    peak = {
        "SLURM_VERSION": "24.11.5",
        "JobAcctGatherType": "jobacct_gather/cgroup",
        "CgroupPlugin": version,
    }
    say_settings(surrounded.site, JobAcctGatherFrequency="0", **peak)
    surrounded.expect("slurm.conf", "ok", "all the settings that rightsizer needs")


@pytest.mark.parametrize("counted", ["cpu,gres/gpu,gres/gpu:a100", "cpu,gres/gpu"])
def test_gpus_only_need_to_be_accounted_for(surrounded: Surrounded, counted: str) -> None:
    say_settings(surrounded.site, GresTypes="gpu", AccountingStorageTRES=counted)
    surrounded.expect("slurm.conf", "ok", "all the settings that rightsizer needs")


def test_an_advisor_needs_multifactor(surrounded: Surrounded) -> None:
    say_settings(surrounded.site, PriorityType="priority/basic")
    surrounded.expect("slurm.conf", "ok", "all the settings that rightsizer needs")
    Path(surrounded.site.config.advisor.directory).mkdir()
    surrounded.expect("slurm.conf", "warning", "SiteFactors have no effect")


def test_a_lent_partition_that_is_not_set_up_for_lending_is_reported(surrounded: Surrounded) -> None:
    """The reasons are tested on a real Slurm (tests/cluster/test_lending.py)."""
    seen = surrounded.look()
    assert isinstance(seen.slurm, SlurmSeen)
    slurm = msgspec.structs.replace(seen.slurm, unlent={"idle": "the partition is down"})
    [found] = [one for one in judge(msgspec.structs.replace(seen, slurm=slurm)) if one.check == "slurm.conf"]
    assert (found.state, found.what) == (
        "warning",
        "no job is let into the partition idle: the partition is down",
    )


@pytest.mark.parametrize(
    ("change", "hides"),
    [
        ({}, True),
        ({"PrivateData": "jobs"}, True),
        ({"PrivateData": "jobs,cloud"}, False),
        ({"SuspendProgram": "(null)"}, False),
        ({"SLURM_VERSION": "23.02.1"}, False),
    ],
)
def test_cloud_nodes_that_22_05_hides_while_powered_down_are_reported(
    surrounded: Surrounded, change: dict[str, str], *, hides: bool
) -> None:
    asleep = {"SLURM_VERSION": "22.05.8", "SuspendProgram": "/etc/slurm/suspend", "PrivateData": "none"}
    say_settings(surrounded.site, **{**asleep, **change})
    scontrol = surrounded.site.folder / "tools" / "scontrol"
    answers = """case "$*" in
*"show partition") echo "PartitionName=main Nodes=n[1-2],c[01-40] TotalNodes=42 DefMemPerCPU=100"; exit;;
*"show node") printf 'NodeName=n1 State=IDLE\\nNodeName=n2 State=IDLE\\nNodeName=c02 State=IDLE+CLOUD\\n'; exit;;
esac
"""
    executable(scontrol, scontrol.read_text(encoding="utf-8").replace("#!/bin/sh\n", f"#!/bin/sh\n{answers}"))
    said = (
        r"PrivateData lacks cloud: .*\(c01 and so on: 39 now\)"
        if hides
        else "all the settings that rightsizer needs"
    )
    surrounded.expect("slurm.conf", "warning" if hides else "ok", said)


@pytest.mark.parametrize(
    ("partition", "settings", "without"),
    [
        ("DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED", {}, True),
        ("DefMemPerNode=UNLIMITED MaxMemPerCPU=4000", {}, True),
        ("DefMemPerCPU=2000 MaxMemPerNode=UNLIMITED", {}, False),
        ("DefMemPerNode=4000 MaxMemPerNode=UNLIMITED", {}, False),
        ("DefMemPerNode=UNLIMITED", {"DefMemPerCPU": "2000"}, False),
        ("DefMemPerNode=UNLIMITED OverSubscribe=EXCLUSIVE", {}, False),
    ],
)
def test_partitions_where_a_job_without_a_memory_request_holds_all_of_it_are_reported(
    surrounded: Surrounded, partition: str, settings: dict[str, str], *, without: bool
) -> None:
    say_settings(surrounded.site, SelectTypeParameters="CR_CORE_MEMORY", **settings)
    scontrol = surrounded.site.folder / "tools" / "scontrol"
    answers = f"""case "$*" in
*"show partition") echo "PartitionName=long State=UP {partition}"; exit;;
esac
"""
    executable(scontrol, scontrol.read_text(encoding="utf-8").replace("#!/bin/sh\n", f"#!/bin/sh\n{answers}"))
    said = (
        "nor DefMemPerNode is set for long: .* hold all"
        if without
        else "all the settings that rightsizer needs"
    )
    surrounded.expect("slurm.conf", "warning" if without else "ok", said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"JobRequeue": "0"}, "JobRequeue is 0: .* are not requeued"),
        ({"MinJobAge": "10 sec"}, r"MinJobAge is 10 s: .*recovery\.period_s is 10"),
        ({"MinJobAge": "11 sec", "JobRequeue": "1"}, ""),
        ({"MinJobAge": "0 sec"}, ""),
        ({"MinJobAge": "2 sec", "EpilogSlurmctld": "(null)"}, "MinJobAge is 2 s"),
        ({"MinJobAge": "2 sec", "EpilogSlurmctld[0]": "/etc/slurm/epilog.sh"}, ""),
        ({"RequeueExit": "99,130-140", "RequeueExitHold": "99,125,200-255"}, ""),
        (
            {"RequeueExitHold": "99,130-140"},
            "RequeueExitHold has 137: when srun is killed for memory in a job that was cut",
        ),
    ],
)
def test_recovery_needs_jobs_that_can_be_requeued_and_are_remembered(
    surrounded: Surrounded, change: dict[str, str], said: str
) -> None:
    say_settings(surrounded.site, **change)
    surrounded.expect("slurm.conf", "ok", "all the settings that rightsizer needs")
    surrounded.site.configure(mode="enforce")
    surrounded.expect("slurm.conf", "warning" if said else "ok", said)


def test_older_releases_name_the_plugin_in_full(surrounded: Surrounded) -> None:
    say_settings(surrounded.site, JobSubmitPlugins="job_submit/require_timelimit,job_submit/lua")
    surrounded.expect("slurm.conf", "ok", "")
