"""`rightsizer replay` as an admin sees it: from a store, on given nodes, those of a scenario or of the live cluster."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from accounting.records import Attempt
from accounting.store.database import open_store
from bench import replay_rate
from tests.builders import DAY_S, T0, attempt, executable, step
from tests.conftest import Site
from tests.models.simulation.test_scenario import SCENARIO
from tests.slurm_plugin.conftest import Run, assert_one_line
from tests.stores import write_attempts, write_steps
from tests.traces import TRACES, needs_traces

DUMP = "slurm/mit_supercloud_slurmdbd.csv.gz"
SMALL = ("--nodes", "1x16:16000")
JSON = ("--format", "json")


def stream(jobs: int, **changes: Any) -> list[Attempt]:
    """Return a job for each minute that runs for ten, waits five, and uses a fraction of its request."""
    return [
        attempt(
            job_id=number + 1,
            submit_s=T0 + 60 * number,
            start_s=T0 + 60 * number + 300,
            **{"elapsed_s": 600, **changes},
        )
        for number in range(jobs)
    ]


def store(site: Site, attempts: list[Attempt], *, direct: int = 0) -> None:
    """Store attempts with their steps; the first `direct` ones are not batch jobs."""
    engine = open_store(site.config.store.url, create=True)
    with engine.begin() as connection:
        write_attempts(connection, attempts)
        write_steps(
            connection,
            ((one.row, step(step_id="0" if at < direct else "batch")) for at, one in enumerate(attempts)),
        )
    engine.dispose()


def local(time_s: int) -> str:
    return datetime.fromtimestamp(time_s).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def test_replay_shows_the_past_its_simulation_and_the_simulation_with_the_service(
    run: Run, site: Site
) -> None:
    store(site, stream(90))
    ran = run("replay", *SMALL, *JSON)
    assert ran.code == 0, ran.err
    recorded, asked, served = json.loads(ran.out)
    assert [(row["policy"], row["sizing"]) for row in (recorded, asked, served)] == [
        ("", "recorded"),
        ("easy", "as asked"),
        ("easy", "rightsizer"),
    ]
    assert recorded["mean wait (s)"] == 300
    assert asked["mean wait (s)"] > 3 * served["mean wait (s)"]
    assert served["resized"] > 60
    assert {row["completed"] for row in (recorded, asked, served)} == {90}
    assert "learned from 0 jobs that had ended before" in ran.err
    assert "energy is estimated with the site's table" in ran.err


def test_the_table_has_a_column_for_each_of_the_three_and_csv_a_row(run: Run, site: Site) -> None:
    store(site, stream(20))
    policies = ("--policy", "fifo", "--policy", "easy")
    shown = run("replay", *SMALL, *policies).out
    for name in ("recorded", "fifo, as asked", "fifo, rightsizer", "easy, as asked", "easy, rightsizer"):
        assert name in shown
    rows = list(csv.DictReader(io.StringIO(run("replay", *SMALL, *policies, "--format", "csv").out)))
    assert [row["policy"] for row in rows] == ["", "fifo", "fifo", "easy", "easy"]


def test_a_window_can_be_chosen_and_jobs_before_it_are_learned_from(run: Run, site: Site) -> None:
    store(site, stream(90))
    since, until = T0 + 60 * 60, T0 + 60 * 80
    ran = run("replay", *SMALL, *JSON, "--since", local(since), "--until", local(until))
    assert [row["jobs"] for row in json.loads(ran.out)] == [20, 20, 20]
    assert "learned from 46 jobs that had ended before; 14 jobs still waiting or running then" in ran.err
    assert json.loads(ran.out)[2]["resized"] == 20
    forgetful = run(
        "replay", *SMALL, *JSON, "--since", local(since), "--until", local(until), "--history", "1s"
    )
    assert "learned from 0 jobs that had ended before; 14 jobs still waiting or running then" in forgetful.err


def test_by_default_the_last_thirty_days_of_the_store_count(run: Run, site: Site) -> None:
    old = attempt(job_id=999, submit_s=T0 - 40 * DAY_S, start_s=T0 - 40 * DAY_S)
    store(site, [old, *stream(10)])
    ran = run("replay", *SMALL, *JSON)
    assert json.loads(ran.out)[0]["jobs"] == 10
    assert "learned from 1 job " in ran.err


def test_a_shorter_store_is_replayed_from_its_first_job(run: Run, site: Site) -> None:
    store(site, stream(11))
    # Each holds 8 of 80 CPUs for ten minutes, the first from 300 s on, and the window ends with the last submission.
    ran = run("replay", "--nodes", "5x16:16000", *JSON)
    held_s = sum(max(0, 601 - (60 * number + 300)) for number in range(11))
    expected = 100 * 8 * held_s / (601 * 80)
    assert json.loads(ran.out)[0]["CPU allocated %"] == pytest.approx(expected, abs=0.051)


def test_opted_out_jobs_and_jobs_other_than_batch_jobs_stay_as_requested(run: Run, site: Site) -> None:
    mine, opted = stream(30), stream(40, comment="rightsize=off")[30:]
    store(site, [*mine, *opted], direct=5)
    ran = run("replay", *SMALL, *JSON)
    assert "5 jobs were not batch jobs and stay as asked" in ran.err
    assert "10 jobs had opted out by their comment and stay as asked" in ran.err
    assert 0 < json.loads(ran.out)[2]["resized"] <= 25


def test_the_policy_of_the_site_counts(run: Run, site: Site) -> None:
    store(site, stream(60))
    site.configure(policy={"least_share": 1.0})
    _, asked, served = json.loads(run("replay", *SMALL, *JSON).out)
    assert served["resized"] == 0
    assert served["mean wait (s)"] == asked["mean wait (s)"]


def test_the_nodes_of_a_scenario_are_used(run: Run, site: Site, tmp_path: Path) -> None:
    store(site, stream(5))
    file = tmp_path / "s.toml"
    file.write_text(SCENARIO)
    ran = run("replay", "--scenario", str(file), *JSON)
    assert ran.code == 0, ran.err
    assert run("replay", "--scenario", str(file), *SMALL).code == 2


NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=16 CPUAlloc=0 CPUEfctv={cpus} CPUTot=16 CPULoad=0.10 Gres=gpu:2 "
    "OS=Linux 6.1.0-13 #1 SMP RealMemory=16000 AllocMem=0 MemSpecLimit=1000 State={state} ThreadsPerCore=1 "
    "Partitions={partition} CfgTRES=cpu=16,mem=16000M,billing=16,gres/gpu=2 AllocTRES="
)


def test_the_nodes_of_the_live_cluster_are_asked_for(
    run: Run, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(site, [*stream(20), *stream(21, req_cpus=15, alloc_cpus=15)[20:]])
    lines = [
        NODE.format(name="n1", cpus=14, state="IDLE", partition="main,gpu"),
        NODE.format(name="n2", cpus=16, state="DOWN*+DRAIN", partition="main"),
        NODE.format(name="n3", cpus=16, state="IDLE", partition="other"),
        NODE.format(name="n4", cpus=16, state="FUTURE", partition="main"),
    ]
    executable(tmp_path / "scontrol", "#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    ran = run("replay", *JSON)
    assert ran.code == 0, ran.err
    assert "1 node down or drained now; counted as if up" in ran.err
    assert json.loads(ran.out)[0]["CPU allocated %"] > 0
    assert run("replay", "--partition", "main", *JSON).code == 0
    assert_one_line(run("replay", "--partition", "gpu"), 1, "no job that ran was submitted")


def test_without_a_live_cluster_it_says_how_to_give_nodes(
    run: Run, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(site, stream(5))
    monkeypatch.setenv("PATH", str(tmp_path))
    # Before the past is read, which takes long.
    monkeypatch.delattr("slurm_plugin.cli.simulation.replay.read_past")
    assert_one_line(
        run("replay"), 1, "no nodes to replay on: cannot run scontrol.*; or give the nodes .* --nodes"
    )


def test_jobs_that_do_not_fit_are_an_error_unless_they_are_left_out(run: Run, site: Site) -> None:
    store(site, [*stream(5), attempt(job_id=99, submit_s=T0, req_cpus=64, alloc_cpus=64)])
    said = "1 of 6 jobs cannot run on these nodes: 1 ask for up to 64 CPUs on one node, but no node has more than 16"
    assert_one_line(run("replay", *SMALL), 1, f"{said}; give the nodes .*--leave-out")
    ran = run("replay", *SMALL, "--leave-out", *JSON)
    assert [row["jobs"] for row in json.loads(ran.out)] == [5, 5, 5]
    assert f"{said}; they are left out" in ran.err
    nothing = run("replay", "--nodes", "1x1:100", "--leave-out")
    assert (nothing.code, nothing.out) == (1, "")
    assert "and there are no other jobs in that time" in nothing.err


def test_too_few_nodes_for_the_jobs_that_really_ran_cause_a_warning(run: Run, site: Site) -> None:
    store(site, stream(20))
    said = "these nodes are fewer than the jobs ran on: up to 80 CPUs (they have 16)"
    assert said in run("replay", *SMALL, *JSON).err
    assert "fewer" not in run("replay", "--nodes", "5x16:16000", *JSON).err


def test_an_error_is_reported_in_one_line(run: Run, site: Site) -> None:
    assert_one_line(run("replay", *SMALL), 1, "the store .* does not exist; run `rightsizer ingest` first")
    open_store(site.config.store.url, create=True).dispose()
    assert_one_line(run("replay", *SMALL), 1, "the store has no attempts; run `rightsizer ingest` first")
    store(site, [*stream(2), attempt(cluster="beta", job_id=7)])
    assert_one_line(run("replay", *SMALL), 1, "several clusters: alpha, beta; choose one with --cluster")
    assert_one_line(run("replay", *SMALL, "--cluster", "gamma"), 1, "no cluster gamma; it has alpha, beta")
    assert_one_line(run("replay", *SMALL, "--cluster", "beta", "--policy", "x"), 2, "there is no policy x")
    window = ("--cluster", "beta", "--since", "2023-01-02", "--until", "2023-01-01")
    turned = run("replay", *SMALL, *window)
    assert turned.code == 2
    assert "give a --since before --until" in turned.err
    assert_one_line(run("replay", *SMALL, *window[:2], "--since", "2099-01-02"), 1, "give a --since before")
    early = run("replay", *SMALL, "--cluster", "beta", "--since", "0001-01-01")
    assert (early.code, early.out) == (2, "")
    assert "--since 0001-01-01 is not a time at which jobs can run" in early.err
    assert run("replay", *SMALL, "--cluster", "beta", *JSON).code == 0
    assert run("replay", *SMALL, "--cluster", "Beta", *JSON).code == 0


@pytest.mark.parametrize("text", ["16:16000", "0x16:16000", "1x16", "1x16:16000:a", "2x16:1.5"])
def test_invalid_nodes_are_a_usage_error(text: str, run: Run, site: Site) -> None:
    store(site, stream(1))
    ran = run("replay", "--nodes", text)
    assert ran.code == 2
    assert "write COUNTxCPUS:MEM_MIB[:GPUS], such as 20x64:257000:4" in ran.err


def test_the_replay_is_drawn(run: Run, site: Site, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    store(site, stream(20))
    picture = tmp_path / "r.svg"
    ran = run("replay", *SMALL, "--plot", str(picture), *JSON)
    assert ran.code == 0, ran.err
    assert "</svg>" in picture.read_text()
    refused = run("replay", *SMALL, "--plot", str(tmp_path / "r.nonsense"))
    assert (refused.code, refused.out) == (2, "")
    assert "give a file whose name ends in .png, .svg, .pdf" in refused.err


def test_the_benchmark_counts_every_step(site: Site) -> None:
    replay_rate.fill(site.config, 400)
    rows = replay_rate.measure(site.config, 300, 100, 4)
    assert [(row["step"], row["jobs"]) for row in rows] == [
        ("read", 400),
        ("as asked", 300),
        ("learn from before", 100),
        ("with the service", 300),
    ]


@needs_traces(DUMP)
@pytest.mark.usefixtures("site")
def test_no_saving_is_claimed_for_a_real_cluster_that_measured_nothing(run: Run) -> None:
    assert run("ingest", "--from-file", str(TRACES / DUMP), "--zone", "UTC").code == 0
    ran = run("replay", "--nodes", "700x48:386000", *JSON)
    assert ran.code == 1
    assert re.search(
        r"5 of 5,5\d\d jobs cannot run on these nodes: 5 multi-node jobs ask for more than all", ran.err
    )
    ran = run("replay", "--nodes", "700x48:386000", "--leave-out", *JSON)
    recorded, asked, served = json.loads(ran.out)
    assert {**served, "sizing": ""} == {**asked, "sizing": ""}
    # Some of that cluster's jobs, alone on all its nodes; in reality they had waited for others.
    assert (asked["mean wait (s)"], recorded["mean wait (s)"] > 1000) == (0, True)
    assert asked["completed"] == recorded["completed"] > 3000
    assert re.search(r"5,\d\d\d jobs: CPU use was not measured; that resource stays as asked", ran.err)
