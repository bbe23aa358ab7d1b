"""A job that Slurm gave up or cancelled because another one failed: which commands make it wait again."""

from collections.abc import Sequence

import pytest

from slurm_plugin.slurm.depending import CANCELLED, GONE, NOT_BY_SLURM, depend, site_kills
from slurm_plugin.slurm.job_lines import HELD_AGAIN
from slurm_plugin.slurm.limits import config_words
from slurm_plugin.slurm.queue import Dependent

CHANGE = Dependent(job_id=8, uid=1001, dependency="afterok:7", cancelled=True)
REFUSED = "Requested operation is presently disabled for job 8"
# 22.05, for an array: slurmctld executes the command all the same.
COMPLAINT = "8_[1-3]: No error; 8_[1-3]: Job is pending execution"
RECORD = """JobId={ids} JobName=b
   UserId=ann(1001) GroupId=ann(1001) MCS_label=N/A
   Priority={priority} Nice=0 Account=(null) QOS=normal
   JobState={state} Reason={reason} Dependency=afterok:7(failed)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=00:05:00 TimeMin=N/A
   SubmitTime=1795837704 EligibleTime=Unknown
   AccrueTime=Unknown
   StartTime=Unknown EndTime=1795837705 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=1795837704 Scheduler=Main
   Partition=main AllocNode:Sid=localhost:23432
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=
   NumNodes=1 NumCPUs=1 NumTasks=N/A CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=1,mem=1000M,node=1,billing=1
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=/tmp/b.sh
   WorkDir=/
{own}   Power=
"""


class Slurm:
    """One job; `cancels_again` is how often Slurm cancels a job whose dependency is not set again yet."""

    def __init__(self, state: str = CANCELLED, own: str = "", ids: str = "8") -> None:
        self.state, self.own, self.ids = state, own, ids
        self.said: list[Sequence[str]] = []
        self.cancels_again = 0
        self.refuses = self.complains = ""

    def show(self, job_id: int) -> str:
        assert job_id == 8
        held = self.state == "HELD"
        return RECORD.format(
            ids=self.ids, state="PENDING" if held else self.state, priority=int(not held), own=self.own,
            reason=HELD_AGAIN if held else "DependencyNeverSatisfied",
        )  # fmt: skip

    def update(self, words: Sequence[str]) -> str:
        self.said.append(words)
        if self.refuses in words:
            return REFUSED
        if words[0] == "requeuehold":
            self.state = "HELD"
            return self.complains
        if self.cancels_again:
            self.cancels_again -= 1
            self.state = CANCELLED
            return "Job has already finished for job 8"
        return ""


def words_of(target: str = "8") -> list[tuple[str, ...]]:
    anew = ("--uid=1001", "update", f"JobId={target}", "Dependency=afterok:7", "StartTime=now")
    return [("requeuehold", target), anew, ("release", target)]


def waits_again(slurm: Slurm, *, site: bool = True) -> str:
    return depend(CHANGE, slurm.show, slurm.update, lambda: site)


def test_a_job_that_still_waits_only_gets_its_dependency_again() -> None:
    slurm = Slurm("PENDING")
    assert waits_again(slurm) == ""
    assert slurm.said == [words_of()[1][:-1]]


@pytest.mark.parametrize(("done", "state"), [(0, CANCELLED), (1, "HELD")])
def test_a_job_that_slurm_cancelled_is_requeued_and_held_until_it_waits(done: int, state: str) -> None:
    slurm = Slurm(state)
    assert waits_again(slurm) == ""
    assert slurm.said == words_of()[done:]


def test_only_the_given_tasks_of_an_array_are_requeued_though_slurm_complains() -> None:
    slurm = Slurm(ids="8 ArrayJobId=8 ArrayTaskId=1-3")
    slurm.complains = COMPLAINT
    assert waits_again(slurm) == ""
    assert slurm.said == words_of("8_[1-3]")


@pytest.mark.parametrize(
    ("own", "site", "killed"),
    [
        ("", True, True),
        ("", False, False),
        ("   KillOInInvalidDependent=Yes\n", False, True),
        ("   KillOnInvalidDependent=Yes\n", False, True),
        ("   KillOInInvalidDependent=No\n", True, False),
        ("   KillOnInvalidDependent=No\n", True, False),
    ],
)
def test_a_job_that_its_user_cancelled_stays_so(own: str, site: bool, killed: bool) -> None:
    slurm = Slurm(own=own)
    assert waits_again(slurm, site=site) == ("" if killed else NOT_BY_SLURM)
    assert bool(slurm.said) == killed


def test_a_job_that_slurm_cancels_meanwhile_is_requeued_once_more() -> None:
    slurm = Slurm()
    slurm.cancels_again = 1
    assert waits_again(slurm) == ""
    assert slurm.said == [*words_of()[:2], *words_of()]


@pytest.mark.parametrize(("word", "said"), [("requeuehold", 1), ("update", 2)])
def test_a_refusal_by_slurm_is_reported_in_its_own_words(word: str, said: int) -> None:
    slurm = Slurm()
    slurm.refuses = word
    assert waits_again(slurm) == REFUSED
    assert len(slurm.said) == said


def test_a_job_that_is_always_cancelled_again_is_given_up() -> None:
    slurm = Slurm()
    slurm.cancels_again = 1000
    assert waits_again(slurm)
    assert len(slurm.said) < 20


def test_a_job_that_no_longer_exists_is_gone() -> None:
    assert depend(CHANGE, lambda _: "", Slurm().update, lambda: True) == GONE


@pytest.mark.parametrize(("said", "kills"), [("kill_invalid_depend", True), ("(null)", False), ("x", False)])
def test_whether_a_site_kills_jobs_with_failed_dependencies(said: str, kills: bool) -> None:
    assert site_kills(config_words(f"DependencyParameters    = {said}\n")) == kills
