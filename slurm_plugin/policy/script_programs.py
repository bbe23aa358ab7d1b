"""Programs whose needs past jobs do not show: they share out what their job has, or a person works in them. Pure.

A workflow engine, Ray or a pilot looks at what its job was given and offers as much to tasks that come from
elsewhere. With less, a task that asks for more is refused, or waits until the time limit. In a session (Jupyter,
RStudio, a desktop), yesterday's work says little about today's, and requeueing a killed one is of no use to the
person in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from accounting.request import Dimension


def _with(word: str, option: str) -> str:
    """Return a pattern for a command's name, and what has to follow within its 200 characters of options.

    The name that precedes it last counts: a script has room for thousands of them, or of blanks, and from each the
    options would be looked through.
    """
    return rf"\b{word}[ \t](?:(?!\b{word}[ \t])[^\n;|&]){{0,200}}?{option}"


class Program(NamedTuple):
    """How a program is started (any of `words`, then `starts`), and what it keeps; `why` is the reason."""

    why: str
    kept: tuple[Dimension, ...]
    words: tuple[str, ...]
    starts: re.Pattern[str]


# If Toil submits a job for each task, the tasks use nothing of this job.
_ITSELF = r"(?![^\n;|&]{0,400}--batchSystem[= \t]+(?!single))"
_PILOT: tuple[Dimension, ...] = ("memory", "cores", "gpus")
_PROGRAMS = (
    # Started in a job, these refuse any task of a workflow that asks for more CPUs or memory than they see: Nextflow
    # (nf-core/sarek#1165), `cwltool --parallel` («but only 2.0 available»), Toil (InsufficientSystemResources) if it
    # runs the tasks itself. Cactus, which is built on Toil, is recognised by what it writes: many folders are named
    # «cactus».
    Program(
        "a workflow engine shares out what its job has",
        ("memory", "cores"),
        ("nextflow", "cwltool", "toil-", "cactus"),
        re.compile(
            _with("nextflow", r"\brun\b")
            + "|"
            + _with("cwltool", r"--parallel\b")
            + rf"|toil-(?:cwl|wdl)-runner\b{_ITSELF}"
            rf"|\bcactus(?:-[a-z0-9]{{1,30}}){{0,5}}[ \t](?=[^\n;|&]{{0,200}}?(?:\.hal\b|--outDir\b)){_ITSELF}"
        ),
    ),
    # A worker that uses more than its share of the job's memory is ended, however little the others use.
    Program(
        "Dask shares out the memory of its job",
        ("memory",),
        ("dask", "LocalCluster("),
        # Dask-MPI's ranks are workers, but for the first two.
        re.compile(r"\bdask[ -]worker\b|\bdask[-_]mpi\b|distributed\.cli\.dask_worker\b|LocalCluster\("),
    ),
    # A task that asks Ray for more CPUs, GPUs or memory than it was started with waits for ever.
    Program(
        "Ray shares out what its job has",
        _PILOT,
        ("ray",),
        re.compile(r"ray(?<!\wray)(?:[ \t]+(?:start|symmetric-run)\b|\.init\()"),
    ),
    # A pool of workers with `cpu_affinity` ends if it has fewer CPUs than workers, and its tasks wait (Parsl#2072).
    Program(
        "Parsl shares out what its job has",
        _PILOT,
        ("process_worker_pool", "HighThroughputExecutor("),
        re.compile(r"\bprocess_worker_pool(?:\.py)?\b|HighThroughputExecutor\("),
    ),
    Program(
        "HyperQueue shares out what its job has",
        _PILOT,
        ("hq ",),
        re.compile(_with("hq", r"\bworker[ \t]+start\b")),
    ),
    # If the first try failed for a cut, the next would for the same: it comes before anything was learned from the
    # first, and often asks for no more, or for a little more.
    Program(
        "its workflow engine tries again what has failed",
        _PILOT,
        ("--attempt", "_TRY_NUMBER", "ECF_TRYNO", "/attempt-"),
        re.compile(
            r"\b(?:CYLC_TASK_TRY_NUMBER|ECF_TRYNO)=[\"']?(?!1\b)[1-9]"
            # The script of a task of Cromwell.
            r"|/call-[^/\n]{1,200}(?:/shard-\d{1,9})?/attempt-(?!1\b)[1-9]\d{0,3}/execution/script\b"
            r"|--attempt[= \t]+(?!1\b)[1-9](?=[^\n]{0,4000}?--executor[= \t]+slurm-jobstep\b)"
        ),
    ),
    # Its step in the job asks for the CPUs of the rule's `cpus_per_task`, and for its GPUs, whatever the job was given:
    # with fewer, it is refused. No script shows whether a rule has them.
    Program(
        "Snakemake's step asks for what its rule says",
        ("cores", "gpus"),
        ("slurm-jobstep",),
        re.compile(r"--executor[= \t]+slurm-jobstep\b"),
    ),
    # Both start each step by an srun, which is refused if it asks for more CPUs than there are: executorlib then
    # waits for its workers, libEnsemble counts its simulations as failed and still ends successfully.
    Program(
        "an ensemble's manager shares out what its job has",
        _PILOT,
        ("JobExecutor(", "libensemble", "--comms"),
        re.compile(
            r"\b(?:Slurm|Flux)JobExecutor\(|\b(?:from|import)[ \t]+libensemble\b"
            # How scripts that use libEnsemble's parse_args are started.
            r"|--comms[= \t]+(?:local|threads|mpi|ssh|tcp)\b"
        ),
    ),
    Program(
        "a pilot fetches its work once it runs",
        _PILOT,
        (
            "_worker",
            "rlaunch",
            "run-batch",
            "glidein_startup",
            "condor_",
            "pilot",
            "bootstrap_",
            "ipengine",
            "ipcluster",
            "celery",
            "clustermq",
            "run-workers",
            "qcg",
            "balsam/",
            "prefect",
            "clearml-agent",
        ),
        re.compile(
            # The workers of clustermq and crew, in R.
            r"\b(?:work_queue|vine)_worker\b|\bclustermq:::worker\(|\bcrew::crew_worker\(|\brlaunch[ \t]"
            # A batch worker of jobflow-remote.
            r"|\bjf[ \t](?:-\w{1,20}[ \t])?execution[ \t]+run-batch\b"
            r"|\bglidein_startup\.sh\b|\bcondor_(?:master|startd)\b"
            r"|\brunpilot\d*-wrapper\.sh\b|\bdirac-pilot\b"
            # bootstrap_0.sh of RADICAL-Pilot, which starts its agent.
            r"|\bradical-pilot-agent\b|\bbootstrap_\d\.sh\b(?=[ \t][^\n;|&]{0,200}?-p[ \t])"
            r"|\bipengine\b|\bipcluster[ \t]+(?:start|engines)\b|"
            + _with("celery", r"\bworker\b")
            # Merlin's workers, which are Celery's; QCG-PilotJob; Balsam's launcher.
            + "|"
            + _with("merlin", r"\brun-workers\b")
            + r"|\bqcg\.pilotjob\b|\bqcg-pm-service\b|\bbalsam/cmdline/launcher\.py\b|"
            + _with("prefect", r"\b(?:agent|worker)[ \t]+start\b")
            + "|"
            + _with("clearml-agent", r"\b(?:daemon|execute)\b")
        ),
    ),
)
_SESSION_WORDS = (
    "jupyter",
    "batchspawner-",
    "connection YAML",
    "rserver",
    "rstudio-server",
    "code-server",
    "code tunnel",
    "vnc",
)
_SESSION = re.compile(
    r"\bjupyter(?:hub-singleuser\b|-(?:lab|labhub|notebook|server)\b|[ \t]+(?:lab|notebook|server)\b)"
    # Batchspawner's own part of the command of each of JupyterHub's sessions: what follows may be a site's own.
    r"|\bbatchspawner-singleuser\b"
    # Open OnDemand's own part of the script of each of its sessions.
    r"|\bGenerating connection YAML file\b"
    r"|\brserver[ \t]+-|\brstudio-server[ \t]+(?:start|restart)\b"
    r"|\b(?:openvs)?code-server\b(?![./-])|\bcode[ \t]+tunnel\b|\bvncserver\b(?![./-])|\bX(?:tiger)?vnc[ \t]"
)


def kept_by_programs(body: str) -> Iterator[tuple[Dimension, str]]:
    """Yield what stays as asked because of the programs that a script starts, and why."""
    for program in _PROGRAMS:
        # A plain search is ten times as fast as a word boundary, and a submission waits for it.
        if any(word in body for word in program.words) and program.starts.search(body):
            yield from ((dimension, program.why) for dimension in program.kept)


def is_session(body: str) -> bool:
    """Whether a person works in what a script starts."""
    return any(word in body for word in _SESSION_WORDS) and bool(_SESSION.search(body))
