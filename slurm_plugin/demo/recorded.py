"""The demo without Slurm: accounting recorded on a private Slurm, then real training, service and Lua hook."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from accounting.errors import SandboxError, ServiceError, SlurmError
from accounting.ingest.ingesting import fetched_answer, ingest
from accounting.ingest.run import IngestSettings
from accounting.records import Attempt
from accounting.slurm.sacct import Answer
from accounting.slurm.sacct_records import Metering
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from slurm_plugin.config.file import CONFIG_VARIABLE, render_config
from slurm_plugin.config.hook import hook_settings
from slurm_plugin.config.settings import Config
from slurm_plugin.config.settings import Models as ModelsSection
from slurm_plugin.config.settings import Store as StoreSection
from slurm_plugin.demo.lua_hook import JobFields, LuaHook
from slurm_plugin.demo.table import cores, size
from slurm_plugin.demo.workload import FAMILIES, JOBS
from slurm_plugin.policy.submission import Submission
from slurm_plugin.sandbox.daemons import unix_complaint
from slurm_plugin.sbatch.script import read_submission

RECORDED = Path(__file__).parent / "recorded_accounting"
# What sacct printed: the figures of jobs and steps, and the texts of jobs.
FIGURES_FILE, TEXTS_FILE = RECORDED / "sacct-figures.txt", RECORDED / "sacct-texts.txt"
# Every sandbox samples once a second, because its jobs take only a few seconds.
SAMPLED_EVERY_S = 1
# On a busy machine Python's imports take tens of seconds. If the service ends, the wait ends too.
START_PATIENCE_S = 120.0
# The recorded jobs are root's.
USER = "root"

Say = Callable[[str], None]


def tell_recorded(say: Say) -> list[dict[str, object]]:
    """Ingest and train from the recording, then submit each family to the real hook; return one row per family."""
    try:
        with tempfile.TemporaryDirectory(prefix="rightsizer-demo-") as name:
            folder = Path(name)
            config = _configure(folder)
            attempts = ingest_recording(config, folder)
            say(f"{len(attempts)} recorded attempts ingested into {config.store.url.rpartition('/')[2]}")
            say(f"model {train_current(config, attempts)} trained")
            with _service(folder, config), contextlib.closing(LuaHook(folder)) as hook:
                say("the service is running; the Lua hook asks it, as in slurmctld")
                return [_submit(family, hook, attempts) for family in FAMILIES]
    except OSError as error:  # one of several files that could not be copied has no strerror
        raise SandboxError(
            f"cannot write the demo's files: {error.strerror or 'they could not all be copied'}; free some space in "
            "the folder of temporary files, or set TMPDIR to another one"
        ) from None


def _configure(folder: Path) -> Config:
    """Write a configuration and the hook's settings into the demo's own folder."""
    config = msgspec.structs.replace(
        Config(),
        mode="enforce",
        service=msgspec.structs.replace(
            Config().service,
            socket=str(folder / "rightsizer.sock"),
            journal=str(folder / "journal"),
            limits_needed=False,  # there may be no Slurm here to ask
        ),
        hook=msgspec.structs.replace(Config().hook, kill_switch=str(folder / "disabled"), deadline_ms=1000),
        store=StoreSection(url=f"sqlite:///{folder}/store.db"),
        models=ModelsSection(directory=str(folder / "models")),
    )
    (folder / "rightsizer.toml").write_text(render_config(config), encoding="utf-8")
    (folder / "rightsizer_site.lua").write_text(hook_settings(config), encoding="utf-8")
    return config


def ingest_recording(config: Config, folder: Path) -> list[Attempt]:
    """Ingest the recording into the configured store and return its attempts; `folder` receives a copy of it."""
    # A copy, because ingest keeps track of the journals and spools that it has read.
    shutil.copytree(RECORDED, folder, dirs_exist_ok=True)
    answer = Answer(figures=FIGURES_FILE.read_bytes(), texts=TEXTS_FILE.read_bytes(), one_text=_nothing)
    settings = IngestSettings(
        sacct="sacct",
        overlap_s=0,
        first_days=1,
        gpu_spool=folder / "gpu-spool",
        journal=folder / "journal",
        metering=Metering(sampled_every_s=SAMPLED_EVERY_S),
    )
    engine = open_store(config.store.url, create=True)
    try:
        ingest(
            engine,
            settings,
            int(time.time()),
            source=lambda _begin_s, end_s: fetched_answer(answer, end_s, settings.metering),
        )
        return read_attempts(engine)
    finally:
        engine.dispose()


def _nothing(display_id: str, column: str) -> bytes:
    """Raise SlurmError: no text of the recording is ambiguous, so none needs to be asked for by itself."""
    raise SlurmError(f"the recording does not contain the {column} of job {display_id}")


def train_current(config: Config, attempts: list[Attempt]) -> str:
    """Train on attempts, make the model the current one, and return its version."""
    from models.training import training
    from models.versions import registry

    directory = Path(config.models.directory)
    version = training.save(training.train(attempts, config.models.recent_jobs), directory, time.time())
    registry.promote(directory, version)
    return version


@contextlib.contextmanager
def _service(folder: Path, config: Config) -> Iterator[None]:
    """Run `rightsizer serve` during the block."""
    command = [sys.executable, "-m", "slurm_plugin.cli", "serve"]
    environment = {**os.environ, CONFIG_VARIABLE: str(folder / "rightsizer.toml")}
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait_for(process, Path(config.service.socket), folder / "serve.log")
        yield
    finally:
        process.terminate()
        process.wait(START_PATIENCE_S)


def _wait_for(process: subprocess.Popen[bytes], path: Path, log: Path) -> None:
    deadline_s = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < deadline_s and process.poll() is None:
        if unix_complaint(path) is None:
            return
        time.sleep(0.05)
    raise ServiceError(
        "`rightsizer serve` does not answer: "
        f"{log.read_text(errors='replace').strip()[-300:] or 'it says nothing'}"
    )


def _submit(family: str, hook: LuaHook, attempts: list[Attempt]) -> dict[str, object]:
    """Submit a family's script through the hook; return what was asked and granted, and what such jobs had used."""
    script = (JOBS / f"{family}.sbatch").read_text(encoding="utf-8")
    submission = read_submission(script, f"{family}.sbatch", USER)
    before = job_fields(submission)
    after, _ = hook.submit(before)
    used = [attempt.use for attempt in attempts if attempt.row.job_name == family]
    memory = "min_mem_per_cpu" if submission.mem_per_cpu_mib else "min_mem_per_node"
    per = "/CPU" if submission.mem_per_cpu_mib else "/node"
    return {
        "family": family,
        "tasks": submission.num_tasks or 1,
        "CPUs/task": f"{before.get('cpus_per_task', '-')} → {after.get('cpus_per_task', '-')}",
        "cores used": cores(max((use.cores for use in used if use.cores is not None), default=None)),
        "memory": f"{size(_number(before, memory))} → {size(_number(after, memory))} {per}",
        "peak used": size(
            max((use.peak_mem_mib for use in used if use.peak_mem_mib is not None), default=None)
        ),
        "gres": f"{before['gres']} → {after['gres']}" if "gres" in before else "-",
    }


def _number(fields: JobFields, name: str) -> float | None:
    value = fields.get(name)
    return float(value) if isinstance(value, (int, float)) else None


def job_fields(submission: Submission) -> JobFields:
    """Return the job description that slurmctld would pass to Lua for a submission, without unset fields."""
    tasks, cpus = submission.num_tasks or 1, submission.cpus_per_task
    fields: JobFields = {
        "user_name": submission.user,
        "user_id": submission.uid,
        "name": submission.name,
        "script": submission.script,
        "num_tasks": submission.num_tasks,
        "cpus_per_task": cpus,
        "min_cpus": None if cpus is None else tasks * cpus,
        "pn_min_cpus": cpus,
        "min_mem_per_node": submission.mem_per_node_mib,
        "min_mem_per_cpu": submission.mem_per_cpu_mib,
        "gres": None if submission.gpus_per_node is None else f"gres:gpu:{submission.gpus_per_node}",
    }
    return {name: value for name, value in fields.items() if value is not None}
