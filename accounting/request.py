"""What a job asks for, in the form its user chose. Shared by the hook's service and accounting."""

from __future__ import annotations

from typing import Literal

import msgspec

Dimension = Literal["memory", "cores", "gpus"]


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job as known at submit time; None for what the user did not request.

    `num_tasks` is 1 if nothing says how many; `nodes` is set if a fixed number was requested. At most one of
    the memory fields is set, and one of the GPU fields: a request keeps the form that the user chose, because
    Slurm ignores or misreads the others. `input_mib` is the size of the files that the script names as input,
    None if not known.
    """

    user: str
    account: str = ""
    partition: str = ""
    qos: str = ""
    job_name: str = ""
    script_signature: str = ""
    num_tasks: int = 1
    cpus_per_task: int | None = None
    mem_per_node_mib: int | None = None
    mem_per_cpu_mib: int | None = None
    mem_per_gpu_mib: int | None = None
    gpus_per_node: int | None = None
    gpus_per_job: int | None = None
    gpus_per_task: int | None = None
    nodes: int | None = None
    wall_s: int | None = None
    input_mib: float | None = None

    @property
    def cpus(self) -> int:
        """CPUs requested in total."""
        return self.num_tasks * (self.cpus_per_task or 1)

    @property
    def mem_mib(self) -> int | None:
        """Memory requested in total, in MiB (for one node if the job gives no number); None if none was requested."""
        # Plain conditions, here and below, for speed: each decision reads these a dozen times.
        if self.mem_per_node_mib is not None:
            return self.mem_per_node_mib * (self.nodes or 1)
        if self.mem_per_cpu_mib is not None:
            return self.mem_per_cpu_mib * self.cpus
        return None if self.mem_per_gpu_mib is None else self.mem_per_gpu_mib * (self.gpus or 1)

    @property
    def gpus(self) -> int | None:
        """GPUs requested in total (for one node if the job gives no number of nodes); None if none were requested."""
        if self.gpus_per_job is not None:
            return self.gpus_per_job
        if self.gpus_per_task is not None:
            return self.gpus_per_task * self.num_tasks
        return None if self.gpus_per_node is None else self.gpus_per_node * (self.nodes or 1)


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job gets instead; None for what stays as requested. Never more than was requested."""

    cpus_per_task: int | None = None
    mem_per_node_mib: int | None = None
    mem_per_cpu_mib: int | None = None
    mem_per_gpu_mib: int | None = None
    gpus_per_node: int | None = None
    gpus_per_job: int | None = None
    gpus_per_task: int | None = None

    def __bool__(self) -> bool:
        """Whether it changes anything."""
        return self != Grant()


GRANTED = Grant.__struct_fields__


def granted(request: JobRequest, grant: Grant) -> JobRequest:
    """Return the request as it stands after the grant."""
    changed = {name: value for name in GRANTED if (value := getattr(grant, name)) is not None}
    return msgspec.structs.replace(request, **changed)
