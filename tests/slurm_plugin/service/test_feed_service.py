"""From a job's end to the next similar job: real accounting rows, a real store, a real service, and no training."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from accounting.decisions.token import find_token
from accounting.request import Grant
from models.training import training
from models.versions import registry
from models.versions.feed import FOLDER
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.protocol import Reply, Request, decode_reply, encode_request
from tests.builders import DAY_S, FakeSacct, SacctRow, job_line, past, step_line, submission
from tests.conftest import IN_USE_S, PATIENCE_S, Site, TrainedModel
from tests.full_disk import fill
from tests.slurm_plugin.conftest import Run
from tests.waiting import wait_until

WITHIN_S = 2 * IN_USE_S  # with RIGHTSIZER_IN_USE_S=1, within the two seconds that are promised
# A family that no model has ever seen.
NEW = submission(name="brandnew", script="", cpus_per_task=8, mem_per_node_mib=8000)


def ended(job_ids: range, name: str = "brandnew", ago_s: int = 300) -> list[SacctRow]:
    """Return jobs that ended minutes ago, each after 100 s."""
    start_s = int(time.time()) - ago_s
    return [
        row
        for job_id in job_ids
        for row in (
            job_line(job_id, start_s + job_id % 100, JobName=name),
            step_line(job_id, start_s=start_s + job_id % 100),
        )
    ]


def reply(site: Site, job: Submission = NEW) -> Reply:
    line = encode_request(Request(v=1, id="7", kind="submit", job=job))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(site.socket))
        client.sendall(line)
        with client.makefile("rb") as lines:
            return decode_reply(lines.readline())


def wait_for_a_cut(site: Site, within_s: float = WITHIN_S) -> float:
    """Submit again and again until the job is cut; return how many seconds that took."""
    began = time.monotonic()
    while reply(site).grant.mem_per_node_mib is None:
        assert time.monotonic() - began < within_s, "its family's jobs do not count"
        time.sleep(0.02)
    return time.monotonic() - began


def seen(site: Site, job: Submission = NEW) -> int:
    """Return on how many jobs an answer rests, as it tells the user."""
    said = reply(site, job).message
    return int(said.split(" earlier ")[0].rsplit(" ", 1)[1].lstrip("("))


@pytest.fixture
def fed(site: Site, trained_model: TrainedModel) -> Site:
    """Return an enforcing site with a model, and accounting with five jobs of a family that the model does not know."""
    shutil.copytree(trained_model.directory, site.models, symlinks=True)
    sacct = FakeSacct(site.folder / "slurm", ended(range(900, 905)))
    site.configure(mode="enforce", accounting={"sacct": sacct.command})
    return site


def told_until(process: subprocess.Popen[bytes], words: bytes) -> bytes:
    """Return the output of a process on stderr up to these words, and what came with them."""
    assert process.stderr is not None
    said = b""
    while words not in said:
        assert select.select([process.stderr], [], [], PATIENCE_S)[0], said
        part = os.read(process.stderr.fileno(), 65_536)
        assert part, said
        said += part
    return said


def feed_files(site: Site) -> list[Path]:
    return sorted((site.models / FOLDER).glob("*.jsonl"))


def test_an_unknown_family_is_cut_within_seconds_of_ingest(fed: Site, run: Run) -> None:
    fed.serve()
    assert reply(fed).grant == Grant()
    assert run("ingest").code == 0
    wait_for_a_cut(fed)
    token = find_token(reply(fed).token)
    assert token is not None
    assert token.model == registry.current_version(fed.models)


def test_each_job_counts_once_also_after_a_restart_and_in_a_new_model(fed: Site, run: Run) -> None:
    assert run("ingest").code == 0
    service = fed.serve()
    wait_for_a_cut(fed)
    assert seen(fed) == 5
    [file] = feed_files(fed)
    # Ingest was cut off before it committed: the next one feeds the same jobs again.
    file.write_bytes(file.read_bytes() * 2)
    assert (
        run("ingest", "--since", time.strftime("%Y-%m-%d", time.localtime(time.time() - 2 * DAY_S))).code == 0
    )
    assert file.read_bytes().count(b"\n") == 10, "what is in the store already is not told again"
    time.sleep(1.2)
    assert seen(fed) == 5
    service.send_signal(signal.SIGTERM)
    service.wait(PATIENCE_S)
    fed.serve()
    assert seen(fed) == 5
    # This model learns from the very jobs in the feed.
    assert run("train").code == 0
    assert feed_files(fed) == [file]
    time.sleep(1.2)
    token = find_token(reply(fed).token)
    assert token is not None
    assert token.model == registry.current_version(fed.models)
    assert seen(fed) == 5


def test_a_new_model_that_never_saw_the_jobs_knows_them_from_its_first_answer(fed: Site, run: Run) -> None:
    assert run("ingest").code == 0
    fed.serve()
    wait_for_a_cut(fed)
    attempts = past(30, seed=2)
    new = training.save(training.train(attempts, 50), fed.models, 2e9)
    registry.promote(fed.models, new)
    until = time.monotonic() + WITHIN_S
    models = set()
    while new not in models:
        answer = reply(fed)
        assert answer.grant.mem_per_node_mib is not None
        token = find_token(answer.token)
        assert token is not None
        models.add(token.model)
        assert time.monotonic() < until


def test_a_remembered_answer_is_forgotten_when_its_family_changes(fed: Site, run: Run) -> None:
    assert run("ingest").code == 0
    fed.serve()
    wait_for_a_cut(fed)
    first = reply(fed).grant.mem_per_node_mib
    assert reply(fed).grant.mem_per_node_mib == first
    assert first is not None
    rows = ended(range(900, 905)) + ended(range(905, 930), ago_s=200)
    fed.configure(accounting={"sacct": FakeSacct(fed.folder / "slurm", rows).command})
    assert run("ingest").code == 0
    until = time.monotonic() + WITHIN_S
    while (now := reply(fed).grant.mem_per_node_mib) == first:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert now is not None
    assert now < first, "thirty jobs without a surprise leave less open than five"


def test_what_slurm_adds_about_steps_after_the_end_of_a_job_counts_as_soon(fed: Site, run: Run) -> None:
    rows, start_s, used = ended(range(900, 904)), int(time.time()) - 200, str(7000 * 1024**2)
    rows.append(job_line(904, start_s, JobName="brandnew"))
    fed.configure(accounting={"sacct": FakeSacct(fed.folder / "slurm", rows).command})
    assert run("ingest").code == 0
    fed.serve()
    wait_for_a_cut(fed)
    late = step_line(904, start_s=start_s, MaxRSS=used, TRESUsageInMax=f"mem={used}")
    fed.configure(accounting={"sacct": FakeSacct(fed.folder / "slurm", [*rows, late]).command})
    assert run("ingest").code == 0
    until = time.monotonic() + WITHIN_S
    while (reply(fed).grant.mem_per_node_mib or 8000) <= 7000:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert seen(fed) == 5


def test_damaged_and_unreadable_files_never_stop_answers_and_are_logged_once(fed: Site, run: Run) -> None:
    folder = fed.models / FOLDER
    (folder / "jobs-20200101.jsonl").mkdir(parents=True)
    (folder / "jobs-20200102.jsonl").write_bytes(b"rubbish\n[1]\n")
    service = fed.serve()
    assert reply(fed).id == "7"
    with (folder / "jobs-20200102.jsonl").open("ab") as feed:
        feed.write(b"{}\n")
    assert run("ingest").code == 0
    # All are far older than any training needs; the one that cannot be removed stays.
    assert (folder / "jobs-20200101.jsonl").is_dir()
    wait_for_a_cut(fed)
    time.sleep(1.2)
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=PATIENCE_S)
    assert service.returncode == 0
    assert log.decode().count("jobs-20200101.jsonl cannot be read: Is a directory") == 1
    assert log.decode().count("jobs-20200102.jsonl holds lines that are no finished jobs") == 1
    assert b"Traceback" not in log


def test_a_feed_that_cannot_be_written_does_not_make_ingest_fail(fed: Site, run: Run) -> None:
    (fed.models / FOLDER).write_text("no folder")
    ran = run("ingest", "--format", "json")
    assert ran.code == 0
    assert next(row for row in json.loads(ran.out) if row["what"] == "attempts")["new"] == 5
    assert "new jobs count only from the next training on" in ran.err
    assert "Traceback" not in ran.err


def test_a_feed_on_a_full_disk_asks_for_room(fed: Site, run: Run) -> None:
    fill(fed.models / FOLDER, "jobs-*.jsonl")
    ran = run("ingest")
    assert (ran.code, "No space left on device; free some space there" in ran.err) == (0, True)


def test_jobs_that_ended_long_ago_are_left_to_training(fed: Site, run: Run) -> None:
    rows = ended(range(900, 905), ago_s=3 * 86400)
    fed.configure(accounting={"sacct": FakeSacct(fed.folder / "slurm", rows).command})
    assert run("ingest").code == 0
    assert feed_files(fed) == []


def test_predict_knows_what_the_service_knows(fed: Site, run: Run) -> None:
    script = fed.folder / "brandnew"
    script.write_text("#!/bin/sh\n#SBATCH -c 8 --mem=8000\n")

    def granted() -> float:
        ran = run("predict", str(script), "--user", "alice", "--format", "json")
        [mib] = [row["granted"] for row in json.loads(ran.out) if row["resource"] == "memory (MiB)"]
        return float(mib)

    assert granted() == 8000
    assert run("ingest").code == 0
    assert granted() < 8000


def test_a_watching_ingest_feeds_the_service_each_new_job_until_it_is_stopped(fed: Site) -> None:
    # Between two rounds that read the whole overlap, only the last minutes are read again.
    rows = ended(range(900, 905), ago_s=130)
    FakeSacct(fed.folder / "slurm", [])
    fed.serve()
    watching = fed.start("ingest", "--watch", "1")
    time.sleep(3)
    assert watching.poll() is None
    assert reply(fed).grant == Grant()
    FakeSacct(fed.folder / "slurm", rows)
    wait_for_a_cut(fed, within_s=PATIENCE_S)
    sacct = fed.folder / "slurm" / "sacct"
    sacct.rename(sacct.with_name("gone"))
    said = told_until(watching, b"this round failed")
    time.sleep(2.5)
    sacct.with_name("gone").rename(sacct)
    more = rows + ended(range(905, 908), ago_s=130)
    FakeSacct(fed.folder / "slurm", more)
    wait_until(lambda: seen(fed) == 8)
    watching.send_signal(signal.SIGTERM)
    out, err = watching.communicate(timeout=PATIENCE_S)
    assert watching.returncode == 0
    assert out == b""
    lines = (said + err).decode().splitlines()
    told = [line.split("new: ")[1].split(" attempts")[0] for line in lines if " attempts" in line]
    assert told == ["5", "3"]
    failures = [line for line in lines if "this round failed" in line]
    assert len(failures) == len(set(failures)), "the same failure is said once"
    assert lines[-1] == "stopped"


def test_a_watching_ingest_can_be_stopped_between_two_windows(fed: Site) -> None:
    sacct = FakeSacct(fed.folder / "slurm", [])
    fed.configure(accounting={"sacct": sacct.command, "first_days": 3000})
    watching = fed.start("ingest", "--watch", "1")
    wait_until(sacct.calls, every_s=0.01)
    watching.send_signal(signal.SIGTERM)
    _, err = watching.communicate(timeout=PATIENCE_S)
    assert (watching.returncode, err.decode().splitlines()[-1]) == (0, "stopped")
    assert len(sacct.calls()) < 1000, "the first round has some 3000 windows"


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("other", [("--report",), ("--retry",), ("--since", "2026-01-01"), ("--prune", "9")])
def test_watch_cannot_be_combined_with_options_for_one_run(other: tuple[str, ...], run: Run) -> None:
    ran = run("ingest", "--watch", "1", *other)
    assert ran.code == 2
    assert "--watch can only be combined with" in ran.err
