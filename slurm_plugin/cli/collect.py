"""`rightsizer collect`."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import click

from slurm_plugin.cli.number_range import NumberRange
from slurm_plugin.cli.output import config_option, note
from slurm_plugin.config.file import load_config

SERVICE_WINDOW_S = 30.0
# The window for `--job`. Slurm may kill a job's own processes without warning; no more than this is lost then.
JOB_WINDOW_S = 10.0
# Readers take samples that lie further apart for two attempts (ATTEMPT_GAP_S in accounting/gpu_spool/samples.py).
MOST_EVERY_S = 60


@click.command("collect")
@config_option
@click.option(
    "--job", "job_id", type=click.IntRange(min=1), help="Watch only this job, and exit when it ends."
)
@click.option(
    "--every",
    "every_s",
    type=NumberRange(0.1, MOST_EVERY_S),
    default=1.0,
    show_default=True,
    help="Seconds between two readings of the GPUs.",
)
@click.option(
    "--node", help="This node's name in Slurm. Default: $SLURMD_NODENAME, else the short host name."
)
@click.option("--spool", metavar="FOLDER", help="Folder to write to, instead of accounting.gpu_spool.")
@click.option(
    "--spool-mib",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Maximum size of this node's files in that folder, in MiB. The oldest files are removed first.",
)
def collect(
    config_file: str | None,
    job_id: int | None,
    every_s: float,
    node: str | None,
    spool: str | None,
    spool_mib: int,
) -> None:
    """Record what jobs do on this node's GPUs, or what one job does, until stopped.

    The command needs no store: it writes a spool, which `rightsizer ingest` reads. On a node without a GPU it says so
    and exits.

    \b
    Example:
      rightsizer collect
      rightsizer collect --job $SLURM_JOB_ID --spool /shared/gpu-spool
    """
    from accounting.errors import RightsizerError
    from accounting.gpu_collector.hardware import has_nvidia_gpu, is_driver_loaded
    from accounting.gpu_collector.loop import Collector, CollectorSettings, run, until_signalled
    from accounting.gpu_collector.nvml import Nvml, NvmlFault
    from accounting.gpu_collector.processes import JobProcesses
    from accounting.gpu_collector.spool import SpoolWriter
    from accounting.units import MIB_IN_BYTES

    folder = Path(spool or load_config(config_file).accounting.gpu_spool)
    name = node or os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    settings = CollectorSettings(
        every_s=every_s, window_s=SERVICE_WINDOW_S if job_id is None else JOB_WINDOW_S, job_id=job_id
    )
    jobs = JobProcesses(name)
    if job_id is not None:
        # In a Prolog, which runs as root, SLURM_JOB_UID says whose job it is.
        jobs.trust(job_id, int(os.environ.get("SLURM_JOB_UID") or os.getuid()))
    writer = SpoolWriter(
        folder, name if job_id is None else f"{name}-job{job_id}", spool_mib * MIB_IN_BYTES, note
    )
    collector = Collector(Nvml, jobs, writer, settings, note)
    stopped = until_signalled()
    try:
        count = collector.open()
    except NvmlFault as fault:
        if fault.stale:
            raise RightsizerError(
                f"the NVIDIA driver and its library have different versions ({fault.reason}); "
                "reload the driver, or restart the node"
            ) from None
        if fault.everywhere and (job_id is not None or not has_nvidia_gpu()):
            note(f"no GPU to watch on {name}: {fault.reason}")
            return
        if fault.everywhere and not is_driver_loaded():
            note(f"{name} has an NVIDIA GPU, but its driver is not loaded; waiting for it")
            while not is_driver_loaded():
                if stopped(SERVICE_WINDOW_S):
                    return
            # systemd lets a process open only the devices of drivers that were loaded when the process was started.
            raise RightsizerError("the NVIDIA driver is loaded now; start the collector again") from None
        raise RightsizerError(
            f"NVML does not answer on {name} ({fault.reason}); check whether `nvidia-smi` works for this user"
        ) from None
    if not count:
        note(f"no GPU to watch on {name}: NVML lists none")
        return
    note(f"watching {count} GPU{'s' * (count > 1)} of {name} every {every_s:g} s; writing to {folder}")
    try:
        run(collector, jobs, settings, stopped)
    except NvmlFault as fault:
        raise RightsizerError(
            f"the NVIDIA driver was replaced ({fault.reason}); start the collector again"
        ) from None
