"""`rightsizer ingest --from-file`: what a dump adds, which entries are not accepted, and the zone of its times."""

import gzip
import json
import re
from pathlib import Path

import pytest

from accounting.dumps.lines import BLOCK_BYTES, LONGEST_LINE_BYTES
from tests.conftest import Site
from tests.slurm_plugin.cli.test_ingest_cli import counts, stored
from tests.slurm_plugin.conftest import Run

DUMP = """\
JobID|User|Account|Partition|QOS|JobName|State|Submit|Start|End|ReqTRES|AllocTRES|MaxRSS|TotalCPU|NNodes
7|alice|phys|main|normal|fit|COMPLETED|2025-01-10T10:00:00|2025-01-10T10:00:05|2025-01-10T10:02:05|cpu=8,mem=8000M|cpu=8,mem=8000M|||1
7.batch||phys|||batch|COMPLETED|2025-01-10T10:00:05|2025-01-10T10:00:05|2025-01-10T10:02:05||cpu=8,mem=8000M|204800K|01:30.000|1
8|bob|phys|main|normal|a|b|COMPLETED|2025-01-10T10:00:00|2025-01-10T10:00:05|2025-01-10T10:02:05|cpu=8|cpu=8|||1
"""


@pytest.mark.parametrize("packed", [False, True])
def test_a_dump_is_ingested_and_says_what_it_lacks(packed: bool, run: Run, site: Site) -> None:
    file = site.folder / ("dump.psv.gz" if packed else "dump.psv")
    file.write_bytes(gzip.compress(DUMP.encode()) if packed else DUMP.encode())
    first = run("ingest", "--from-file", str(file), "--zone", "UTC", "--cluster", "alpha", "--format", "json")
    assert first.code == 0, first.err
    assert counts(first.out)["attempts"]["new"] == 1
    assert "lacks" in first.err
    assert "not understood: 1 entry; see `rightsizer ingest --quarantined`" in first.err
    again = run("ingest", "--from-file", str(file), "--zone", "UTC", "--cluster", "alpha", "--format", "json")
    assert counts(again.out)["attempts"] == {"what": "attempts", "new": 0, "changed": 0, "same": 1}
    [attempt] = stored(site)
    assert (attempt.row.job_id, attempt.row.cluster, attempt.row.start_s) == (7, "alpha", 1736503205)
    assert (attempt.use.peak_mem_mib, attempt.asked_cpus) == (200.0, 8)
    [shown] = json.loads(run("ingest", "--quarantined", "--format", "json").out)
    assert (shown["source"], shown["entries"]) == (file.name, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty|no heading|no dump"),
        (b"State|Nothing\nCOMPLETED|1\n", "Submit"),
        (DUMP.encode("utf-16"), "UTF-16"),
    ],
)
def test_a_file_that_is_not_a_dump_is_reported_in_one_line(
    content: bytes, said: str, run: Run, site: Site
) -> None:
    file = site.folder / "dump.psv.gz"
    file.write_bytes(content)
    ran = run("ingest", "--from-file", str(file), "--zone", "UTC")
    assert ran.code == 1
    assert re.search(said, ran.err)
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(DUMP.encode())[:-20], "dump.psv ends in the middle of line"),
        (
            DUMP.encode()[:-60],
            "dump.psv ends in the middle of line 4; get the whole file and ingest it again",
        ),
        (
            DUMP.rpartition("8|bob")[0].encode()[:-1],
            "dump.psv has no newline at its end, so its last job is not read",
        ),
    ],
)
def test_a_dump_that_was_cut_off_is_a_problem(content: bytes, said: str, run: Run, site: Site) -> None:
    file = site.folder / "dump.psv"
    file.write_bytes(content)
    ran = run("ingest", "--from-file", str(file), "--zone", "UTC", "--format", "json")
    assert ran.code == 3
    assert said in ran.err
    assert counts(ran.out)


def test_the_entries_before_an_endless_line_are_ingested_and_reported(run: Run, site: Site) -> None:
    file = site.folder / "dump.psv"
    file.write_bytes(
        DUMP.encode() + (b" " * 999 + b"\n") * (BLOCK_BYTES // 1000 + 1) + b"x" * 2 * LONGEST_LINE_BYTES
    )
    ran = run("ingest", "--from-file", str(file), "--zone", "UTC", "--format", "json")
    assert ran.code == 3
    assert "dump.psv cannot be read to its end: " in ran.err
    assert "is longer than" in ran.err
    assert counts(ran.out)


def test_a_dump_without_any_valid_entry_is_a_problem(run: Run, site: Site) -> None:
    file, good = site.folder / "dump.psv", site.folder / "good.psv"
    file.write_text(DUMP.replace("COMPLETED", "FINISHED"))
    good.write_text(DUMP)
    ran = run(
        "ingest", "--from-file", str(file), "--from-file", str(good), "--zone", "UTC", "--format", "json"
    )
    assert ran.code == 3
    assert "dump.psv: no entry was understood" in ran.err
    assert "good.psv: nothing" not in ran.err
    again = run("ingest", "--from-file", str(good), "--zone", "UTC", "--format", "json")
    assert again.code == 0, again.err


def test_the_entries_of_a_corrected_dump_are_no_longer_listed(run: Run, site: Site) -> None:
    # Nobody is asked about files: there is no sacct here.
    site.configure(accounting={"sacct": str(site.folder / "no-sacct")})
    file, other = site.folder / "dump.psv", site.folder / "other.psv"
    file.write_text(DUMP)
    other.write_text(DUMP.replace("a|b", "c|d"))
    options = ("--zone", "UTC", "--cluster", "alpha")
    first = run("ingest", "--from-file", str(file), "--from-file", str(other), *options)
    assert "dump.psv: 1 entry not understood, 1 of them new" in first.err
    again = run("ingest", "--from-file", str(file), *options)
    assert (
        "dump.psv: 1 entry not understood, 0 of them new; `rightsizer ingest --quarantined` shows them"
        in again.err
    )
    listed = run("ingest", "--quarantined")
    assert "dump.psv, other.psv: correct the file and ingest it again" in listed.err
    assert "--retry" not in listed.err
    tried = run("ingest", "--retry")
    assert (tried.code, "0 entries" in tried.err) == (0, True)
    shown = json.loads(run("ingest", "--quarantined", "--format", "json").out)
    [line] = next(row["lines"] for row in shown if row["source"] == "dump.psv")
    assert line.startswith("line 4: 8|bob")
    file.write_text(DUMP.rpartition("8|bob")[0])
    run("ingest", "--from-file", str(file), *options)
    [left] = json.loads(run("ingest", "--quarantined", "--format", "json").out)
    assert left["source"] == "other.psv"


def test_entries_stay_while_a_dump_is_cut_off(run: Run, site: Site) -> None:
    file = site.folder / "dump.psv"
    file.write_text(DUMP)
    run("ingest", "--from-file", str(file), "--zone", "UTC")
    file.write_text(DUMP.rpartition("8|bob")[0][:-1])
    run("ingest", "--from-file", str(file), "--zone", "UTC")
    shown = json.loads(run("ingest", "--quarantined", "--format", "json").out)
    assert any(line.startswith("line 4: ") for row in shown for line in row["lines"])


def test_pseudonymised_lines_are_forgotten_too(run: Run, site: Site) -> None:
    key = site.folder / "pseudonym.key"
    assert run("config", "pseudonym-key", str(key)).code == 0
    file = site.folder / "dump.psv"
    file.write_text(DUMP)
    options = ("--zone", "UTC", "--pseudonymise", str(key))
    run("ingest", "--from-file", str(file), *options)
    again = run("ingest", "--from-file", str(file), *options)
    assert "1 entry not understood, 0 of them new" in again.err
    assert len(json.loads(run("ingest", "--quarantined", "--format", "json").out)) == 1
    file.write_text(DUMP.rpartition("8|bob")[0])
    run("ingest", "--from-file", str(file), *options)
    assert json.loads(run("ingest", "--quarantined", "--format", "json").out) == []


def test_the_zone_is_printed_and_a_changed_zone_is_noticed(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = site.folder / "dump.psv"
    file.write_text(DUMP)
    monkeypatch.setenv("TZ", ":America/Costa_Rica")
    first = run("ingest", "--from-file", str(file), "--cluster", "alpha")
    assert "local times in dumps are read as America/Costa_Rica ($TZ)" in first.err
    assert [one.row.submit_s for one in stored(site)] == [1736503200 + 6 * 3600]
    same = run("ingest", "--from-file", str(file), "--cluster", "alpha", "--zone", "America/Costa_Rica")
    assert "America/Costa_Rica (--zone)" in same.err
    assert "twice" not in same.err
    other = run("ingest", "--from-file", str(file), "--cluster", "alpha", "--zone", "Asia/Kolkata")
    assert "dump.psv: 1 job already in the store 11.5 h later, and now counted twice" in other.err
    assert "not in Asia/Kolkata" in other.err


@pytest.mark.parametrize(
    ("variable", "zone"),
    [("", "UTC"), ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"), ("CET-1CEST", None)],
)
def test_zones_that_are_not_names_are_resolved_or_refused(
    variable: str, zone: str | None, run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = site.folder / "dump.psv"
    file.write_text(DUMP)
    monkeypatch.setenv("TZ", variable)
    ran = run("ingest", "--from-file", str(file))
    assert ran.code == (0 if zone else 2)
    assert (
        f"read as {zone} ($TZ)" if zone else "is not a time zone; give --zone, for example Europe/Berlin"
    ) in ran.err


def test_gpus_are_counted_by_the_given_tres_numbers(run: Run, site: Site) -> None:
    file = site.folder / "jobs.csv"
    file.write_text(
        "id_job,id_user,state,time_submit,time_start,time_end,tres_req,tres_alloc,partition\n"
        '7,1000,3,1700000000,1700000060,1700003660,"1=4,2=8192","1=4,2=8192,1001=2",main\n'
    )
    silent = run("ingest", "--from-file", str(file), "--cluster", "alpha")
    assert "jobs.csv lacks the names of TRES 1001" in silent.err
    [row] = json.loads(run("report", "users", "--format", "json").out)
    assert row["gpu_h_granted"] is None
    told = run(
        "ingest",
        "--from-file",
        str(file),
        "--cluster",
        "alpha",
        "--gpu-tres",
        "1001,1002",
        "--format",
        "json",
    )
    assert "TRES" not in told.err.replace("TRESUsage", "")
    assert counts(told.out)["attempts"]["changed"] == 1
    [row] = json.loads(run("report", "users", "--format", "json").out)
    assert row["gpu_h_granted"] == 2
    assert run("ingest", "--from-file", str(file), "--gpu-tres", "gpu").code == 2


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--from-file", "{}", "--since", "2026-01-01"),
            "--from-file can only be combined with .* not with --since",
        ),
        (
            ("--from-file", "{}", "--quarantined"),
            "--quarantined can only be combined with --config and --format",
        ),
        (("--from-file", "{}", "--prune"), "--prune can only be combined with --config and --format"),
        (("--from-file", "{}", "--retry"), "--retry can only be combined with .* not with --from-file"),
        (("--zone", "UTC"), "--zone has no effect without --from-file"),
        (("--cluster", "alpha"), "--cluster has no effect without --from-file"),
        (("--gpu-tres", "1001"), "--gpu-tres has no effect without --from-file"),
        (("--quarantined", "--report"), "--quarantined can only be combined with .* not with --report"),
    ],
)
def test_options_without_an_effect_are_a_usage_error(
    arguments: tuple[str, ...], said: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "dump.psv"
    file.write_text(DUMP)
    ran = run("ingest", *(one.format(file) for one in arguments))
    assert ran.code == 2
    assert re.search(said, ran.err.replace("\n", " "))


def test_an_unknown_zone_is_a_usage_error(run: Run, site: Site) -> None:
    file = site.folder / "dump.psv"
    file.write_text(DUMP)
    ran = run("ingest", "--from-file", str(file), "--zone", "Europe/Nowhere")
    assert ran.code == 2
    assert "write for example Europe/Berlin" in ran.err


def test_the_cluster_of_a_dump_is_the_same_as_that_of_sacct(run: Run, site: Site) -> None:
    file = site.folder / "dump.psv"
    file.write_text(DUMP)
    for cluster in ("Alpha", "alpha"):
        run("ingest", "--from-file", str(file), "--zone", "UTC", "--cluster", cluster)
    assert [one.row.cluster for one in stored(site)] == ["alpha"]
