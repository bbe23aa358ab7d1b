"""Several hosts and several clusters with one store: nothing is lost, and nothing goes to another's job."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine, insert, select

from accounting.ingest.ingesting import SACCT, ingest
from accounting.ingest.run import IngestReport, IngestSettings
from accounting.store import schema
from accounting.store.database import open_store
from accounting.store.records import Counts, read_attempts, read_marks, windows_read, write_rows
from slurm_plugin.service.journal import Journal
from tests.accounting.ingest.recorded import NOW_S, content, settings_of
from tests.accounting.ingest.test_gpu_spool import sample
from tests.builders import DAY_S, T0, FakeSacct, SacctRow, decision, job_line


@pytest.fixture
def store(url: str) -> Iterator[Engine]:
    engine = open_store(url, create=True)
    yield engine
    engine.dispose()


def host(tmp_path: Path, name: str, cluster: str, rows: list[SacctRow] | None = None) -> IngestSettings:
    """A host of a cluster, with folders of its own."""
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    fake = FakeSacct(folder / "slurm", [{**row, "Cluster": cluster} for row in rows or []])
    settings = settings_of(fake, folder)
    settings.gpu_spool.mkdir(exist_ok=True)
    return msgspec.structs.replace(settings, cluster=cluster, host=name)


def decide(settings: IngestSettings, *names: str, time_s: float = T0) -> Path:
    """Journal decisions with these ids; return the file of their day."""
    journal = Journal(settings.journal)
    for name in names:
        journal.append(decision(id=name, time_s=time_s))
    journal.close()
    [file] = (file for file in settings.journal.iterdir() if file.stat().st_size)  # one also has today's file
    return file


def read(store: Engine, settings: IngestSettings, now_s: int = NOW_S) -> IngestReport:
    return ingest(store, settings, now_s)


def stored_ids(store: Engine) -> set[str]:
    with store.connect() as connection:
        return set(connection.execute(select(schema.decisions.c.id)).scalars())


def test_journals_with_the_same_names_from_two_hosts_are_both_read(store: Engine, tmp_path: Path) -> None:
    one, other = host(tmp_path, "ctl1", "alpha"), host(tmp_path, "ctl2", "alpha")
    decide(one, "a1", "a2", "a3")
    assert read(store, one).decisions == Counts(new=3)
    decide(other, "b1", "b2")
    assert read(store, other).decisions == Counts(new=2)
    decide(one, "a4")
    decide(other, "b3", "b4", "b5")
    assert (read(store, one).decisions.new, read(store, other).decisions.new) == (1, 3)
    assert read(store, one).decisions == read(store, other).decisions == Counts()
    assert stored_ids(store) == {"a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4", "b5"}


def test_a_file_moved_to_another_host_or_restored_from_a_backup_loses_nothing(
    store: Engine, tmp_path: Path
) -> None:
    one, other = host(tmp_path, "ctl1", "alpha"), host(tmp_path, "ctl2", "alpha")
    file = decide(one, "a1", "a2")
    backup = file.read_bytes()
    read(store, one)
    other.journal.mkdir()
    (other.journal / file.name).write_bytes(backup)
    assert read(store, other).decisions == Counts(), "the same file is known on another host"
    decide(one, "a3", "a4", "a5")
    decide(other, "b3")
    for settings in (one, other, one):
        read(store, settings)
    assert stored_ids(store) == {"a1", "a2", "a3", "a4", "a5", "b3"}
    file.write_bytes(backup)
    decide(one, "c3", "c4", "c5", "c6")
    read(store, one)
    assert {"c3", "c4", "c5", "c6"} <= stored_ids(store)


def test_each_cluster_is_read_from_where_it_stopped_itself(store: Engine, tmp_path: Path) -> None:
    alpha = host(tmp_path, "a", "alpha", [job_line(7, T0 + DAY_S)])
    beta = host(tmp_path, "b", "beta", [job_line(7, T0 + DAY_S), job_line(8, T0 + 2 * DAY_S)])
    assert read(store, alpha).attempts.new == 1
    assert read(store, beta).attempts.new == 2
    with store.connect() as connection:
        assert (
            windows_read(connection, SACCT).get("alpha")
            == windows_read(connection, SACCT).get("beta")
            == NOW_S
        )
        assert windows_read(connection, SACCT).get("gamma") is None
    assert {(one.row.cluster, one.row.job_id) for one in read_attempts(store)} == {
        ("alpha", 7),
        ("beta", 7),
        ("beta", 8),
    }


def test_gpu_samples_go_to_the_job_of_the_cluster_that_metered_them(store: Engine, tmp_path: Path) -> None:
    start_s = T0 + 10
    alpha, beta = (host(tmp_path, name, name, [job_line(7, start_s)]) for name in ("alpha", "beta"))
    (alpha.gpu_spool / "n1.jsonl").write_text("".join(sample(7, start_s + 10 * n) for n in range(10)))
    # A node of the same name, whose file has the same length.
    (beta.gpu_spool / "n1.jsonl").write_text("".join(sample(7, start_s + 9 * n, 1, 0.0) for n in range(10)))
    for settings in (alpha, beta, alpha):
        read(store, settings)
    used = {one.row.cluster: one.use.gpus for one in read_attempts(store)}
    assert used == {"alpha": 1, "beta": 0}


def test_a_host_that_does_not_know_its_cluster_takes_nothing_from_another(
    store: Engine, tmp_path: Path
) -> None:
    alpha = host(tmp_path, "a", "alpha", [job_line(7, T0 + DAY_S)])
    read(store, alpha, NOW_S - DAY_S)
    read(store, msgspec.structs.replace(alpha, cluster=""), NOW_S)
    with store.connect() as connection:
        assert windows_read(connection, SACCT).get("alpha") == NOW_S - DAY_S, "it is read again"
    beta = host(tmp_path, "b", "beta", [job_line(8, T0 + DAY_S)])
    assert read(store, beta).attempts.new == 1, "a mark of nobody's is no mark of its"


def test_a_store_of_the_previous_release_continues_where_it_was(store: Engine, tmp_path: Path) -> None:
    alpha = host(tmp_path, "a", "alpha", [job_line(7, T0 + DAY_S)])
    decide(alpha, "a1", "a2")
    (alpha.gpu_spool / "n1.jsonl").write_text("".join(sample(7, T0 + DAY_S + 10 * n) for n in range(10)))
    read(store, alpha)
    before = content(store)
    # As in that release: marks only by the names of files.
    with store.begin() as connection:
        marks = read_marks(connection)
        connection.execute(schema.journals.delete())
        old = [
            {"file": name.partition("#")[0], "read_bytes": mark.read_bytes, "tail": ""}
            for name, mark in marks.items()
        ]
        connection.execute(insert(schema.journals), old)
    assert len(old) == 2
    beta = host(tmp_path, "b", "beta")
    decide(beta, "b1", "b2", "b3")
    assert read(store, beta).decisions == Counts(new=3), "the mark is of another file"
    report = read(store, alpha)
    assert (report.decisions, report.gpu_use) == (Counts(same=2), Counts())
    after = content(store)
    assert set(before["decisions"]) < set(after["decisions"])
    assert before["gpu_use"] == after["gpu_use"]


def test_each_mark_belongs_to_a_cluster(store: Engine) -> None:
    with store.begin() as connection:
        for cluster, until_s in (("alpha", 5), ("beta", 7)):
            mark = {"source": SACCT, "cluster": cluster, "read_until_s": until_s}
            write_rows(connection, schema.windows, [mark])
        assert windows_read(connection, SACCT).get("alpha") == 5
