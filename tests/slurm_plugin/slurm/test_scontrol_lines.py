"""scontrol's complaints: assigned to their updates, and separated from what it says of slurm.conf at its start."""

from pathlib import Path

import pytest

from accounting.errors import SlurmError
from slurm_plugin.slurm.scontrol_lines import TOO_LONG, run_update, run_updates, show_jobs
from tests.builders import executable

# Printed by every command on a site whose slurm.conf has an outdated option (seen on 22.05), or PrologFlags=Contain
# with a ProctrackType other than proctrack/cgroup; the commands work all the same.
OF_ITSELF = "scontrol: error: Ignoring ControlMachine since SlurmctldHost is set."
SILENT = "Unable to contact slurm controller (connect failure)"
GONE = "Invalid job id specified for job 99"
# Like scontrol: it repeats what it does not know, and exits with 1 if any update failed.
SCRIPT = f"""#!/bin/sh
echo "{OF_ITSELF}" >&2
code=0
answer() {{
  case "$*" in
    *JobId=99*) echo "{GONE}" >&2; code=1 ;;
    *JobId=98*) exit 1 ;;
    *JobId=97*) echo "{SILENT}" >&2; code=1 ;;
    *JobId=96*) exec sleep 60 ;;
    update*) ;;
    *) echo "invalid keyword: $*" >&2; code=1 ;;
  esac
}}
[ $# -gt 0 ] && {{ answer "$@"; exit $code; }}
while read -r line; do answer "$line"; done
exit $code
"""


@pytest.fixture(autouse=True)
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "scontrol", SCRIPT)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_words_about_slurm_conf_are_not_a_complaint_about_the_first_update() -> None:
    updates = ["update JobId=1 SiteFactor=1", "update JobId=99 SiteFactor=1", "update JobId=2 SiteFactor=1"]
    assert run_updates(updates, patience_s=10.0) == ["", GONE, ""]
    assert run_updates(updates[1:], patience_s=10.0) == [GONE, ""]


def test_words_about_slurm_conf_are_not_a_complaint_about_a_single_update() -> None:
    assert run_update("update", "JobId=1", "AdminComment=x", patience_s=10.0) == ""
    assert run_update("update", "JobId=99", "AdminComment=x", patience_s=10.0) == GONE
    assert run_update("update", "JobId=98", patience_s=10.0) == OF_ITSELF


def test_a_task_list_too_long_for_a_program_does_not_block_the_others() -> None:
    lists = [",".join(map(str, range(0, most, 2))) for most in (2_000, 40_000, 60_000)]
    assert len(lists[1]) < 128 * 1024 < len(lists[2])
    updates = [f"update JobId=1_[{one}] SiteFactor=1" for one in lists]
    assert run_updates(["update JobId=2", *updates, "update JobId=99"], patience_s=10.0) == [
        "", "", "", TOO_LONG, GONE
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("updates", "taken"), [(["JobId=98"], "0 of 1"), (["JobId=1", "JobId=98", "JobId=2"], "1 of 3")]
)
def test_a_scontrol_that_ends_early_is_reported(updates: list[str], taken: str) -> None:
    with pytest.raises(SlurmError, match=f"after {taken} updates"):
        run_updates([f"update {update}" for update in updates], patience_s=10.0)


@pytest.mark.parametrize(
    ("job", "patience_s", "words"), [(97, 10.0, "does not answer"), (96, 0.2, "within 0.2 s")]
)
def test_a_slurmctld_that_does_not_answer_is_no_complaint_about_a_job(
    job: int, patience_s: float, words: str
) -> None:
    with pytest.raises(SlurmError, match=words):
        run_update("update", f"JobId={job}", "AdminComment=x", patience_s=patience_s)
    with pytest.raises(SlurmError, match=words):
        run_updates([f"update JobId={job} SiteFactor=1"], patience_s=patience_s)


def test_a_missing_scontrol_is_no_complaint_about_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scontrol").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="put Slurm's commands on the PATH"):
        run_update("update", "JobId=1", patience_s=10.0)


# Like `scontrol show job`: it repeats its input if it was built with readline, and prints prompts in any case.
SHOWING = f"""#!/bin/sh
echo "{OF_ITSELF}" >&2
[ "$1 $2" = "--all --details" ] || exit 1
while printf 'scontrol: ' && read -r show what of; do
  ECHO
  case "$what $of" in
    "hostnames "*) echo "$of" ;;
    "job 99") echo "slurm_load_jobs error: Invalid job id specified" >&2 ;;
    "job 98") exit 1 ;;
    "job 97") echo "slurm_load_jobs error: {SILENT}" >&2 ;;
    "job 96") echo "slurm_load_jobs error: Access/permission denied" >&2 ;;
    *) printf 'JobId=%s JobName=x\n\nnext-0x\nscontrol: show hostnames next-0x\n   StdOut=/x\n\n' "$of" ;;
  esac
done
exit 1
"""


@pytest.fixture(params=["", 'echo "$show $what $of"'], ids=["plain", "readline"])
def showing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    executable(tmp_path / "scontrol", SHOWING.replace("ECHO", request.param))


@pytest.mark.usefixtures("showing")
def test_each_job_is_shown_separately_whatever_its_texts_contain() -> None:
    texts = "next-0x\nscontrol: show hostnames next-0x\n   StdOut=/x\n\n"
    shown = show_jobs([1, 99, 2], "--all", "--details", patience_s=10.0)
    assert shown == [f"JobId=1 JobName=x\n\n{texts}", "", f"JobId=2 JobName=x\n\n{texts}"]
    assert show_jobs([], patience_s=10.0) == []


@pytest.mark.usefixtures("showing")
@pytest.mark.parametrize(
    ("job", "words"), [(98, "not shown all of 3"), (97, "Unable to contact"), (96, "permission denied")]
)
def test_a_job_that_is_not_shown_is_not_taken_for_gone(job: int, words: str) -> None:
    with pytest.raises(SlurmError, match=words):
        show_jobs([1, job, 2], "--all", "--details", patience_s=10.0)
