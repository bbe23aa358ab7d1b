"""Whether the end of a failed job's output says that memory, CPUs or GPUs were short. It decides nothing else.

If memory, CPUs or GPUs are short, programs end with codes of their own, or wait for them until their time is over;
only their words show it. The output belongs to its user, so a process of that user reads it (with the user's uid and
groups, and none of ours): the last 64 KiB, for a second at most, and only if it is a regular file. A path that leads
to somebody else's file therefore shows nothing that the user could not read directly, and no word of it is kept: only
which mark was found. Becoming another user takes two capabilities; the site switches it on (recovery.read_output).
Ending another user's process would take a third: so the reader ends by itself.

Some regular files take longer than that to read (`/proc/self/pagemap`, to which a link in the output's place leads).
One user's thousand jobs with such an output must not hold up everybody's: after a few, no more of that user's are read
for a while.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from accounting.wants import Said
from slurm_plugin.slurm.queue import Failed
from slurm_plugin.slurm.snapshot import QueuedJob

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 1024
# A round may meet hundreds of jobs whose files are unreachable, and slurmctld forgets the others after MinJobAge.
PATIENCE_S = 1.0
# By then the reader has ended by itself, if it can: not if its file system is unreachable, or its user stopped it.
GRACE_S = 0.5
# Once this many jobs of a user had such an output within this time, the user's others say nothing.
MOST_LATE, REST_S = 3, 60.0

# What Python, NumPy, C++, Java, the C library and Slurm's own step daemon write; bash about a child that was killed;
# Dask, which shares the job's memory out among its workers and ends one that has more than its share; Ray; and an
# srun of a step that asks for more than the job has.
_MEMORY = re.compile(
    rb"\b_?(?:Array)?MemoryError\b"
    rb"|std::bad_alloc"
    rb"|java\.lang\.OutOfMemoryError"
    # A heap that a tool worked out from the job's memory (BBTools: -Xmx-100m).
    rb"|(?:Invalid|Too small) maximum heap"
    rb"|Cannot allocate memory"
    rb"|\boom[-_]kill"
    rb"|exceeded \d+% memory budget"
    rb"|\bray\.exceptions\.OutOfMemoryError"
    rb"|Unable to create step for job \d+: Memory required by task is not available"
    rb"|^(?:\S+: line \d+: *\d+ )?Killed\b",
    re.MULTILINE,
)
# The runtimes of CUDA and ROCm, PyTorch's words for either; cuBLAS, CuPy, XLA (JAX), TensorFlow.
_GPU_MEMORY = re.compile(
    rb"(?:CUDA|HIP)(?: error:)? out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
    rb"|CUBLAS_STATUS_ALLOC_FAILED|\bcupy\.cuda\.memory\.OutOfMemoryError"
    rb"|RESOURCE_EXHAUSTED: Out of memory|by allocator GPU_\d+_bfc"
)
# Words of programs that looked for more GPUs than there were (docs/decisions/0075).
_GPUS = re.compile(
    # srun about a step; the runtimes of CUDA and ROCm about a number that no GPU has; NCCL and RCCL about two ranks
    # on one.
    rb"Unable to create step for job \d+: Invalid generic resource \(gres\) specification"
    rb"|invalid device ordinal"
    rb"|Duplicate GPU detected"
    # Lightning, vLLM and programs built on it, JAX, DeepSpeed.
    rb"|You requested (?:gpu|GPUs): \[[^\]\n]{0,200}\]\s{1,3}But your machine only has"
    rb"|is larger than the number of available GPUs"
    rb"|less than (?:than )?max local gpu count"
    rb"|number of required GPUs exceeds the total number of available GPUs"
    rb"|requires \d+ logical devices, but only \d+ XLA devices"
    rb"|No slot '\d+' specified on host"
)
# A step with more tasks than the job has CPUs for, or GPUs: srun does not say which.
_STEP = re.compile(rb"Unable to create step for job \d+: More processors requested than permitted")
# Words of programs that had too few CPUs, each seen from a job that was cut (docs/decisions/0068).
_CPUS = re.compile(
    # Open MPI, whose slots are CPUs if it knows nothing of Slurm, and which binds its ranks.
    rb"not enough slots available in the system"
    rb"|result in binding more\s+processes than cpus"
    rb"|more processes than the ppr for\s+this topology can support"
    rb"|found no available cpus on"
    # GROMACS, about its threads, and its ranks on them.
    rb"|OMP_NUM_THREADS \(\d+\) and the number of threads requested\s+on the command line"
    rb"|number of threads requested \(\d+\) is not divisible by"
    rb"|separate PME ranks with only \d+ PP ranks|contains a large\s+prime factor"
    rb"|domain decomposition grid \(\d+\) does not match the\s+number\s+of\s+PP\s+ranks"
    # Workflow engines about one task: Nextflow, cwltool, Toil.
    rb"|requirement exceeds available CPUs"
    rb"|Requested at least [\d.]+ cores? but only"
    rb"|requesting [\d.]+ cores, more than the maximum"
    # A part of the CPUs, or all but one, is zero: Python, numba, R, BLAST, Bowtie; Java, make, sort, joblib, R.
    rb"|(?:process|worker|thread|core|job|cpu)(?:e?s)?\W[^\n]{0,40}?"
    rb"(?:must be (?:at least|>=|between|greater than) [01]\b|>= ?1\b)"
    rb"|IllegalArgumentException\s+at [^\n]{0,80}(?:ThreadPoolExecutor|ForkJoinPool)\.<init>"
    rb"|'-j' option requires a positive integer"
    rb"|number in parallel must be nonzero"
    rb"|n_jobs == 0 in Parallel has no meaning"
    rb"|numeric 'names' must be >= 1"
)
# Words of programs that wait for CPUs or GPUs: an srun for those of other steps, Ray's tasks, Spark's. Programs that
# later go on say them too.
_WAITS = re.compile(
    rb"step creation (?:temporarily|still) disabled, retrying"
    # All that 26.05 says about it, once the job is over.
    rb"|Unable to create step for job \d+: Job/step already completing or completed"
    rb"|resource request[^\n{]{0,80}\{[^\n}]{0,300}'[CG]PU'"
    rb"|Initial job has not accepted any resources"
)
_WORDS: tuple[tuple[Said, re.Pattern[bytes]], ...] = (
    ("said_no_gpu_memory", _GPU_MEMORY),
    ("said_no_gpus", _GPUS),
    ("said_no_memory", _MEMORY),
    ("said_no_step", _STEP),
    ("said_no_cpus", _CPUS),
    ("said_waits", _WAITS),
)
# CAP_SETGID and CAP_SETUID, of which the reading process keeps neither.
_NEEDED = 1 << 6 | 1 << 7
# How `timeout` ends when the time is over: by its own signal, or reporting it.
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
# From util-linux, coreutils and findutils.
_PROGRAMS = ("setpriv", "timeout", "find", "tail")
_NOTHING_MORE = ("--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs", "--")
# Slurm's file name patterns that can be filled in from a job's record; a number is the width to pad to.
_PATTERN = re.compile(r"%(\d{0,2})(.)", re.DOTALL)


def why_unable() -> str:
    """Return why no output can be read, with what to do about it; '' if it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"cannot find {', '.join(missing)}; install util-linux, coreutils and findutils"
    found = re.search(
        r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE
    )
    if not found or int(found[1], 16) & _NEEDED != _NEEDED:
        return "this process may not act as other users; give it CAP_SETUID and CAP_SETGID (docs/recovery.md)"
    return ""


class Outputs:
    """The outputs of jobs; those of one user do not keep recovery from other users' jobs for long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing was read yet."""
        self._clock = clock
        # When files were given up lately, by the uid of their jobs.
        self._late_s: dict[int, list[float]] = {}

    def said_by(self, run: Failed) -> Said | None:
        """Return what a job's output says there was too little of; None if it says nothing, or cannot be read.

        The job's files are read until one says something, or does not answer.
        """
        uid, now_s = run.job.uid, self._clock()
        late_s = [moment_s for moment_s in self._late_s.get(uid, ()) if moment_s > now_s - REST_S]
        if len(late_s) >= MOST_LATE:
            return None
        files = (file_of(path, run.job) for path in dict.fromkeys(run.outputs))
        for file in filter(None, files):
            text = tail_of(file, uid)
            if text is None:
                self._late_s[uid] = [*late_s, self._clock()]
                if len(self._late_s[uid]) == MOST_LATE:
                    told = "%d outputs of user %d did not answer: no more of this user's are read for %.0f s"
                    log.warning(told, MOST_LATE, uid, REST_S)
                return None
            if (said := mark_in(text)) is not None:
                return said
        return None


def mark_in(text: bytes) -> Said | None:
    """Return what a text says there was too little of. A program that is out of GPU memory may also mention memory."""
    return next((said for said, words in _WORDS if words.search(text)), None)


def file_of(path: str, job: QueuedJob) -> str:
    """Return an output's absolute path with Slurm's patterns filled in; '' if one of them is not known here."""
    values = {
        "A": str(job.array_job_id or job.job_id),
        "a": job.array_tasks,
        "j": str(job.job_id),
        "J": str(job.job_id),
        "x": job.name,
        "u": job.user,
        "%": "%",
    }
    known = True

    def filled(found: re.Match[str]) -> str:
        nonlocal known
        value = values.get(found[2], "")
        known = known and bool(value)
        return value.zfill(int(found[1] or 0)) if value.isdigit() else value

    real = _PATTERN.sub(filled, path)
    return real if known and real.startswith("/") else ""


def tail_of(path: str, uid: int) -> bytes | None:
    """Return the last bytes of a regular file as its user may read it, b"" if the user may not; None if it hangs.

    A process that hangs in an unreachable file system is not waited for. Raises OSError if no process can be started.
    """
    try:
        group = pwd.getpwuid(uid).pw_gid
    except KeyError:
        return b""
    setpriv, timeout, find, tail = map(shutil.which, _PROGRAMS)
    if not (setpriv and timeout and find and tail):
        return b""
    process = subprocess.Popen(
        [
            setpriv, f"--reuid={uid}", f"--regid={group}", "--init-groups", *_NOTHING_MORE,
            # The process is the user's by now, and we may lack CAP_KILL: `timeout`, as the user, ends it.
            timeout, "--signal=KILL", f"{PATIENCE_S:g}",
            # No FIFO, device or socket is opened, nor one that a link leads to.
            find, "-L", path, "-maxdepth", "0", "-type", "f",
            "-exec", tail, f"--bytes={MOST_BYTES}", "--", "{}", ";",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        # The user may read the environment of the process, and ours may hold a password.
        env={"PATH": os.defpath, "LC_ALL": "C"},
    )  # fmt: skip
    try:
        text = process.communicate(timeout=PATIENCE_S + GRACE_S)[0]
    except subprocess.TimeoutExpired:
        # Kill all that it has started too: killing `timeout` alone would leave the rest without any time limit.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        return None
    else:
        return None if process.returncode in _KILLED else text
    finally:
        if process.stdout is not None:
            process.stdout.close()
