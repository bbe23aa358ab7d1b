"""Reading the GPU spool into the store: each sample goes to the attempt during which it was taken."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from accounting.ingest.ingesting import ingest
from accounting.records import Attempt
from accounting.store.records import Counts, read_attempts, read_gpu_use
from tests.accounting.ingest.recorded import NOW_S, settings_of
from tests.builders import T0, FakeSacct, gpu_use, job_line, step_line
from tests.spools import read_spool


def sample(job_id: int, time_s: int, gpu: int = 0, util_pct: float = 90, source: str = "nvml") -> str:
    return (
        f'{{"job_id":"{job_id}","node":"n1","time_s":{time_s},"gpu":{gpu},'
        f'"util_pct":{util_pct},"mem_mib":2000,"source":"{source}"}}\n'
    )


def test_gpu_samples_go_to_the_attempt_they_were_taken_in(store: Engine, tmp_path: Path) -> None:
    first_s, second_s = T0 + 10, T0 + 1000
    fake = FakeSacct(
        tmp_path / "slurm",
        [job_line(7, first_s, State="REQUEUED"), job_line(7, second_s), job_line(8, first_s)],
    )
    settings = settings_of(fake, tmp_path)
    settings.gpu_spool.mkdir()
    lines = [sample(7, first_s + 10 * n, gpu) for n in range(10) for gpu in (0, 1)]
    lines += [sample(7, second_s + 10 * n, 0) for n in range(10)]
    (settings.gpu_spool / "n1.jsonl").write_text("".join(lines))
    report = ingest(store, settings, NOW_S)
    assert report.gpu_use == Counts(new=3)
    used = {
        (one.row.job_id, one.row.start_s): (one.use.gpus, one.use.gpu_source) for one in read_attempts(store)
    }
    assert used == {(7, first_s): (2, "nvml"), (7, second_s): (1, "nvml"), (8, first_s): (None, "")}


def test_gpu_samples_that_come_late_go_to_the_attempt_in_the_store(store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "slurm", [job_line(7), step_line(7), job_line(8), step_line(8)])
    told: list[tuple[Sequence[Attempt], Sequence[Attempt]]] = []

    def hand_on(new: Sequence[Attempt], changed: Sequence[Attempt]) -> None:
        told.append((new, changed))

    settings = msgspec.structs.replace(settings_of(fake, tmp_path), hand_on=hand_on)
    now_s = T0 + 3600
    ingest(store, settings, now_s)
    before = read_attempts(store)
    settings.gpu_spool.mkdir()
    (settings.gpu_spool / "n1.jsonl").write_text("".join(sample(7, T0 + 10 + 10 * n) for n in range(10)))
    # The window of the job is not read again.
    report = ingest(store, settings, now_s, since_s=now_s - 10)
    assert (report.gpu_use, report.attempts) == (Counts(new=1), Counts())
    late, other = read_attempts(store)
    assert (late.use.gpus, late.use.gpu_source, late.use.gpu_mem_mib) == (1, "nvml", 2000)
    assert (
        msgspec.structs.replace(late.use, gpus=None, gpu_source="", gpu_mem_mib=None, gpu_quality="absent")
        == before[0].use
    )
    assert other == before[1]
    again = ingest(store, settings, now_s, since_s=T0)
    assert again.attempts == Counts(same=2)
    assert read_attempts(store) == [late, other]
    assert [one for one in told if any(one)] == [(before, []), ([], [late])]


def test_more_samples_than_a_column_holds_do_not_stop_ingest(store: Engine, tmp_path: Path) -> None:
    """Anyone who may write to the spool may report them, line by line, and one window any number of times."""
    fake = FakeSacct(tmp_path / "slurm", [job_line(7)])
    settings = settings_of(fake, tmp_path)
    settings.gpu_spool.mkdir()
    window = gpu_use(job_id=7, first_s=NOW_S - 86_400, last_s=NOW_S, samples=20 * 86_401)
    (settings.gpu_spool / "n1.jsonl").write_bytes((msgspec.json.encode(window) + b"\n") * 1300)
    assert ingest(store, settings, NOW_S).gpu_use == Counts(new=1)
    with store.connect() as connection:
        [[use]] = read_gpu_use(connection, [7]).values()
    assert use == msgspec.structs.replace(window, samples=2**31 - 1)


def test_bad_lines_of_the_gpu_spool_are_quarantined_and_a_torn_one_waits(tmp_path: Path) -> None:
    bad = ["rubbish\n", sample(-1, 5), sample(10**25, 5), sample(1, 5).replace("2000", "null"), "\udcff\n"]
    text = sample(1, T0) + "".join(bad) + sample(1, T0 + 10)[:-20]
    (tmp_path / "n1.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    uses, quarantined = read_spool(tmp_path)
    assert [(use.job_id, use.samples) for use in uses] == [(1, 1)]
    assert len(quarantined) == len(bad)
    assert read_spool(tmp_path / "nothing") == ([], [])


@given(st.lists(st.integers(0, 500), min_size=1, max_size=30, unique=True))
def test_samples_are_separated_where_their_meter_paused(times: list[int]) -> None:
    from accounting.gpu_spool.samples import ATTEMPT_GAP_S, GpuSample, as_use, merge_uses

    samples = [
        GpuSample(job_id=1, node="n1", time_s=at, gpu=0, util_pct=at % 101, mem_mib=1, source="nvml")
        for at in times
    ]
    uses = sorted(merge_uses(map(as_use, samples)), key=lambda use: use.first_s)
    gaps = sum(b - a > ATTEMPT_GAP_S for a, b in zip(sorted(times), sorted(times)[1:], strict=False))
    assert len(uses) == gaps + 1
    assert sum(use.samples for use in uses) == len(times)
    assert max(use.util_max_pct or 0.0 for use in uses) == max(at % 101 for at in times)
