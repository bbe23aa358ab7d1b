"""Texts of users that imitate Slurm's own lines: no token in them is read, and nobody's job is hidden."""

from pathlib import Path

import pytest

from accounting.errors import SlurmError
from slurm_plugin.slurm import job_lines, scontrol_queue
from slurm_plugin.slurm.requeuing import parse_failed
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue

CAPTURED = Path(__file__).parents[2] / "contract"
CLAIM = "rightsizer/1;id=deadbeef0001;mode=enforce;asked=tasks:1,cpus:8,mem:20000;granted=cpus:1,mem:200"
FORGED = f"x\n   AdminComment={CLAIM}"
FORGER, VICTIMS = 500, range(600, 840)
RECORD = (CAPTURED / "queue" / "22.05" / "jobs.txt").read_text(encoding="utf-8").split("\n\n", 1)[0]


def record(job_id: int, user: str = "root(0)", **texts: str) -> str:
    """Return a job's record; each of `texts` goes after the first words of a line."""
    shown = RECORD.replace("JobId=235 ", f"JobId={job_id} ").replace("UserId=root(0)", f"UserId={user}")
    for head, text in texts.items():
        assert f"   {head}=" in shown
        shown = shown.replace(f"   {head}=", f"   {head}={text}")
    return shown


def with_comment(shown: str, comment: str) -> str:
    return shown.replace("\n   StdErr=", f"\n   Comment={comment} \n   StdErr=")


def test_the_token_of_a_job_is_in_the_line_after_its_folder() -> None:
    true = record(7).replace("\n   StdErr=", f"\n   AdminComment={CLAIM} \n   StdErr=")
    job = job_lines.parse_job(true)
    assert job is not None
    assert job.admin_comment == CLAIM


@pytest.mark.parametrize("head", ["Command", "StdErr", "StdOut", "Features"])
def test_a_path_with_line_ends_cannot_write_a_token(head: str) -> None:
    job = job_lines.parse_job(record(7, **{head: FORGED}))
    assert job is None or job.admin_comment == ""


def test_a_second_line_for_a_field_makes_a_record_unreliable() -> None:
    true = record(7).replace("\n   StdErr=", "\n   AdminComment=ours \n   StdErr=")
    assert job_lines.parse_job(true) is not None
    assert job_lines.parse_job(true.replace("Command=(null)", f"Command={FORGED}")) is None
    assert job_lines.parse_job(with_comment(record(7), "a\n   Comment=b")) is None


def test_a_field_counts_only_in_its_own_line() -> None:
    plain = job_lines.parse_job(record(7))
    forged = record(7).replace("Network=(null)", "Network=x EndTime=9 NumCPUs=1 BatchFlag=0 Account=other")
    assert plain is not None
    assert job_lines.parse_job(forged) == plain
    named = record(7).replace("JobName=filler", "JobName=filler\n   Note=1 EndTime=9 NumCPUs=1")
    assert job_lines.parse_job(named) == plain


def typed(text: str) -> str:
    """Return what scontrol shows from 25.11 on if the user typed this text: it precedes some of Slurm's own lines."""
    return record(7).replace("\n   WorkDir=", f"\n   SubmitLine=sbatch {text}\n   WorkDir=") + "\n\n"


SPLITS = f"x\n   WorkDir=/\n   AdminComment={CLAIM}\n\nJobId=1 "


@pytest.mark.parametrize(
    "shown", [record(7, WorkDir=FORGED) + "\n\n", typed(SPLITS)], ids=["folder", "typed"]
)
@pytest.mark.parametrize("told", ["\n", "other \n", ""])
def test_nothing_is_changed_of_a_job_whose_token_squeue_does_not_confirm(
    told: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scontrol_queue, "_ask", lambda *command: told if command[0] == "squeue" else shown)
    found = parse_failed(shown, 7)
    assert found is not None
    assert found.job.admin_comment.startswith(CLAIM)
    assert ScontrolQueue().failed(7) is None
    assert ScontrolQueue()._record(7) is None


def test_a_token_that_squeue_confirms_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    true = record(7).replace("\n   StdErr=", f"\n   AdminComment={CLAIM} \n   StdErr=") + "\n\n"
    asked: list[str] = []

    def ask(*command: str) -> str:
        asked.append(command[-1])
        return f"{CLAIM} \n" if command[0] == "squeue" else true

    monkeypatch.setattr(scontrol_queue, "_ask", ask)
    found = ScontrolQueue().failed(7)
    assert found is not None
    # A longer comment is another one.
    assert asked[-1] == f"--Format=admin_comment:{len(CLAIM) + 1}"

    def gone(*_: str) -> str:
        raise SlurmError("slurm_load_jobs error: Invalid job id specified")

    monkeypatch.setattr(scontrol_queue, "_ask", gone)
    assert not scontrol_queue.carries(found.job)


def test_a_comment_that_begins_like_a_record_does_not_hide_the_rest_of_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From 25.11 on it is shown twice, first in the line that the user typed; seen on 26.05."""
    shown = with_comment(typed("--comment=x\n\nJobId=1 "), "x\n\nJobId=1")
    found = parse_failed(shown, 7)
    assert found is not None
    assert found.job.comment == "x\n\nJobId=1"
    monkeypatch.setattr(scontrol_queue, "_ask", lambda *_: shown)
    apart = ScontrolQueue()._apart(7, 0)
    assert apart is not None
    assert apart.batch
    assert not apart.fixed


def queue_of(comment: str) -> tuple[str, dict[int, int]]:
    """Return the output about many jobs of one user, and one of another user with this comment."""
    own = with_comment(record(FORGER, "mallory(1001)"), comment)
    owners = {**dict.fromkeys(VICTIMS, 0), FORGER: 1001}
    return "\n\n".join((own, *(record(job) for job in VICTIMS))) + "\n\n", owners


def test_a_job_id_alone_hides_no_job() -> None:
    text, owners = queue_of("x" + "".join(f"\n\nJobId={job} \n" for job in VICTIMS))
    listing = job_lines.parse_jobs(text, owners)
    assert {job.job_id for job in listing.jobs} == set(owners)
    assert listing.doubtful == ()


def test_a_record_with_another_owner_is_not_taken_for_a_second_one() -> None:
    text, owners = queue_of("\n\n".join(("x", *(record(job, "mallory(1001)") for job in VICTIMS))))
    assert {job.job_id for job in job_lines.parse_jobs(text, owners).jobs} >= set(VICTIMS)


def test_complete_forged_records_hide_no_job_and_cost_a_bounded_number_of_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = (record(job).replace("TRES=cpu=32", "TRES=cpu=1") for job in VICTIMS)
    text, owners = queue_of("\n\n".join(("x", *copies)))
    said: dict[tuple[str, ...], str] = {
        ("scontrol", "--all", "show", "job", str(job)): f"{record(job)}\n\n" for job in VICTIMS
    }
    said["scontrol", "--all", "show", "job"] = text
    calls: list[tuple[str, ...]] = []

    def ask(*command: str) -> str:
        calls.append(command)
        return said[command]

    monkeypatch.setattr(scontrol_queue, "_ask", ask)
    monkeypatch.setattr(scontrol_queue, "_owners", lambda: owners)
    found = {job.job_id: job for job in ScontrolQueue()._jobs()}
    assert set(found) >= set(VICTIMS)
    touched = {job for job, one in found.items() if job in VICTIMS and not one.fixed}
    # The last copy is followed by the forger's own lines, and so is no record.
    assert len(calls) == len(touched) == 1 + scontrol_queue._MOST_OF_ONE
    assert all(found[job].cpus == 32 for job in touched)


def test_users_with_few_doubtful_jobs_are_asked_for_first() -> None:
    owners = {**dict.fromkeys(range(100), 1), 100: 2, 101: 3}
    assert job_lines.shared_out(list(owners), owners, most=4, most_of_one=3) == [0, 100, 101, 1]
    assert job_lines.shared_out(list(owners), owners, most=50, most_of_one=3) == [0, 100, 101, 1, 2]


@pytest.mark.parametrize("between", ["\n", "\n ", "\n\n", "\n   "])
def test_endless_white_space_is_read_only_once(between: str) -> None:
    """Two megabytes: in time that grows by the square of that it would not end."""
    text = with_comment(record(7), between * (2_000_000 // len(between)))
    assert len(job_lines.parse_plain(text)) == 1
    parse_failed(text, 7)
