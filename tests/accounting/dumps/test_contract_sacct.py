"""What each release's sacct printed about jobs that were made to do known things."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from accounting.dumps.heading import FREE_TEXT, SOURCES
from accounting.dumps.jobs import DumpSettings
from accounting.dumps.read import read_dump
from accounting.frames import Records
from tests.accounting.dumps.table import together

CORPUS = Path(__file__).resolve().parents[2] / "contract" / "sacct"
RELEASES = sorted(folder.name for folder in CORPUS.iterdir() if folder.is_dir())
SETTINGS = DumpSettings(now_s=1_900_000_000, zone=ZoneInfo("UTC"))


def read(release: str, file: str) -> Records:
    return together(list(read_dump(CORPUS / release / file, SETTINGS)))


def made(release: str) -> list[dict[str, Any]]:
    everything: list[dict[str, Any]] = msgspec.json.decode((CORPUS / release / "made.json").read_bytes())
    return [{**one["made"], "job_id": one["job_id"]} for one in everything]


def stored(name: str) -> str:
    """Return a name as slurmdbd keeps it: without double quotes, and only 255 bytes of it."""
    return name.replace('"', "`")[:255]


def breaks(name: str, delimiter: str) -> bool:
    return "\n" in name or delimiter in name


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_the_corpus_has_this_release(release: str) -> None:
    assert release in RELEASES


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("file", "delimiter"), [("raw.txt", "\x1f"), ("plain.psv", "|")])
def test_every_job_is_what_it_was_made_to_be_or_is_quarantined(
    release: str, file: str, delimiter: str
) -> None:
    records = read(release, file)
    jobs = records.jobs.to_pylist()
    steps = records.steps.to_pylist()
    aside = "\n".join(one.line.partition(": ")[2] for one in records.quarantined)
    for one in made(release):
        attempts = [number for number, job in enumerate(jobs) if job["job_id"] == one["job_id"]]
        if breaks(one["name"], delimiter):
            assert not attempts, one
            assert f"\n{one['job_id']}{delimiter}" in f"\n{aside}"
            continue
        assert [jobs[number]["state"].partition(" ")[0] for number in attempts] == one["states"], one
        assert {jobs[number]["job_name"] for number in attempts} == {stored(one["name"] or one["kind"])}
        assert jobs[attempts[-1]]["alloc_cpus"] == (one["cpus"] or None), one
        assert sum(step["job"] == attempts[-1] for step in steps) >= one["steps"], one
    assert {job["job_id"] for job in jobs} <= set(range(1, 30))
    assert {job["user"] for job in jobs} == {"root"}


@pytest.mark.parametrize("release", RELEASES)
def test_a_plain_dump_says_what_a_careful_one_says(release: str) -> None:
    careful, plain, alone = (
        {(job["job_id"], job["start_s"]): job for job in read(release, file).jobs.to_pylist()}
        for file in ("raw.txt", "plain.psv", "jobs.psv")
    )
    same = (
        "display_id", "state", "submit_s", "end_s", "elapsed_s", "limit_s", "nodes", "req_cpus", "req_mem_mib",
        "alloc_cpus", "alloc_mem_mib", "alloc_gpus", "job_name",
    )  # fmt: skip
    assert len(set(careful) & set(plain)) >= 18
    for other in (plain, alone):
        for key in set(careful) & set(other):
            assert {name: careful[key][name] for name in same} == {name: other[key][name] for name in same}


@pytest.mark.parametrize("release", RELEASES)
def test_usage_with_suffixes_equals_usage_in_bytes_to_within_its_digits(release: str) -> None:
    careful, plain = read(release, "raw.txt"), read(release, "plain.psv")

    def usage(records: Records) -> dict[tuple[int, int, str], tuple[float | None, float | None]]:
        jobs = records.jobs.to_pylist()
        return {
            (jobs[step["job"]]["job_id"], step["start_s"], step["step_id"]): (
                step["mem_max_task_mib"],
                step["cpu_s"],
            )
            for step in records.steps.to_pylist()
        }

    exact, rounded = usage(careful), usage(plain)
    shared = set(exact) & set(rounded)
    assert len(shared) >= 18
    for key in shared:
        for one, other in zip(rounded[key], exact[key], strict=True):
            assert (one is None) == (other is None), key
            assert one is None or one == pytest.approx(other, rel=0.01, abs=0.001), key


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_has_the_columns_that_are_read(release: str) -> None:
    columns = {name.lower() for name in (CORPUS / release / "columns.txt").read_text().split()}
    ours = {thing for thing, names in SOURCES.items() if columns.intersection(names)}
    assert set(SOURCES) - ours == {"array", "task"}
    assert {"jobname", "comment", "admincomment"} <= columns & FREE_TEXT


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_in_the_corpus_identifies_a_machine(release: str) -> None:
    for file in (CORPUS / release).iterdir():
        data = file.read_bytes()
        assert b"/tmp" not in data
        assert b"sandbox-" not in data
