"""What is left to do for a job whose recovery was begun and cut off, from slurmctld's record and our mark alone."""

from typing import Any

import msgspec

from accounting.request import Grant, JobRequest
from slurm_plugin.recovery.judging import SiteTerms, continued, judge
from slurm_plugin.slurm.job_lines import HELD_AGAIN
from tests.slurm_plugin.recovery.test_judging import change_of, failed, token


def test_a_begun_recovery_is_continued_from_its_mark_alone() -> None:
    wanted = judge(failed())
    marked = change_of(wanted).admin_comment
    held = failed("PENDING", reason=HELD_AGAIN, admin_comment=marked, restarts=1)
    left = continued(held)
    assert left is not None
    assert msgspec.structs.replace(left.change, reason="") == msgspec.structs.replace(
        change_of(wanted), reason=""
    )
    assert left.restarts == 0
    assert continued(failed("PENDING", reason=HELD_AGAIN, admin_comment=marked, restarts=2)) is None
    assert continued(failed("PENDING", reason=HELD_AGAIN)) is None
    assert continued(failed("PENDING", reason="JobHeldUser", admin_comment=marked)) is None
    unasked = "rightsizer/1;id=ab;mode=enforce;recovery=killed:0"
    assert continued(failed("PENDING", reason=HELD_AGAIN, admin_comment=unasked, restarts=1)) is None


def test_a_share_and_its_cpus_are_given_back_together_where_a_recovery_was_cut_off() -> None:
    asked = JobRequest(user="ann", num_tasks=2, cpus_per_task=8, mem_per_cpu_mib=1000)
    share: dict[str, Any] = {"mem_per_node_mib": None, "mem_per_cpu_mib": 500}
    began = judge(failed(**share, admin_comment=token(asked, Grant(cpus_per_task=2, mem_per_cpu_mib=500))))
    marked = change_of(began).admin_comment
    # Slurm has its CPUs already.
    fields: dict[str, Any] = {"reason": HELD_AGAIN, "admin_comment": marked, "restarts": 1}
    left = continued(failed("PENDING", cpus_per_task=8, **share, **fields))
    assert left is not None
    assert (left.change.cpus_per_task, left.change.mem_per_cpu_mib) == (8, 1000)
    # Where CPUs stay, and it has its share already.
    shared = failed("PENDING", **{**share, "mem_per_cpu_mib": 1000}, **fields)
    left = continued(shared, SiteTerms(cpus_stay=True))
    assert left is not None
    assert (left.change.cpus_per_task, left.change.mem_per_cpu_mib) == (2, 1000)


def test_a_begun_recovery_that_is_continued_leaves_what_somebody_else_has_changed() -> None:
    """Sixteen CPUs that its user had given the job became the eight that it had asked for at first."""
    began = judge(failed(cpus_per_task=16))
    marked = change_of(began).admin_comment
    for mem_mib, back_mib in ((500, 8000), (8000, None)):
        fields: dict[str, Any] = {"reason": HELD_AGAIN, "admin_comment": marked, "restarts": 1}
        left = continued(failed("PENDING", cpus_per_task=16, mem_per_node_mib=mem_mib, **fields))
        assert left is not None
        assert (left.change.cpus_per_task, left.change.mem_per_node_mib) == (None, back_mib)
