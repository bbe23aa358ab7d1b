"""Record what a release's sacct prints about jobs of every kind: the corpus of tests/contract/sacct.

    PYTHONPATH=. python tools/record_sacct.py                    # this system's Slurm
    PYTHONPATH=. python tools/record_sacct.py ~/releases/26.05   # another one's

Starts a private Slurm, runs the jobs of tests/cluster/job_mix.py, and calls sacct in the ways in which dumps are made.
The corpus reveals nothing about the machine: the names of users, nodes and the cluster are the sandbox's own.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.release import parse_version
from tests.cluster.job_mix import run_mix
from tests.cluster.matrix.release import environment

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "contract" / "sacct"
EVERYTHING = ("--allusers", "--duplicates", "--parsable2", "--starttime=now-1hour")
COLUMNS = (
    "JobIDRaw,JobID,Cluster,User,Account,Partition,QOS,State,Submit,Start,End,ElapsedRaw,Elapsed,TimelimitRaw,"
    "Timelimit,NNodes,NTasks,NCPUS,ReqCPUS,ReqMem,ReqTRES,AllocTRES,MaxRSS,TotalCPU,TRESUsageInMax,TRESUsageInTot,"
    "TRESUsageOutTot,ConsumedEnergyRaw,CPUTimeRAW"
)
FREE_TEXT = "JobName,Comment,AdminComment"
# The columns of a typical dump by hand: free text in the middle, suffixes, local times, sacct's own delimiter.
PLAIN_COLUMNS = (
    "JobID,JobIDRaw,JobName,User,Partition,State,Submit,Start,End,Elapsed,Timelimit,NNodes,NTasks,NCPUS,ReqMem,ReqTRES,"
    "AllocTRES,MaxRSS,TotalCPU,TRESUsageInTot"
)


def main() -> None:
    """Record the release of the given prefix, or of this system's Slurm."""
    prefix = Path(sys.argv[1]).expanduser() if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        options = Options(directory=folder / "sandbox", nodes=2, slurm_prefix=prefix, hook=False, serve=False)
        sandbox = cluster.start(options, lambda line: print(line, file=sys.stderr))
        try:
            record(sandbox)
        finally:
            cluster.stop(folder / "sandbox")


def record(sandbox: Sandbox) -> None:
    """Run the jobs and write what sacct prints about them."""
    year, month = parse_version(sandbox.manifest.release)
    folder = CORPUS / f"{year}.{month:02}"
    folder.mkdir(parents=True, exist_ok=True)
    submitted = run_mix(sandbox, enforced=sandbox.manifest.enforcement.memory)
    seconds = {"SLURM_TIME_FORMAT": "%s"}
    raw = ("--noconvert", "--delimiter=\x1f", f"--format={COLUMNS},{FREE_TEXT}")
    texts = {
        "columns.txt": printed(sandbox, ["--helpformat"], {}),
        "raw.txt": printed(sandbox, [*EVERYTHING, *raw], seconds),
        "plain.psv": printed(sandbox, [*EVERYTHING, f"--format={PLAIN_COLUMNS}"], {}),
        "jobs.psv": printed(sandbox, [*EVERYTHING, "--allocations", f"--format={PLAIN_COLUMNS}"], {}),
    }
    for name, text in texts.items():
        (folder / name).write_bytes(text.replace(sandbox.layout.cluster.encode(), b"sandbox"))
    (folder / "made.json").write_bytes(msgspec.json.format(msgspec.json.encode(submitted)) + b"\n")
    print(folder)


def printed(sandbox: Sandbox, arguments: list[str], more: dict[str, str]) -> bytes:
    """Return what sacct prints with these arguments and environment variables."""
    told = {**environment(sandbox), "TZ": "UTC", "LC_ALL": "C.UTF-8", **more}
    return subprocess.run(["sacct", *arguments], env=told, capture_output=True, check=True, cwd="/").stdout


if __name__ == "__main__":
    os.umask(0o022)
    main()
