"""Reading the GPU spool: part by part, each line once, and no line that cannot be true."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.gpu_spool import files as gpu_spool
from accounting.gpu_spool import samples as gpu_samples
from accounting.gpu_spool.files import FINISHED_AFTER_S, finished_files, others_may_write, spool_key
from accounting.gpu_spool.samples import merge_uses, parse_line
from accounting.records import GpuUse
from tests.builders import T0, Step, gpu_use, job_row, label_attempt, step
from tests.spools import read_on, read_spool

NOW_S = T0 + 10 * 86400


def line(**changes: object) -> bytes:
    return msgspec.json.encode({**msgspec.structs.asdict(window()), **changes}) + b"\n"


def window(number: int = 0, **changes: object) -> GpuUse:
    """The collector's line for the window of that number: 30 samples; utilisation and power follow from the number."""
    plain = gpu_use(
        job_id=7,
        samples=30,
        first_s=T0 + 30 * number,
        last_s=T0 + 30 * number + 29,
        util_max_pct=float(number % 100),
        util_mean_pct=float(number % 100),
        mem_max_mib=100.0 + number,
        power_mean_w=200.0 + number,
    )
    return msgspec.structs.replace(plain, **changes)


def test_windows_that_follow_one_another_are_one_use(tmp_path: Path) -> None:
    file = tmp_path / "n1.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(window(number)) + b"\n" for number in range(10)))
    ((use,), quarantined) = read_spool(tmp_path)
    assert quarantined == []
    assert (use.samples, use.first_s, use.last_s) == (300, T0, T0 + 299)
    assert (use.util_max_pct, use.util_mean_pct, use.mem_max_mib, use.power_mean_w) == (9, 4.5, 109, 204.5)


def test_instances_nodes_sources_and_pauses_separate_uses() -> None:
    others = [
        window(1, instance=2),
        window(1, gpu=1),
        window(1, node="n2"),
        window(1, source="other"),
        window(3, job_id=8),
        window(5),
    ]
    assert len(merge_uses([window(0), *others])) == 7


def test_a_use_without_a_cluster_belongs_to_the_one_whose_nodes_write_here(tmp_path: Path) -> None:
    (tmp_path / "n1.jsonl").write_bytes(line() + line(cluster="beta"))
    for cluster, clusters in (("alpha", {"alpha", "beta"}), ("", {"", "beta"})):
        (part,) = read_on(tmp_path, {}, NOW_S, cluster)
        assert {use.cluster for use in part.uses} == clusters


def test_unknown_utilisation_and_power_stay_unknown() -> None:
    unknown = [window(n, util_max_pct=None, util_mean_pct=None, power_mean_w=None) for n in range(2)]
    (use,) = merge_uses(unknown)
    assert (use.util_max_pct, use.util_mean_pct, use.power_mean_w) == (None, None, None)
    # It does not count in a mean either, in whatever order it comes.
    known = [window(1), window(3, samples=10)]
    for uses in ([unknown[0], *known], [*known, window(2, util_mean_pct=None, power_mean_w=None)]):
        (use,) = merge_uses(uses)
        assert (use.util_max_pct, use.util_mean_pct, use.power_mean_w) == (3.0, 1.5, 201.5)
    idle = window(1, util_max_pct=0.0, util_mean_pct=0.0)
    for pair in (
        [unknown[0], idle],
        [msgspec.structs.replace(idle, first_s=T0 - 30, last_s=T0 - 1), unknown[0]],
    ):
        (use,) = merge_uses(pair)
        assert (use.util_max_pct, use.util_mean_pct) == (None, None)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40, unique=True), st.integers(1, 7))
def test_uses_merged_in_pieces_equal_those_merged_at_once(numbers: list[int], pieces: int) -> None:
    uses = [window(number) for number in sorted(numbers)]
    merged: list[GpuUse] = []
    for begin in range(0, len(uses), pieces):
        merged = merge_uses([*merged, *uses[begin : begin + pieces]])
    at_once = merge_uses(uses)
    assert [(one.first_s, one.last_s, one.samples) for one in merged] == [
        (one.first_s, one.last_s, one.samples) for one in at_once
    ]
    for one, whole in zip(merged, at_once, strict=True):
        assert one.util_mean_pct == pytest.approx(whole.util_mean_pct)
        assert one.power_mean_w == pytest.approx(whole.power_mean_w)
        assert (one.util_max_pct, one.mem_max_mib) == (whole.util_max_pct, whole.mem_max_mib)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"util_max_pct": 100.5}, "utilisation"),
        ({"util_mean_pct": 5, "util_max_pct": None}, "utilisation"),
        ({"util_mean_pct": -1, "util_max_pct": 5}, "utilisation"),
        ({"util_mean_pct": 50, "util_max_pct": 5}, "utilisation"),
        ({"power_mean_w": -3.5}, "power"),
        ({"power_mean_w": 10_000.5}, "power"),
        ({"mem_max_mib": 2**24 + 1}, "memory"),
        ({"mem_max_mib": -1}, "memory"),
        ({"mem_max_mib": 1e308 * 10}, "null"),
        ({"job_id": 0}, "job id"),
        ({"job_id": -7}, "job id"),
        ({"job_id": 2**63}, "job id"),
        ({"samples": 0}, "samples"),
        ({"samples": 20 * 30 + 1}, "samples"),
        ({"gpu": -1}, "GPU"),
        ({"gpu": 2**31}, "GPU"),
        ({"instance": -2}, "GPU"),
        ({"instance": 2**31}, "GPU"),
        ({"node": ""}, "node"),
        ({"node": "n" * 192}, "node"),
        ({"source": ""}, "source"),
        ({"source": "s" * 192}, "source"),
        ({"cluster": "c" * 192}, "cluster"),
        ({"last_s": T0 - 1}, "time"),
        ({"first_s": 946_684_799, "last_s": 946_684_829}, "time"),
        ({"last_s": T0 + 86_401}, "time"),
        ({"first_s": NOW_S + 271, "last_s": NOW_S + 301}, "time in the future"),
    ],
)
def test_lines_that_cannot_be_true_are_quarantined_with_their_reason(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    (tmp_path / "n1.jsonl").write_bytes(line(**changes) + line())
    (part,) = read_on(tmp_path, {}, NOW_S)
    assert part.uses == [window()]
    (bad,) = part.quarantined
    assert bad.reason.startswith("n1.jsonl: ")
    assert reason in bad.reason
    assert bad.source == "gpu-spool"


@pytest.mark.parametrize(
    "changes",
    [
        {"util_max_pct": 100.0, "util_mean_pct": 100.0, "power_mean_w": 10_000.0, "mem_max_mib": 2.0**24},
        {"util_max_pct": 0.0, "util_mean_pct": 0.0, "power_mean_w": 0.0, "mem_max_mib": 0.0},
        {"util_max_pct": None, "util_mean_pct": None, "power_mean_w": None},
        {"job_id": 2**63 - 1, "gpu": 2**31 - 1, "instance": 2**31 - 1, "samples": 20 * 30},
        {"job_id": 1, "samples": 1, "last_s": T0},
        {"node": "n" * 191, "source": "s" * 191, "cluster": "c" * 191},
        {"last_s": T0 + 86_400},
        {"first_s": 946_684_800, "last_s": 946_684_829},
        {"first_s": NOW_S + 271, "last_s": NOW_S + 300},
    ],
)
def test_lines_that_are_just_possible_are_taken(changes: dict[str, object]) -> None:
    assert parse_line(line(**changes), NOW_S) == (window(0, **changes), "")


def test_a_line_of_one_sample_is_a_window_of_one() -> None:
    text = b'{"job_id":"1","node":"n1","time_s":1700000000,"gpu":2,"util_pct":90,"mem_mib":100,"source":"x"}'
    use, _ = parse_line(text)
    assert use == GpuUse(
        job_id=1, node="n1", gpu=2, source="x", samples=1, first_s=1700000000, last_s=1700000000,
        util_max_pct=90.0, util_mean_pct=90.0, mem_max_mib=100.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        b'{"job_id":1,"util_max_pct":NaN}',
        b'{"job_id":1}',
        b"[]",
        b"\xff\xfe",
        b'{"job_id":"1","node":"n1","time_s":1700000000,"gpu":0,"util_pct":1e999,"mem_mib":1,"source":"x"}',
        b'{"job_id":"1","node":"n1","time_s":1700000000,"gpu":0,"util_pct":101,"mem_mib":1,"source":"x"}',
        b'{"job_id":"0","node":"n1","time_s":1700000000,"gpu":0,"util_pct":10,"mem_mib":1,"source":"x"}',
        b"\0" * 100,
    ],
)
def test_a_line_that_is_not_ours_says_why(text: bytes) -> None:
    use, reason = parse_line(text)
    assert use is None
    assert reason


@given(st.binary(max_size=200))
def test_no_line_is_too_odd_to_be_read_or_refused(text: bytes) -> None:
    use, reason = parse_line(text, NOW_S)
    assert (use is None) == bool(reason)


@given(
    st.integers(0, 400),
    st.sampled_from([b"", b"\0", b"9", b"-", b'"', b"\n", b"e9", b"null"]),
    st.integers(0, 6),
)
def test_a_damaged_line_is_refused_or_still_makes_sense(at: int, put: bytes, gone: int) -> None:
    whole = line()
    at %= len(whole)
    use, _ = parse_line(whole[:at] + put + whole[at + gone :], NOW_S)
    if use is not None:
        assert gpu_samples.nonsense_in(use, NOW_S) == ""


def test_each_line_is_read_once_and_a_torn_one_waits(tmp_path: Path) -> None:
    file = tmp_path / "n1.jsonl"
    offsets: dict[str, int] = {}

    def read_again() -> list[int]:
        samples = []
        for part in read_on(tmp_path, offsets, NOW_S):
            offsets[part.file] = part.read_bytes
            samples += [use.samples for use in part.uses]
            assert part.quarantined == []
        return samples

    first, second = line() + b"\n", line(first_s=T0 + 30, last_s=T0 + 59)
    file.write_bytes(first + second[:50])
    assert read_again() == [30]
    assert offsets == {"gpu-spool/n1.jsonl": len(first)}
    assert read_again() == []
    with file.open("ab") as spool:
        spool.write(second[50:])
    assert read_again() == [30]
    assert read_again() == []
    # Another file under that name is read from its beginning.
    file.write_bytes(first)
    assert read_again() == [30]


@pytest.mark.parametrize("age_s", [0, FINISHED_AFTER_S + 1])
def test_a_large_file_is_read_in_parts(age_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_spool, "PART_BYTES", 1000)
    lines = [line(first_s=T0 + 30 * n, last_s=T0 + 30 * n + 29) for n in range(100)]
    (tmp_path / "n1.jsonl").write_bytes(b"".join(lines) + b"x" * 2500 + b"\n" + lines[0])
    os.utime(tmp_path / "n1.jsonl", (NOW_S - age_s, NOW_S - age_s))
    parts = list(read_on(tmp_path, {}, NOW_S))
    assert len(parts) > 20
    assert sum(use.samples for part in parts for use in part.uses) == 30 * 101
    assert sum(len(part.quarantined) for part in parts) >= 1
    assert parts[-1].read_bytes == (tmp_path / "n1.jsonl").stat().st_size
    # Stopped anywhere and read on from there, nothing is missing and nothing double.
    offsets = {parts[7].file: parts[7].read_bytes}
    rest = [use.samples for part in read_on(tmp_path, offsets, NOW_S) for use in part.uses]
    assert sum(rest) + sum(use.samples for part in parts[:8] for use in part.uses) == 30 * 101


def test_files_that_are_read_completely_and_no_longer_written_can_go(tmp_path: Path) -> None:
    old, young, torn = (tmp_path / f"{name}.jsonl" for name in ("old", "young", "torn"))
    for file in (old, young, torn):
        file.write_bytes(line())
    with torn.open("ab") as spool:
        spool.write(b'{"job_id":')
    long_ago_s = NOW_S - FINISHED_AFTER_S - 1
    for file in (old, torn):
        os.utime(file, (long_ago_s, long_ago_s))
    os.utime(young, (NOW_S, NOW_S))
    assert finished_files(tmp_path, {}, NOW_S) == []
    parts = {part.file: part for part in read_on(tmp_path, {}, NOW_S)}
    offsets = {key: part.read_bytes for key, part in parts.items()}
    assert finished_files(tmp_path, offsets, NOW_S) == [old, torn]
    assert len(parts[spool_key("torn.jsonl")].quarantined) == 1
    assert parts[spool_key("old.jsonl")].quarantined == []
    # An empty file has nothing more to say; anything but a file is not a collector's.
    (tmp_path / "empty.jsonl").touch()
    os.mkfifo(tmp_path / "fifo.jsonl")
    for name in ("empty", "fifo"):
        os.utime(tmp_path / f"{name}.jsonl", (long_ago_s, long_ago_s))
    assert finished_files(tmp_path, {}, NOW_S) == [tmp_path / "empty.jsonl"]


def test_the_beginning_of_a_line_that_makes_no_sense_is_kept(tmp_path: Path) -> None:
    (tmp_path / "n1.jsonl").write_bytes(b"x" * 20_000 + b"\n")
    (part,) = read_on(tmp_path, {}, NOW_S)
    assert [len(item.line) for item in part.quarantined] == [10_000]


@pytest.mark.parametrize(("mode", "is_open"), [(0o755, False), (0o775, True), (0o757, True)])
def test_a_folder_of_users_is_one_that_others_may_write_to(mode: int, is_open: bool, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    assert not others_may_write(spool)
    spool.mkdir()
    (spool / "n1.jsonl").write_bytes(line())
    # In other folders, a second name of a file is nobody's trick.
    os.link(spool / "n1.jsonl", tmp_path / "kept")
    spool.chmod(mode)
    assert others_may_write(spool) is is_open
    assert [len(part.uses) for part in read_on(spool, {}, NOW_S)] == [0 if is_open else 1]


def test_a_file_that_cannot_be_read_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "n0.jsonl").mkdir()
    (tmp_path / "n1.jsonl").write_bytes(line())
    read, told = read_on(tmp_path, {}, NOW_S)
    assert [use.job_id for use in read.uses] == [7]
    reasons = [item.reason for item in told.quarantined]
    assert reasons == [f"'n0.jsonl' of uid {os.getuid()}: it cannot be read: not a regular file"]
    assert list(read_on(tmp_path / "nothing", {}, NOW_S)) == []


def test_a_file_that_disappears_meanwhile_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_bytes(line())
    (tmp_path / "b.jsonl").write_bytes(line())
    parts = read_on(tmp_path, {}, NOW_S)
    assert next(parts).file == "gpu-spool/a.jsonl"
    (tmp_path / "b.jsonl").unlink()
    assert list(parts) == []
    listed = [tmp_path / "b.jsonl"]
    monkeypatch.setattr(Path, "glob", lambda _folder, _pattern: listed)
    assert finished_files(tmp_path, {}, NOW_S) == []


def test_the_key_of_a_long_name_fits_every_store() -> None:
    assert spool_key("n1.jsonl") == "gpu-spool/n1.jsonl"
    for letter in ("n", "\udcff"):  # the second one stands for a byte that is no text
        assert len(spool_key(letter * 250 + ".jsonl")) <= 191


SLURMS = [step(gpu_util_pct=250.0, gpu_mem_mib=9000.0), step(step_id="0", gpu_util_pct=10.0)]


@pytest.mark.parametrize(
    ("allocated", "steps", "uses", "expected"),
    [
        (4, [], [], (None, None, "absent", "")),
        # the meter's figures, whatever Slurm says
        (
            4,
            SLURMS,
            [gpu_use(gpu=0), gpu_use(gpu=1, util_max_pct=0.5, mem_max_mib=400.0), gpu_use(gpu=0)],
            (1, 400.0, "sampled", "nvml"),
        ),
        (
            1,
            [],
            [gpu_use(instance=1, util_max_pct=None), gpu_use(instance=2, util_max_pct=None, mem_max_mib=0.0)],
            (1, 100.0, "sampled", "nvml"),
        ),
        (1, [], [gpu_use(samples=1)], (1, 100.0, "short", "nvml")),
        # Slurm's figures, where they can be attributed to GPUs
        (4, SLURMS, [], (None, None, "absent", "")),
        (3, SLURMS, [], (3, None, "sampled", "slurm")),
        (1, SLURMS[1:], [], (1, None, "sampled", "slurm")),
        (
            4,
            [step(gpu_util_pct=0.0, gpu_mem_mib=0.0)],
            [],
            (0, 0.0, "sampled", "slurm"),
        ),
        (
            1,
            [step(gpu_util_pct=0.0, gpu_mem_mib=500.0)],
            [],
            (None, 500.0, "sampled", "slurm"),
        ),
        (0, SLURMS, [], (None, None, "absent", "")),
        (None, SLURMS, [], (None, None, "absent", "")),
        (2, [step(gpu_mem_mib=5.0)], [], (None, None, "absent", "")),
    ],
)
def test_figures_of_a_meter_count_before_those_of_slurm(
    allocated: int | None, steps: list[Step], uses: list[GpuUse], expected: tuple[object, ...]
) -> None:
    use = label_attempt(job_row(alloc_gpus=allocated), steps, uses).use
    assert (use.gpus, use.gpu_mem_mib, use.gpu_quality, use.gpu_source) == expected
