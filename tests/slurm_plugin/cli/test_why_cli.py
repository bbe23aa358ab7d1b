"""What a prediction is based on, on the command line: before a job is submitted, and after it was decided."""

import json
import shutil
import time
from typing import Any

import msgspec
import pytest

from accounting.decisions.decision import Decision, PredictedUnder
from accounting.decisions.token import find_token
from accounting.store.database import open_store
from accounting.store.records import read_decision, write_decisions
from models.demand.prediction import ChainSettings
from models.versions import registry
from slurm_plugin.service.decide import chain_settings_then, recorded_settings
from slurm_plugin.service.protocol import decode_reply
from tests.builders import FakeSacct, SacctRow, job_line, step_line, submission
from tests.conftest import Site, TrainedModel
from tests.slurm_plugin.conftest import Run
from tests.slurm_plugin.service.asking import asked, handler_of, line_of

JOB = submission(name="brandnew", script="", cpus_per_task=8, mem_per_node_mib=8000)


def ended(job_ids: range, admin_comment: str = "") -> list[SacctRow]:
    start_s = int(time.time()) - 300
    return [
        row
        for job_id in job_ids
        for row in (
            job_line(job_id, start_s + job_id % 100, JobName="brandnew", AdminComment=admin_comment),
            step_line(job_id, start_s=start_s + job_id % 100),
        )
    ]


@pytest.fixture
def fed(site: Site, trained_model: TrainedModel, run: Run) -> Site:
    """Return an enforcing site whose model knows five jobs of a family only from the feed."""
    shutil.copytree(trained_model.directory, site.models, symlinks=True)
    sacct = FakeSacct(site.folder / "slurm", ended(range(900, 905)))
    site.configure(mode="enforce", accounting={"sacct": sacct.command})
    assert run("ingest").code == 0
    return site


def decided(site: Site) -> str:
    """Let the service decide the job; return its token."""
    return decode_reply(asked(handler_of(site), line_of(JOB))).token


def decision_of(site: Site, token: str) -> Decision:
    found = find_token(token)
    assert found is not None
    engine = open_store(site.config.store.url)
    try:
        decision = read_decision(engine, found.decision_id)
    finally:
        engine.dispose()
    assert decision is not None
    return decision


def rows(out: str, resource: str, part: str) -> list[dict[str, Any]]:
    return [row for row in json.loads(out) if (row["resource"], row["part"]) == (resource, part)]


def test_predict_says_whose_files_it_cannot_look_at(fed: Site, run: Run) -> None:
    fed.configure(inputs={"roots": [str(fed.folder)]})
    script = fed.folder / "job.sh"
    script.write_text("#!/bin/sh\n./fit x\n", encoding="utf-8")
    told = run("predict", str(script), "--user", "no-such-user")
    assert "the size of the input is not considered: this machine has no user no-such-user" in told.err


def test_predict_says_why_it_grants_what(fed: Site, run: Run) -> None:
    script = fed.folder / "brandnew"
    script.write_text("#!/bin/sh\n#SBATCH -c 8 --mem=8000\n")
    plain = run("predict", str(script), "--user", "alice", "--format", "json")
    predicted = {row["resource"]: row["predicted"] for row in json.loads(plain.out)}
    why = run("predict", "--why", str(script), "--user", "alice", "--format", "json")
    assert why.code == 0, why.err
    steps = rows(why.out, "memory (MiB)", "step")
    assert steps[0]["what"] == "the most that one of 5 jobs of alice named brandnew needed"
    assert steps[0]["figure"] == 200
    assert steps[-1]["figure"] <= predicted["memory (MiB)"] < steps[-1]["figure"] + 32 + 128
    assert rows(why.out, "CPUs per task", "step")[-1]["figure"] == pytest.approx(predicted["CPUs"], abs=0.01)
    assert round(rows(why.out, "wall time (s)", "step")[-1]["figure"]) == predicted["wall time (s)"]
    jobs = [row["what"] for row in rows(why.out, "memory (MiB)", "job")]
    assert [what.split(",")[0] for what in jobs[1:]] == [
        f"of the newest: job {job_id}" for job_id in (904, 903, 902)
    ]
    assert rows(why.out, "memory (MiB)", "model")[0]["what"].startswith("the growth model is not used")
    table = run("predict", "--why", str(script), "--user", "alice").out
    assert "with the site's margin: the prediction" in table
    nobody = run("predict", "--why", str(script), "--user", "stranger")
    assert (nobody.code, nobody.out, "nothing to show" in nobody.err) == (0, "", True)


def test_explain_gives_the_reasons_from_the_time_of_the_decision(fed: Site, run: Run) -> None:
    token = decided(fed)
    more = ended(range(950, 951), admin_comment=token)
    fed.configure(
        accounting={"sacct": FakeSacct(fed.folder / "slurm", ended(range(900, 930)) + more).command}
    )
    time.sleep(0.01)
    assert run("ingest").code == 0
    decision = decision_of(fed, token)
    why = run("explain", "--why", "--format", "json", "950")
    assert why.code == 0, why.err
    # Twenty-six more have ended since, this one among them.
    assert "one of 5 jobs" in rows(why.out, "memory (MiB)", "step")[0]["what"]
    predicted = {reason.dimension: reason.predicted for reason in decision.dimensions}
    assert rows(why.out, "CPUs per task", "step")[-1]["figure"] == pytest.approx(predicted["cores"], abs=0.01)
    table = run("explain", "950")
    assert "What the prediction was based on" in table.out
    assert "COMPLETED" in table.err
    assert {row["resource"] for row in json.loads(run("explain", "950", "--format", "json").out)} == {
        "memory (MiB)",
        "CPUs",
    }


def test_explain_uses_the_settings_under_which_the_decision_was_made(fed: Site, run: Run) -> None:
    token = decided(fed)
    FakeSacct(fed.folder / "slurm", ended(range(950, 951), admin_comment=token))
    assert run("ingest").code == 0
    then = json.loads(run("explain", "--why", "--format", "json", "950").out)
    fed.configure(
        policy={"memory_margin": 0.5, "cores_margin": 0.7, "most_failures": 0.1}, models={"min_evidence": 40}
    )
    ran = run("explain", "--why", "--format", "json", "950")
    assert "margins" not in ran.err
    assert json.loads(ran.out) == then
    # As a decision of an earlier release is stored.
    engine = open_store(fed.config.store.url)
    with engine.begin() as connection:
        write_decisions(connection, [msgspec.structs.replace(decision_of(fed, token), settings=None)])
    engine.dispose()
    earlier = run("explain", "--why", "--format", "json", "950")
    assert "did not record margins; today's margins are used" in earlier.err
    assert json.loads(earlier.out) != then


def test_a_decision_records_every_setting_of_the_prediction_chain() -> None:
    assert PredictedUnder.__struct_fields__ == ChainSettings.__struct_fields__
    settings = ChainSettings(memory_margin=0.2, cores_margin=0.3, min_evidence=4, most_failures=0.05)
    assert chain_settings_then(recorded_settings(settings)) == settings


def test_a_job_whose_model_is_gone_is_explained_without_it(fed: Site, run: Run) -> None:
    token = decided(fed)
    rows_now = ended(range(950, 951), admin_comment=token)
    FakeSacct(fed.folder / "slurm", rows_now)
    assert run("ingest").code == 0
    version = registry.current_version(fed.models)
    assert version is not None
    (fed.models / version / "memory.ubj").write_bytes(b"")
    damaged = run("explain", "950")
    assert (damaged.code, "is not known: the model" in damaged.err) == (0, True)
    shutil.rmtree(fed.models / version)
    gone = run("explain", "950")
    assert gone.code == 0
    assert f"model {version} is no longer in" in gone.err
    assert "What the prediction was based on" not in gone.out
    assert "Traceback" not in gone.err


@pytest.mark.usefixtures("fed")
def test_a_job_without_a_decision_has_no_reasons(run: Run) -> None:
    ran = run("explain", "900")
    assert ran.code == 0
    assert "What the prediction was based on" not in ran.out
