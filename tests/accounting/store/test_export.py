"""Exports: every row, every column described, complete or not at all."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from sqlalchemy import Engine, insert, select, text

from accounting.errors import StoreError
from accounting.pseudonyms import Pseudonyms
from accounting.records import Attempt
from accounting.store import export as exporting
from accounting.store import schema
from accounting.store.batches import read_batches
from accounting.store.database import open_store
from accounting.store.export import export, refuse_target
from accounting.store.meanings import EXPORTED, described_in_words, export_schema
from accounting.store.records import write_decisions, write_gpu_use
from tests.accounting.report.report_store import fill, measured
from tests.builders import decision, gpu_use, job_row, request, step
from tests.stores import write_steps

ROOT = Path(__file__).parents[3]
HOSTILE = ["|||COMPLETED|0:0", "a\nb|c", 'say "hi", you', "tab\tand 'quote'", "x" * 1000, "ünï🧪"]


@pytest.fixture
def attempts(store: Engine) -> list[Attempt]:
    made = [measured(n, job_name=HOSTILE[n % len(HOSTILE)], user="alice") for n in range(1, 501)]
    fill(store, made, with_steps=False)
    with store.begin() as connection:
        write_steps(connection, [(job_row(job_id=n), step()) for n in range(1, 4)])
        write_gpu_use(connection, [gpu_use(gpu=n) for n in range(3)])
        write_decisions(connection, [decision(id="d1", request=request(user="alice", job_name="secret"))])
    return made


@pytest.mark.parametrize("what", EXPORTED)
def test_every_column_is_described_and_nothing_else(what: str) -> None:
    table, meanings = EXPORTED[what]
    assert set(meanings) == {column.name for column in table.columns}
    for meaning in meanings.values():
        assert meaning.text


@pytest.mark.parametrize("what", EXPORTED)
def test_a_unit_in_a_name_is_the_unit_of_its_meaning(what: str) -> None:
    units = {"_mib": "MiB", "_pct": "%", "_w": "W", "_j": "J", "_cpus": "CPUs", "_gpus": "GPUs"}
    for name, meaning in EXPORTED[what][1].items():
        for ending, unit in units.items():
            if name.endswith(ending):
                assert meaning.unit == unit, name
        if name.endswith("_s"):
            assert meaning.unit in ("s", "unix s"), name


def test_the_documentation_has_every_column() -> None:
    documented = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
    assert "\n".join(described_in_words()) in documented, "run tools/document_store"


@pytest.mark.usefixtures("attempts")
@pytest.mark.parametrize("what", EXPORTED)
def test_parquet_holds_every_row_with_its_description(
    store: Engine, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "ROWS_A_GROUP", 100)
    monkeypatch.setattr(exporting, "read_batches", lambda engine, query: read_batches(engine, query, 64))
    heard: list[tuple[float, int]] = []
    file = tmp_path / "out.parquet"
    rows = export(store, what, file, progress=lambda done, count: heard.append((done, count)))
    with store.connect() as connection:
        expected = [tuple(row) for row in connection.execute(select(*EXPORTED[what][0].columns))]
    table = pa.parquet.read_table(file)
    assert rows == len(expected) == table.num_rows
    assert [tuple(row.values()) for row in table.to_pylist()] == expected
    assert table.schema.equals(export_schema(what), check_metadata=False)
    for field in table.schema:
        assert field.metadata[b"description"].decode() == EXPORTED[what][1][field.name].text
        assert field.metadata[b"unit"].decode() == EXPORTED[what][1][field.name].unit
    assert heard[-1] == (1.0, rows)
    if what == "attempts":
        assert pa.parquet.ParquetFile(file).metadata.num_row_groups > 3


def test_csv_holds_hostile_names_unchanged(store: Engine, attempts: list[Attempt], tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    assert export(store, "attempts", file) == 500
    with file.open(newline="", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    assert list(rows[0]) == [column.name for column in schema.attempts.columns]
    by_id = {one.row.job_id: one for one in attempts}
    for row in rows:
        one = by_id[int(row["job_id"])]
        assert row["job_name"] == one.row.job_name
        assert float(row["peak_mem_mib"]) == one.use.peak_mem_mib
        assert row["asked_gpus"] == ""


def test_an_empty_table_is_a_file_with_its_columns(store: Engine, tmp_path: Path) -> None:
    for suffix in (".csv", ".parquet"):
        assert export(store, "steps", tmp_path / f"steps{suffix}") == 0
    assert pa.parquet.read_schema(tmp_path / "steps.parquet").names == export_schema("steps").names
    assert (tmp_path / "steps.csv").read_text().startswith('"cluster","job_id"')


@pytest.mark.usefixtures("attempts")
def test_pseudonyms_reach_every_column_that_holds_a_name(store: Engine, tmp_path: Path) -> None:
    hidden = Pseudonyms(b"k" * 32)
    for what in ("attempts", "decisions"):
        export(store, what, tmp_path / f"{what}.csv", change=hidden.table)
        written = (tmp_path / f"{what}.csv").read_text()
        assert hidden.user("alice") in written
        assert not any(name in written for name in ("alice", "secret", "hi, you", "phys"))


@pytest.mark.usefixtures("attempts")
def test_an_existing_file_stays_unless_force_is_given(store: Engine, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    file.write_text("mine")
    with pytest.raises(StoreError, match="exists already; give another name, or --force"):
        export(store, "attempts", file)
    assert file.read_text() == "mine"
    assert export(store, "attempts", file, force=True) == 500
    assert file.read_text() != "mine"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("out.xlsx", "the file's name must end in .parquet or .csv"),
        ("none/out.csv", "cannot write .*No such file"),
        ("folder.csv", "is a folder"),
    ],
)
def test_a_target_that_cannot_be_written_is_an_error_of_one_line(
    store: Engine, tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(StoreError, match=said) as caught:
        export(store, "attempts", tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_target_in_a_closed_folder_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_path: Path, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(StoreError, match=r"cannot write .*: Permission denied"):
        refuse_target(tmp_path / "out.csv", force=False)


_WITH_LITTLE_ROOM = """
import resource, sys
from pathlib import Path
from accounting.errors import StoreError
from accounting.store.export import export
from accounting.store.database import open_store
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # a write beyond fails, as on a full disk
try:
    export(open_store(sys.argv[1]), "attempts", Path(sys.argv[2]), force=True)
except StoreError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_disk_that_fails_leaves_the_file_that_was_there(store: Engine, tmp_path: Path, suffix: str) -> None:
    fill(store, [measured(n, job_name=os.urandom(200).hex()) for n in range(1, 1001)])
    store.dispose()
    target = tmp_path / "out"
    target.mkdir()
    file = target / f"out{suffix}"
    file.write_text("the last good one")
    ran = subprocess.run(
        [sys.executable, "-c", _WITH_LITTLE_ROOM, str(store.url), str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 7, ran.stderr
    assert "cannot write" in ran.stdout
    assert "no file was left behind" in ran.stdout
    assert file.read_text() == "the last good one"
    assert list(target.iterdir()) == [file]


@pytest.mark.usefixtures("attempts")
def test_an_interrupted_export_leaves_nothing(store: Engine, tmp_path: Path) -> None:
    def interrupt(_table: pa.Table) -> pa.Table:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(store, "attempts", tmp_path / "out.parquet", change=interrupt)
    assert sorted(file.suffix for file in tmp_path.iterdir() if "out" in file.name) == []


@pytest.mark.parametrize("kind", ["sqlite"])  # the other databases refuse such a value
def test_a_value_that_no_program_of_ours_wrote_is_an_error_of_one_line(store: Engine, tmp_path: Path) -> None:
    fill(store, [measured(1)])
    with store.begin() as connection:
        connection.execute(text("UPDATE attempts SET wall_s = 'long'"))
    with pytest.raises(StoreError, match="does not fit its column") as caught:
        export(store, "attempts", tmp_path / "out.parquet")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_an_infinite_figure_is_exported_as_unknown(store: Engine, tmp_path: Path) -> None:
    fill(store, [measured(1), measured(2)])
    with store.begin() as connection:
        connection.execute(text("UPDATE attempts SET peak_mem_mib = 9e999, cores = -9e999 WHERE job_id = 1"))
    export(store, "attempts", tmp_path / "out.parquet")
    rows = {row["job_id"]: row for row in pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()}
    assert (rows[1]["peak_mem_mib"], rows[1]["cores"]) == (None, None)
    assert rows[2]["peak_mem_mib"] is not None


@pytest.mark.slow
def test_memory_stays_bounded(tmp_path: Path) -> None:
    """150,000 rows of 2 KB are 300 MB; reading and writing them takes only a fraction of that memory."""
    url = f"sqlite:///{tmp_path}/store.db"
    engine = open_store(url, create=True)
    row = {
        "cluster": "a", "submit_s": 1, "attempt_start_s": 1, "state": "x" * 2000, "start_s": 1, "end_s": 2,
        "tasks": 1, "nodes": 1, "step_id": "batch",
    }  # fmt: skip
    with engine.begin() as connection:
        for begin in range(0, 150_000, 10_000):
            rows = [{**row, "job_id": number} for number in range(begin, begin + 10_000)]
            connection.execute(insert(schema.steps), rows)
    engine.dispose()
    script = (
        "import resource, sys\nfrom pathlib import Path\nfrom accounting.store.export import export\n"
        "from accounting.store.database import open_store\nengine = open_store(sys.argv[1])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "export(engine, 'steps', Path(sys.argv[2]))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, url, str(tmp_path / "out.csv")],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert int(ran.stdout) / 1024 < 250
