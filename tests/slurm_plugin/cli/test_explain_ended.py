"""`rightsizer explain` for an ended job: which job is meant, and what users learn to whom our folders are closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.decision import Decision
from accounting.decisions.token import format_token
from accounting.request import Grant, JobRequest
from accounting.store.database import open_store
from slurm_plugin.cli.explain.decision_words import decided_in_words
from slurm_plugin.cli.explain.job_id import JobId, parse_job_id, queued_records
from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.slurm import backends
from slurm_plugin.slurm.job_lines import HELD_AGAIN
from tests.accounting.report.report_store import fill, measured
from tests.builders import T0, FakeSacct, executable, job_line, step_line
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line
from tests.slurm_plugin.slurm.fake_queue import FakeQueue
from tests.slurm_plugin.slurm.queued import running, snapshot, waiting

CUT = Decision(
    id="1fcfceba2731",
    time_s=1.0,
    mode="enforce",
    applied=True,
    reason="resized",
    request=JobRequest(user="alice", num_tasks=1, cpus_per_task=8, mem_per_node_mib=8000),
    grant=Grant(cpus_per_task=1, mem_per_node_mib=512),
    model="v1",
)
NUMBERS = st.integers(0, 10**9)


@given(st.integers(1, 10**9), st.none() | NUMBERS, st.booleans())
def test_a_job_id_is_written_like_slurm_writes_it(number: int, part: int | None, is_task: bool) -> None:
    job_id = JobId(number, part) if is_task else JobId(number, None, part)
    assert parse_job_id(str(job_id)) == job_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "4_",
        "_4",
        "4711_3_1",
        "4711_3+1",
        "4711.batch",
        "-1",
        "4711 3",
        "٤٧",
        "4711_[1-3]",
        "0",
        "0_1",
    ],
)
def test_a_text_that_is_not_a_job_id_is_none(text: str) -> None:
    assert parse_job_id(text) is None


def test_the_id_of_a_task_is_not_read_as_one_number(run: Run, site: Site) -> None:
    engine = open_store(site.config.store.url, create=True)
    fill(
        engine,
        [
            measured(number, cluster="alpha", display_id=shown, submit_s=T0, start_s=T0, end_s=T0 + 60)
            for number, shown in ((47113, "47113"), (4750, "4711_3"), (4711, "4711_9"))
        ],
        with_steps=False,
    )
    engine.dispose()
    told = {row["job"] for row in json.loads(run("explain", "4711_3", "--format", "json").out)}
    assert told == {"4711_3"}
    assert run("explain", "4711_3", "--cluster", "Alpha", "--format", "json").code == 0
    assert_one_line(run("explain", "4711_3", "--cluster", "Beta"), 1, "but one of alpha")
    whole = run("explain", "4711", "--format", "json")
    assert {row["job"] for row in json.loads(whole.out)} == {"4711_9"}
    assert "4711 is Slurm's own number of 4711_9" in whole.err
    assert_one_line(run("explain", "4711_4"), 1, "has no job 4711_4")
    assert_one_line(run("explain", "4711+3"), 1, r"has no job 4711\+3")


def test_an_allocation_that_was_not_requested_is_shown_too(run: Run, site: Site) -> None:
    """For example, Slurm gives `--exclusive` everything on a node."""
    engine = open_store(site.config.store.url, create=True)
    fill(engine, [measured(7, cluster="alpha", asked_gpus=None, alloc_gpus=8)], with_steps=False)
    fill(engine, [measured(8, cluster="alpha", asked_gpus=None, alloc_gpus=0)], with_steps=False)
    engine.dispose()

    def told(job: str) -> list[tuple[int | None, int]]:
        rows = json.loads(run("explain", job, "--format", "json").out)
        return [(row["asked"], row["allocated"]) for row in rows if row["resource"] == "GPUs"]

    assert told("7") == [(None, 8)]
    assert told("8") == []


def test_a_job_whose_node_never_came_up_is_said_to_have_never_run(run: Run, site: Site) -> None:
    engine = open_store(site.config.store.url, create=True)
    never = msgspec.structs.replace(measured(8).use, wall_quality="absent")
    lost = [measured(number, cluster="alpha", state="NODE_FAIL") for number in (7, 8)]
    fill(engine, [lost[0], msgspec.structs.replace(lost[1], use=never)], with_steps=False)
    engine.dispose()
    assert "job 7 ended NODE_FAIL; " in run("explain", "7").err
    assert "its nodes did not come up, so it never ran; " in run("explain", "8").err


def test_a_task_that_failed_because_of_us_is_named_by_its_task_id(run: Run, site: Site) -> None:
    task = measured(4750, cluster="alpha", display_id="4711_3")
    engine = open_store(site.config.store.url, create=True)
    fill(engine, [task], with_steps=False)
    engine.dispose()
    entry = Entry(
        job_id=4750, restarts=0, what="lost", time_s=float(T0), cause="killed", user="alice", why="no script",
        decision_id=task.decision_id, cpu_hours=1.5, mem_gib_hours=3.0,
    )  # fmt: skip
    Journal(site.folder / "recovery").append(entry)
    said = run("explain", "4711_3").err
    assert "job 4711_3 failed because it had been cut: it was killed" in said
    assert "4750" not in said


def test_which_records_of_the_queue_belong_to_a_job_id() -> None:
    jobs = (
        waiting(20, array_job_id=20, array_tasks="4-9:2,12%2"),
        running(21, array_job_id=20, array_tasks="1"),
        running(30, het_job_id=30),
        running(31, het_job_id=30),
        waiting(7),
    )
    found = {
        text: [job.job_id for job in queued_records(job_id, jobs)]
        for text in ("20", "20_1", "20_4", "20_5", "20_12", "30", "30+1", "30+2", "31", "7", "7_1")
        if (job_id := parse_job_id(text))
    }
    assert found == {
        "20": [20, 21],
        "20_1": [21],
        "20_4": [20],
        "20_5": [],
        "20_12": [20],
        "30": [30, 31],
        "30+1": [31],
        "30+2": [],
        "31": [31],
        "7": [7],
        "7_1": [],
    }


def test_slurms_answer_replaces_the_store(run: Run, site: Site) -> None:
    """For a user to whom the store is closed, and in the minutes between a job's end and the next ingest."""
    lines = [
        job_line(
            7, ReqTRES="cpu=1,mem=512M", AllocTRES="cpu=1,mem=512M,node=1", AdminComment=format_token(CUT)
        ),
        step_line(7),
    ]
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", lines).command})
    told = run("explain", "7", "--format", "json")
    assert told.code == 0, told.err
    memory, cpus = json.loads(told.out)
    assert (memory["asked"], memory["allocated"], memory["used"]) == (8000, 512, 200)
    assert (cpus["asked"], cpus["allocated"]) == (8, 1)
    assert "not from the store: the store" in told.err
    assert (
        "(resized) was applied, mode enforce, model v1; this is known from the job's token alone" in told.err
    )
    why = " ".join(run("explain", "7").err.split())
    assert "of decision 1fcfceba2731 only the job's token was read; `rightsizer ingest` reads the rest" in why
    assert_one_line(run("explain", "8"), 1, "does not show you an ended job 8 either")


def test_a_hanging_daemon_is_reported_as_such(run: Run, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as an unknown job, which may be pending, nor with the advice to run `ingest`."""
    queue = FakeQueue(snapshot())
    queue.failing = "scontrol failed: Socket timed out"
    monkeypatch.setattr(backends, "open_queue", lambda _name: queue)
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", []).command})
    assert_one_line(run("explain", "8"), 1, "whether it waits or runs is not known: scontrol failed")
    monkeypatch.setattr("accounting.slurm.sacct.PERSON_WAITS_S", 0.3)
    hung = executable(site.folder / "hung", "#!/bin/sh\nexec sleep 60\n")
    site.configure(accounting={"sacct": str(hung)})
    assert_one_line(run("explain", "8"), 1, "Slurm's accounting gives no answer either: .* within 0.3 s")


def test_closed_folders_are_reported_without_a_traceback(site: Site) -> None:
    """As the shipped units make them: 0750, so that a plain user may enter none."""
    lines = [job_line(7, AdminComment=format_token(CUT)), step_line(7)]
    closed = site.folder / "closed"
    closed.mkdir()
    site.configure(
        accounting={"sacct": FakeSacct(site.folder / "slurm", lines).command},
        store={"url": f"sqlite:///{closed}/store.db"},
        models={"directory": str(closed / "models")},
        recovery={"directory": str(closed / "recovery")},
    )
    script = site.folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --mem=1G\n")
    # A folder that may be entered, but whose files may not be read, such as a recovery of root's makes elsewhere.
    noted = site.folder / "recovery"
    noted.mkdir()
    (noted / "recoveries-20990101.jsonl").write_text("")
    (noted / "recoveries-20990101.jsonl").chmod(0)
    closed.chmod(0)
    try:
        told = as_plain_user("explain", "7", "--config", str(site.config_file))
        assert told.returncode == 0, told.stderr
        assert f"cannot read {closed}: Permission denied" in told.stderr
        assert "cannot tell what `rightsizer recover` did recently" in told.stderr
        site.configure(recovery={"directory": str(noted)})
        told = as_plain_user("explain", "7", "--config", str(site.config_file))
        assert told.returncode == 0, told.stderr
        assert "did recently: cannot read the journal file" in told.stderr
        predicted = as_plain_user("predict", str(script), "--config", str(site.config_file))
        assert predicted.returncode == 1
        assert "you may not read the models" in predicted.stderr
        assert "sbatch --test-only" in predicted.stderr
        assert "Traceback" not in told.stderr + predicted.stderr
    finally:
        closed.chmod(0o755)


def as_plain_user(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line without root's right to bypass permissions."""
    capless = ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"]
    prefix = capless if os.geteuid() == 0 else []
    return subprocess.run(
        [*prefix, sys.executable, "-m", "slurm_plugin.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        (
            format_token(CUT),
            r"it was granted 1 CPU (you asked for 8), 512 MiB per node (you asked for 7.8 GiB) (",
        ),
        (
            format_token(CUT).replace("granted=", "would=").replace("enforce", "observe"),
            "it has what it asked for; 1 CPU (you asked for 8), 512 MiB per node (you asked for 7.8 GiB) would be",
        ),
        (
            f"{format_token(CUT)};recovery=memory:0",
            "its original request was restored except its CPUs, because a run with less failed (",
        ),
        (
            f"{format_token(CUT).replace('granted=cpus:1,', 'granted=')};recovery=memory:0",
            "its original request was restored, because a run with less failed (",
        ),
        (
            "rightsizer/1;id=ab;mode=enforce;why=no-evidence",
            "it has what it asked for (decision ab, no-evidence",
        ),
        ("theirs", "its admin comment holds no decision of rightsizer"),
    ],
)
def test_a_pending_job_is_explained_by_its_decision(comment: str, said: str) -> None:
    assert decided_in_words(waiting(7, admin_comment=comment)).startswith(said)


def test_a_job_held_by_recovery_is_not_said_to_have_its_whole_request() -> None:
    """Seen on 22.05: a slurm_job_modify that forbids changes of memory lets the token pass."""
    held = waiting(
        7, held=True, reason=HELD_AGAIN, admin_comment=f"{format_token(CUT)};recovery=out_of_memory:0"
    )
    assert decided_in_words(held).startswith(
        "its original request is being restored, because a run with less"
    )
