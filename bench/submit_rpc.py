"""What a submission costs slurmctld: its own mean time per REQUEST_SUBMIT_BATCH_JOB, as `sdiag` reports it.

    python bench/submit_rpc.py [--rounds 5] [--submits 100]

Three private clusters stand side by side: without a hook, with an empty Lua hook (the floor of any Lua hook), and
with ours in enforce mode on a trained model. Rounds of submissions go to them in turn, so that a noisy machine is
noisy for all three. Jobs are submitted held, so that nothing but submission is at work. Ratios count, not times.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.config import load_config
from slurm_plugin.demo.recorded import ingest_recording, train_current
from slurm_plugin.demo.workload import JOBS
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Sandbox

EMPTY_HOOK = """\
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""
RPC = re.compile(r"REQUEST_SUBMIT_BATCH_JOB\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:(\d+)")
NO_HOOK, EMPTY, OURS = "no hook", "empty Lua hook", "slurm-rightsizer, enforce"
SCRIPT = JOBS / "align.sbatch"


class Round(msgspec.Struct, frozen=True):
    """One round on one cluster: submissions counted by slurmctld, and its mean time for one, in µs."""

    submits: int
    mean_us: int


def main() -> None:
    """Start the clusters, run the rounds in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--submits", type=int, default=100, help="a round and cluster")
    parser.add_argument("--format", default="table", choices=["table", "json", "csv"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rightsizer-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        clusters = start_clusters(folder)
        try:
            for sandbox in clusters.values():
                run_round(sandbox, arguments.submits // 5)  # warm: fills caches, loads scripts
            rounds: dict[str, list[Round]] = {variant: [] for variant in clusters}
            for number in range(arguments.rounds):
                note(f"round {number + 1} of {arguments.rounds}")
                for variant, sandbox in clusters.items():
                    rounds[variant].append(run_round(sandbox, arguments.submits))
            resized = share_resized(clusters[OURS])
        finally:
            for variant in clusters:
                cluster.stop(clusters[variant].directory)
    print_rows(table(rounds), arguments.format, "slurmctld's own time per submission (sdiag)")
    note(f"{resized:.1%} of our submissions were really resized")
    if resized < 0.95:
        sys.exit("fewer than 95 % were resized: the figures do not show the cost of our decisions")


def start_clusters(folder: Path) -> dict[str, Sandbox]:
    """Start the three clusters of one node each, the third with a model trained from the demo's recording."""
    note("starting three private clusters")
    clusters = {
        NO_HOOK: cluster.start(cluster.Options(directory=folder / "none", nodes=1, hook=False, serve=False)),
        EMPTY: cluster.start(cluster.Options(directory=folder / "empty", nodes=1, serve=False)),
        OURS: cluster.start(cluster.Options(directory=folder / "ours", nodes=1, mode="enforce")),
    }
    hook = clusters[EMPTY].layout.etc / "job_submit.lua"
    hook.unlink()
    hook.write_text(EMPTY_HOOK, encoding="utf-8")
    config = load_config(str(clusters[OURS].layout.rightsizer_toml))
    train_current(config, ingest_recording(config, clusters[OURS].layout.rightsizer))
    cluster.stop_service(clusters[OURS].directory)
    cluster.start_service(clusters[OURS].directory)
    return clusters


def run_round(sandbox: Sandbox, submits: int) -> Round:
    """Submit held jobs one after the other and return what slurmctld measured."""
    environment = sandbox.environment()
    sandbox.command("sdiag", "--reset")
    for _ in range(submits):
        subprocess.run(
            ["sbatch", "--hold", "--output=/dev/null", str(SCRIPT)],
            env=environment,
            check=True,
            capture_output=True,
        )
    found = RPC.search(sandbox.command("sdiag"))
    if found is None:
        sys.exit("sdiag shows no REQUEST_SUBMIT_BATCH_JOB: this release prints it in another form")
    return Round(int(found[1]), int(found[2]))


def share_resized(sandbox: Sandbox) -> float:
    """Return the share of a cluster's queued jobs that have fewer CPUs than their script asks for."""
    cpus = [int(word) for word in sandbox.command("squeue", "--noheader", "--format=%C").split()]
    return sum(count < 8 for count in cpus) / len(cpus)


def table(rounds: dict[str, list[Round]]) -> list[dict[str, object]]:
    """Return a row a variant: the median of its rounds, and ratios against the others, round by round."""

    def ratio(variant: str, floor: str) -> float:
        pairs = zip(rounds[variant], rounds[floor], strict=True)
        return round(statistics.median(one.mean_us / other.mean_us for one, other in pairs), 2)

    return [
        {
            "hook": variant,
            "submissions": sum(one.submits for one in done),
            "mean µs (median of rounds)": int(statistics.median(one.mean_us for one in done)),
            "min": min(one.mean_us for one in done),
            "max": max(one.mean_us for one in done),
            "× no hook": ratio(variant, NO_HOOK),
            "× empty Lua": ratio(variant, EMPTY),
        }
        for variant, done in rounds.items()
    ]


if __name__ == "__main__":
    main()
