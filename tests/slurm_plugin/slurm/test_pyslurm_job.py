"""Jobs as pyslurm 25.11 loaded them, beside what scontrol printed of the same queue (tests/contract/pyslurm)."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from slurm_plugin.slurm import job_lines
from slurm_plugin.slurm.pyslurm_job import job_of
from slurm_plugin.slurm.snapshot import QueuedJob

RECORDED = Path(__file__).parents[2] / "contract" / "pyslurm" / "25.11"
LOADED: list[dict[str, Any]] = json.loads((RECORDED / "pyslurm.json").read_text(encoding="utf-8"))


def tres_of(recorded: dict[str, Any] | None) -> SimpleNamespace | None:
    """Return what pyslurm calls TrackableResources."""
    if recorded is None:
        return None
    counted = {name: SimpleNamespace(**one) for name, one in recorded.items() if name != "gres"}
    gres = {name: SimpleNamespace(**one) for name, one in recorded["gres"].items()}
    return SimpleNamespace(**counted, gres=gres)


def loaded(recorded: dict[str, Any]) -> SimpleNamespace:
    """Return a job with the attributes that pyslurm's had."""
    tres = {name: tres_of(recorded[name]) for name in ("requested_tres", "allocated_tres")}
    return SimpleNamespace(**{**recorded, **tres})


def shown(name: str) -> list[QueuedJob]:
    """Return the jobs of that name as scontrol printed them, but for what is read of scontrol alone."""
    owners = job_lines.parse_owners((RECORDED / "owners.txt").read_text(encoding="utf-8"))
    listing = job_lines.parse_jobs((RECORDED / "jobs.txt").read_text(encoding="utf-8"), owners)
    return [
        msgspec.structs.replace(job, tres_per_task="", accrues_s=0.0)
        for job in listing.jobs
        if job.name == name
    ]


@pytest.mark.parametrize("name", sorted({job["name"] for job in LOADED}))
def test_both_backends_read_the_same_of_a_job(name: str) -> None:
    found = [job_of(loaded(recorded)) for recorded in LOADED if recorded["name"] == name]
    by_id = {job.job_id: job for job in found}
    assert by_id == {job.job_id: job for job in shown(name)}


def test_a_job_that_other_clusters_may_start_is_known_by_its_siblings() -> None:
    (alone,) = [recorded for recorded in LOADED if recorded["name"] == "filler"]
    assert not job_of(loaded(alone)).has_siblings
    assert not job_of(loaded({**alone, "federation_siblings_viable": ["here"]})).has_siblings
    assert job_of(loaded({**alone, "federation_siblings_viable": ["here", "there"]})).has_siblings
