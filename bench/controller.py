"""A private Slurm for benchmarks, whose slurmctld starts afresh with a chosen hook and a chosen queue.

Each hook has its own slurmctld, so that they can alternate within a second. Its queue is saved once and restored
before every round, so that jobs left behind by one round cost nothing in the next.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.replay import Message, capture
from bench.task_script import task_script
from models.past.families import script_signature
from slurm_plugin.config.file import load_config
from slurm_plugin.config.hook import HOOK_SCRIPT, hook_settings
from slurm_plugin.demo.recorded import ingest_recording, train_current
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.environment import command_environment

NO_HOOK, EMPTY, OURS = "no hook", "empty Lua hook", "ours"
EMPTY_HOOK = """\
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""
ASKED_CPUS = 8
MOST_JOBS = 300_000
RPC = re.compile(r"REQUEST_SUBMIT_BATCH_JOB\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)")
AGENT_EMPTY = re.compile(r"DBD Agent queue size:\s*0\b")
DRAIN_PATIENCE_S = 20.0
STATE_FILE = "job_state"


class Controller:
    """A sandbox with one hook (or none); `start` brings its slurmctld into the state to measure."""

    def __init__(self, directory: Path, hook: str, deadline_ms: int) -> None:
        self.hook = hook
        self.sandbox = cluster.start(
            cluster.Options(directory=directory, nodes=1, mode="enforce", serve=False)
        )
        self._layout = self.sandbox.layout
        self._plain_conf = self._layout.slurm_conf.read_text(encoding="utf-8")
        if hook == EMPTY:
            script = self._layout.etc / HOOK_SCRIPT
            script.unlink()
            script.write_text(EMPTY_HOOK, encoding="utf-8")
        elif hook == OURS:
            self._make_ours(deadline_ms)

    def _make_ours(self, deadline_ms: int) -> None:
        config = load_config(str(self._layout.rightsizer_toml))
        recorded = ingest_recording(config, self._layout.rightsizer)
        # What was recorded of the demo's short script is used for the long scripts here.
        signature = script_signature(task_script(0))
        train_current(config, [msgspec.structs.replace(one, script_signature=signature) for one in recorded])
        own = msgspec.structs.replace(config.hook, deadline_ms=deadline_ms)
        settings = hook_settings(msgspec.structs.replace(config, hook=own))
        (self._layout.etc / "rightsizer_site.lua").write_text(settings, encoding="utf-8")

    @property
    def port(self) -> int:
        """The port of slurmctld."""
        return self.sandbox.manifest.ports.slurmctld

    @property
    def munge_socket(self) -> str:
        """The socket of this sandbox's munged."""
        return str(self._layout.munge_socket)

    def stop(self) -> None:
        """Stop everything."""
        cluster.stop(self.sandbox.directory)

    def capture(self, options: Sequence[str]) -> tuple[Message, ...]:
        """Return one submission for each of these options, each with its own script."""
        commands = []
        for number, option in enumerate(options):
            script = self._layout.run / f"task-{number}.sh"
            script.write_text(task_script(number), encoding="utf-8")
            commands.append(("sbatch", "--hold", "--output=/dev/null", option, str(script)))
        environment = command_environment(self._layout, self.sandbox.cluster.path_first)
        return capture(commands, environment, self.port, self.munge_socket, self._layout.run)

    def start(self, queued: int) -> None:
        """Start slurmctld afresh with a queue saved by `save_queue` (or with none)."""
        teardown.end_daemon(self._layout, daemons.SLURMCTLD)
        folder = self._state_folder(queued)
        folder.mkdir(exist_ok=True)
        for leftover in folder.glob(f"{STATE_FILE}*"):
            leftover.unlink()
        if queued:
            shutil.copyfile(self._saved(queued), folder / STATE_FILE)
        self._write_conf(queued)
        self._bring_up()

    def begin_queue(self, queued: int) -> None:
        """Start an empty slurmctld, without its hook, in which a queue of that size can be made."""
        shutil.rmtree(self._state_folder(queued), ignore_errors=True)
        self._state_folder(queued).mkdir()
        teardown.end_daemon(self._layout, daemons.SLURMCTLD)
        self._write_conf(queued, with_hook=False)
        self._bring_up()

    def save_queue(self, queued: int) -> None:
        """Save the queue that was made; slurmctld writes it when it ends."""
        teardown.end_daemon(self._layout, daemons.SLURMCTLD)
        shutil.copyfile(self._state_folder(queued) / STATE_FILE, self._saved(queued))

    def reset_counters(self) -> None:
        """Reset slurmctld's counters."""
        self.sandbox.command("sdiag", "--reset")

    def submissions(self) -> tuple[int, int]:
        """Return how many submissions slurmctld handled since the reset, and its total time for them, in µs."""
        found = RPC.search(self.sandbox.command("sdiag"))
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def share_resized(self, newest: int) -> float:
        """Return the share of the newest jobs that have fewer CPUs than they asked for."""
        lines = self.sandbox.command("squeue", "--noheader", "--sort=-i", "--format=%C").split()[:newest]
        return sum(int(word) < ASKED_CPUS for word in lines) / max(1, len(lines))

    def _bring_up(self) -> None:
        cluster.bring_up([daemons.slurmctld(self.sandbox.cluster)], self.sandbox.cluster, lambda _: None)
        # What the previous run left for slurmdbd is sent now, and would take cores from what is measured.
        deadline_s = time.monotonic() + DRAIN_PATIENCE_S
        while not AGENT_EMPTY.search(self.sandbox.command("sdiag")) and time.monotonic() < deadline_s:
            time.sleep(0.1)

    def _state_folder(self, queued: int) -> Path:
        # One folder for each queue: slurmctld removes the scripts of jobs that it does not know.
        return self._layout.state / f"slurmctld-{queued}"

    def _saved(self, queued: int) -> Path:
        return self._layout.state / f"saved-{queued}"

    def _write_conf(self, queued: int, *, with_hook: bool = True) -> None:
        text = re.sub(
            r"^StateSaveLocation=.*$",
            f"StateSaveLocation={self._state_folder(queued)}",
            self._plain_conf,
            flags=re.MULTILINE,
        )
        # A sandbox schedules after every submission, under the same locks; clusters keep Slurm's defaults.
        text = re.sub(r"^SchedulerParameters=.*\n", "", text, flags=re.MULTILINE)
        if self.hook == NO_HOOK or not with_hook:
            text = text.replace("JobSubmitPlugins=lua\n", "")
        self._layout.slurm_conf.write_text(f"{text}MaxJobCount={MOST_JOBS}\n", encoding="utf-8")
