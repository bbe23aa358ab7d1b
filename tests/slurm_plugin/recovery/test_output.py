"""What the end of a job's output says, read as its user or as nobody."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from accounting.errors import ServiceError
from accounting.request import Grant, JobRequest
from accounting.wants import Said
from slurm_plugin.cli.recover import reads_output
from slurm_plugin.config.settings import Config
from slurm_plugin.config.settings import Recovery as Settings
from slurm_plugin.recovery import judging, output
from slurm_plugin.recovery.judging import Recovery, judge
from slurm_plugin.recovery.output import MOST_BYTES, MOST_LATE, REST_S, Outputs, file_of, mark_in, tail_of
from tests.conftest import skip_unless_read_by
from tests.slurm_plugin.recovery.test_judging import change_of, failed, token
from tests.slurm_plugin.slurm.queued import waiting

ME = os.getuid()
needs_root = pytest.mark.skipif(ME != 0, reason="only root can read as another user")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"Traceback ...\nMemoryError\n", "said_no_memory"),
        (b"MemoryError: Unable to allocate 3 GiB", "said_no_memory"),
        (b"numpy._core._exceptions._ArrayMemoryError: Unable to allocate", "said_no_memory"),
        (b"terminate called after throwing an instance of 'std::bad_alloc'\n", "said_no_memory"),
        (b"Exception in thread main java.lang.OutOfMemoryError: Java heap space", "said_no_memory"),
        (b"Invalid maximum heap size: -Xmx-100m\nError: Could not create the Java Virtual", "said_no_memory"),
        (b"Error occurred during initialization of VM\nToo small maximum heap\n", "said_no_memory"),
        (b"fork: Cannot allocate memory", "said_no_memory"),
        (b"/var/spool/slurmd/job7/slurm_script: line 3: 4711 Killed     python3 x.py", "said_no_memory"),
        (b"before\nKilled\nafter", "said_no_memory"),
        (b"slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.", "said_no_memory"),
        (b"Worker tcp://127.0.0.1:4 (pid=7) exceeded 95% memory budget. Restarting...", "said_no_memory"),
        (
            b"srun: error: Unable to create step for job 7: Memory required by task is not available\n",
            "said_no_memory",
        ),
        (b"ray.exceptions.OutOfMemoryError: Task was killed due to", "said_no_memory"),
        (b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to", "said_no_gpu_memory"),
        (b"RuntimeError: CUDA error: out of memory", "said_no_gpu_memory"),
        (b"CUDA out of memory\nMemoryError\n", "said_no_gpu_memory"),
        (b"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", "said_no_gpu_memory"),
        (
            b"XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
            "said_no_gpu_memory",
        ),
        (b"OOM when allocating tensor on /device:GPU:0 by allocator GPU_0_bfc", "said_no_gpu_memory"),
        (b"OOM when allocating tensor on /device:CPU:0 by allocator cpu", None),
        (
            b"srun: error: Unable to create step for job 1: Invalid generic resource (gres) specification\n",
            "said_no_gpus",
        ),
        (b"RuntimeError: CUDA error: invalid device ordinal\n", "said_no_gpus"),
        (b"init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on", "said_no_gpus"),
        (
            b"MisconfigurationException: You requested gpu: [0, 1, 2, 3]\n But your machine only has: [0]\n",
            "said_no_gpus",
        ),
        (b"World size (4) is larger than the number of available GPUs (1) in this node", "said_no_gpus"),
        (b"please set tensor_parallel_size (4) to less than max local gpu count (1)", "said_no_gpus"),
        (
            b"ValueError: compiling computation that requires 4 logical devices, but only 1 XLA devices are",
            "said_no_gpus",
        ),
        (b"ValueError: No slot '1' specified on host 'localhost'", "said_no_gpus"),
        (b"You requested GPUs: see the manual. Your machine has 4", None),
        (
            b"srun: error: Unable to create step for job 7: More processors requested than permitted\n",
            "said_no_step",
        ),
        (
            b"There are not enough slots available in the system to satisfy the 8\nslots that were requested",
            "said_no_cpus",
        ),
        (b"would result in binding more\nprocesses than cpus on a resource:\n", "said_no_cpus"),
        (
            b"Your job has requested more processes than the ppr for\nthis topology can support:",
            "said_no_cpus",
        ),
        (
            b"Environment variable OMP_NUM_THREADS (2) and the number of threads requested\non the command line",
            "said_no_cpus",
        ),
        (
            b"The total number of threads requested (3) is not divisible by the number of\nthread-MPI",
            "said_no_cpus",
        ),
        (b"Cannot have 2 separate PME ranks with only 0 PP ranks, choose fewer or no\n", "said_no_cpus"),
        (
            b"The size of the domain decomposition grid (4) does not match the number of PP\nranks (2).",
            "said_no_cpus",
        ),
        (
            b"The size of the domain decomposition grid (128) does not match the number of\nPP ranks (16).",
            "said_no_cpus",
        ),
        (
            b"The number of ranks selected for particle-particle work (13) contains a large\nprime factor 13.",
            "said_no_cpus",
        ),
        (b"While computing bindings, we found no available cpus on\nthe following node:\n", "said_no_cpus"),
        (b"Process requirement exceeds available CPUs -- req: 4; avail: 2", "said_no_cpus"),
        (b"Requested at least 16 cores but only 2.0 available", "said_no_cpus"),
        (b"kind-CWLJob v1 is requesting 16.0 cores, more than the maximum of 2 cores that", "said_no_cpus"),
        (b"ValueError: Number of processes must be at least 1", "said_no_cpus"),
        (b"ValueError: max_workers must be greater than 0", "said_no_cpus"),
        (b"ValueError: n_jobs == 0 in Parallel has no meaning", "said_no_cpus"),
        (b"ValueError: The number of threads must be between 1 and 1", "said_no_cpus"),
        (b"  'mc.cores' must be >= 1\n", "said_no_cpus"),
        (b"  numeric 'names' must be >= 1\n", "said_no_cpus"),
        ("Error: ‘workers >= 1’ is not TRUE\n".encode(), "said_no_cpus"),
        (b'Error: Argument "num_threads". Illegal value, expected >=1:  `0\'', "said_no_cpus"),
        (b"-p/--threads arg must be at least 1\n", "said_no_cpus"),
        (b"sort: number in parallel must be nonzero\n", "said_no_cpus"),
        (b"make: the '-j' option requires a positive integer argument\n", "said_no_cpus"),
        (
            b"java.lang.IllegalArgumentException\n\tat java.base/java.util.concurrent.ThreadPoolExecutor.<init>(T",
            "said_no_cpus",
        ),
        (
            b"srun: Job 7 step creation still disabled, retrying (Requested nodes are busy)\n",
            "said_waits",
        ),
        (
            b"srun: error: Unable to create step for job 2: Job/step already completing or completed\n",
            "said_waits",
        ),
        (b"No available node types can fulfill resource request {'CPU': 4.0}. Add", "said_waits"),
        (b"WARN TaskSchedulerImpl: Initial job has not accepted any resources; check", "said_waits"),
        (b"No available node types can fulfill resource request {'GPU': 4.0}. Add", "said_waits"),
        (b"No available node types can fulfill resource request {'TPU': 4.0}. Add", None),
        (b"Number of processes: 1, at least", None),
        (b"the process ended with a code greater than 0", None),
        (b"memory used: 12 GiB; no error", None),
        (b"he was Killed in action", None),
        (b"HandleMemoryErrors()", None),
        (b"a memory budget of 95%", None),
        (b"", None),
    ],
)
def test_the_phrases_of_programs_with_too_little_memory_or_too_few_cpus_or_gpus(
    text: bytes, said: Said | None
) -> None:
    assert mark_in(text) == said


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/home/ann/slurm-7.out", "/home/ann/slurm-7.out"),
        ("/home/ann/%x-%A_%4a.%u%%", "/home/ann/align-5_0012.ann%"),
        ("/home/ann/%j", "/home/ann/7"),
        ("/home/ann/%N.out", ""),
        ("relative", ""),
    ],
)
def test_slurms_filename_patterns_are_filled_in_if_they_are_known(path: str, real: str) -> None:
    job = waiting(7, user="ann", name="align", array_job_id=5, array_tasks="12")
    assert file_of(path, job) == real
    assert file_of("/home/ann/%A", waiting(8)) == "/home/ann/8"


def test_only_the_end_of_an_output_is_read(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_bytes(b"MemoryError\n" + b"x" * MOST_BYTES)
    assert tail_of(str(file), ME) == b"x" * MOST_BYTES
    assert tail_of(str(tmp_path), ME) == b""
    assert tail_of(str(tmp_path / "none"), ME) == b""


@needs_root
def test_a_file_that_its_user_may_not_read_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_bytes(b"MemoryError\n")
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    user = pwd.getpwnam("games").pw_uid
    assert tail_of(str(file), user) == b"MemoryError\n"
    file.chmod(0o600)
    assert tail_of(str(file), user) == b""
    link = tmp_path / "link"
    link.symlink_to(file)
    assert tail_of(str(link), user) == b""


def test_the_reader_for_a_user_is_started_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "secret")
    held = tail_of("/proc/self/environ", ME)
    assert held is not None
    assert b"PATH=" in held
    assert b"PGPASSWORD" not in held


def test_a_file_that_is_not_a_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "{}").write_bytes(b"MemoryError\n")
    assert [tail_of(str(tmp_path / name), ME) for name in ("pipe", "device", "{}")] == [
        b"",
        b"",
        b"MemoryError\n",
    ]


def ends(file: Path) -> bool:
    """Whether the process whose id is in the file ends, which takes a moment on a busy machine."""
    open_file, until_s = Path(f"/proc/{file.read_text().strip()}/fd/1"), time.monotonic() + 10
    while open_file.exists() and time.monotonic() < until_s:
        time.sleep(0.01)
    return not open_file.exists()


def test_a_reader_that_hangs_ends_by_itself_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "hanging"
    hanging.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(output, "_PROGRAMS", ("setpriv", "timeout", "find", str(hanging)))
    first, other = tmp_path / "first", tmp_path / "other"
    for file in (first, other):
        file.write_bytes(b"MemoryError\n")
    # The second file is not waited for.
    run = msgspec.structs.replace(failed("FAILED"), outputs=(str(first), str(other)))
    run = msgspec.structs.replace(run, job=msgspec.structs.replace(run.job, uid=ME))
    assert tail_of(str(first), ME) is None
    assert ends(tmp_path / "pid")
    monkeypatch.setattr(
        output, "tail_of", lambda path, _uid: None if path == str(first) else b"MemoryError\n"
    )
    assert Outputs().said_by(run) is None


def test_outputs_of_a_user_that_do_not_answer_are_read_no_more_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand tasks whose output hangs took recovery a thousand seconds, and slurmctld forgot everybody's."""
    now_s, read = 0.0, list[int]()

    def hanging(_path: str, uid: int) -> bytes | None:
        nonlocal now_s
        now_s += 1.0 if uid == 7 else 0.0
        read.append(uid)
        return None if uid == 7 else b"MemoryError\n"

    monkeypatch.setattr(output, "tail_of", hanging)
    outputs, run = Outputs(lambda: now_s), failed("FAILED", "1:0")
    one, another = (
        msgspec.structs.replace(run, outputs=("/a", "/b"), job=msgspec.structs.replace(run.job, uid=uid))
        for uid in (7, 8)
    )
    assert [outputs.said_by(one) for _ in range(100)] == [None] * 100
    assert outputs.said_by(another) == "said_no_memory"
    assert read == [7] * MOST_LATE + [8]
    now_s += REST_S
    outputs.said_by(one)
    assert read[-1] == 7


def test_a_regular_file_that_takes_long_to_read_is_given_up(tmp_path: Path) -> None:
    endless = tmp_path / "endless"
    endless.symlink_to("/proc/self/pagemap")
    assert tail_of(str(endless), ME) is None


def test_a_reader_that_was_started_late_is_ended_with_everything_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "hanging"
    hanging.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    hanging.chmod(0o755)
    # Stands in for `timeout`: its time would begin so late that ours ends first.
    late = tmp_path / "late"
    late.write_text(f"#!/bin/sh\nshift 2\n{hanging} &\nwait\n")
    late.chmod(0o755)
    monkeypatch.setattr(output, "_PROGRAMS", ("setpriv", str(late), "find", "tail"))
    monkeypatch.setattr(output, "PATIENCE_S", 0.5)
    assert tail_of(str(tmp_path / "any"), ME) is None
    assert ends(tmp_path / "pid")


@needs_root
def test_no_output_of_one_user_stops_the_jobs_of_others() -> None:
    service, user = pwd.getpwnam("daemon"), pwd.getpwnam("games")
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        journal = folder / "journal"
        journal.mkdir()
        os.chown(journal, service.pw_uid, service.pw_gid)
        for name, make in ODD_OUTPUTS.items():
            output_file = folder / name
            make(output_file)
            os.chown(output_file, user.pw_uid, user.pw_gid, follow_symlinks=False)
        (folder / "closed").write_bytes(b"MemoryError\n")
        (folder / "closed").chmod(0o600)
        for name in (*ODD_OUTPUTS, "closed", "missing"):
            found = as_service(service, user.pw_uid, folder / name, journal / name)
            own = [1] if name == "huge" else []
            assert found == {
                "unable": "",
                "rounds": [[*own, 2]] * 2,
                "said": ["said_no_memory" if own else None],
            }, name
        left = subprocess.run(
            ["ps", "-o", "args=", "-u", user.pw_name], capture_output=True, text=True, check=False
        )
        assert str(folder) not in left.stdout
    finally:
        shutil.rmtree(folder)


def huge(file: Path) -> None:
    """Make a file of 1 TiB, nearly all of it a hole."""
    with file.open("wb") as opened:
        opened.seek(1024**4)
        opened.write(b"\nMemoryError\n")


ODD_OUTPUTS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda file: file.symlink_to("/dev/zero"),
    "terminal": lambda file: file.symlink_to("/dev/tty"),
    "loop": lambda file: file.symlink_to(file.name),
    "folder": Path.mkdir,
    "huge": huge,
    "endless": lambda file: file.symlink_to("/proc/self/pagemap"),
}


def as_service(service: pwd.struct_passwd, uid: int, output_file: Path, journal: Path) -> object:
    """Return the results of a recovery that may do no more than become other users (as_service.py)."""
    two = "+setuid,+setgid"
    skip_unless_read_by(service.pw_uid)
    done = subprocess.run(
        [
            "setpriv", f"--reuid={service.pw_uid}", f"--regid={service.pw_gid}", "--clear-groups", "--no-new-privs",
            f"--inh-caps=-all,{two}", f"--ambient-caps={two}", f"--bounding-set=-all,{two}",
            sys.executable, "-B", "-m", "tests.slurm_plugin.recovery.as_service",
        ],
        input=json.dumps((uid, [str(output_file)], str(journal))),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_output_gives_the_cause_if_nothing_else_does() -> None:
    run = failed("FAILED", "1:0")
    assert judge(run) == judging.NOT_FOR_WANT
    assert change_of(judge(run, said="said_no_memory")).mem_per_node_mib == 8000
    found = judge(failed("TIMEOUT", "0:0"), said="said_no_memory")
    assert isinstance(found, Recovery)
    assert found.cause == "timeout"
    assert judge(run, said="said_no_gpu_memory") == judging.NOT_WHAT_WE_CUT
    assert judge(failed("CANCELLED", "0:15"), said="said_no_memory") == judging.NOT_FOR_WANT


def test_gpus_that_were_cut_are_given_back() -> None:
    asked = JobRequest(user="ann", num_tasks=2, cpus_per_task=2, mem_per_node_mib=500, gpus_per_job=4)
    run = failed("FAILED", "1:0", gpus=1, admin_comment=token(asked, Grant(gpus_per_job=1)))
    run = msgspec.structs.replace(run, gpu_fields={"TresPerJob": "gres/gpu:1"})
    for said in ("said_no_gpu_memory", "said_no_gpus", "said_no_step"):
        change = change_of(judge(run, said=said))
        assert (change.gpus_per_job, change.cpus_per_task, change.mem_per_node_mib) == (4, None, None)
    assert judge(run, said="said_no_cpus") == judging.NOT_WHAT_WE_CUT


@pytest.mark.parametrize("said", ["said_no_gpus", "said_no_step", "said_waits"])
@pytest.mark.parametrize("busy", [None, 0.01, 1.0])
def test_a_job_that_timed_out_for_lack_of_gpus_comes_back_if_its_output_says_so(
    said: Said, busy: float | None
) -> None:
    """Its other ranks waited for the one that found no GPU, either idle or in a busy loop."""
    asked = JobRequest(user="ann", num_tasks=2, cpus_per_task=2, mem_per_node_mib=500, gpus_per_job=4)
    run = failed("TIMEOUT", "0:0", gpus=1, admin_comment=token(asked, Grant(gpus_per_job=1)))
    run = msgspec.structs.replace(run, gpu_fields={"TresPerJob": "gres/gpu:1"}, busy_share=busy)
    left = judge(run)
    assert left == (judging.WAS_IDLE if busy == 0.01 else judging.HAD_FEWER_GPUS)
    assert judging.may_say(run, left)
    found = judge(run, said=said)
    assert change_of(found).gpus_per_job == 4
    assert isinstance(found, Recovery)
    assert found.cause == "timeout"
    assert judge(run, said="said_no_cpus") == judging.HAD_FEWER_GPUS
    assert judge(run, said="said_no_memory") == left


def test_the_output_of_a_timed_out_job_with_all_its_gpus_is_not_read() -> None:
    less = token(grant=Grant(mem_per_node_mib=500))
    run = failed("TIMEOUT", "0:0", cpus_per_task=8, admin_comment=less)
    left = judge(msgspec.structs.replace(run, busy_share=1.0))
    assert left == judging.NOT_WHAT_WE_CUT
    assert not judging.may_say(run, left)


def test_the_epilog_recovers_without_reading_outputs_if_only_the_watcher_may(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "why_unable", lambda: "this process may not act as other users")
    wanted = Config(recovery=Settings(read_output=True))
    assert not reads_output(wanted, job_id=7)
    assert (
        "left to `rightsizer recover --watch`: this process may not act as other users"
        in capsys.readouterr().err
    )
    with pytest.raises(
        ServiceError, match=r"may not act as other users, or set recovery\.read_output to false"
    ):
        reads_output(wanted, job_id=None)
    assert not reads_output(Config(), job_id=None)
