"""The variables of a user's environment that sbatch reads as options, for `rightsizer predict`. Pure.

They win over the script's `#SBATCH` lines, and what stands beside the script wins over them.
"""

from __future__ import annotations

from collections.abc import Mapping

# Each with the option that it stands for; of a flag the variable's value does not matter.
_WITH_VALUE = {
    "SBATCH_ACCOUNT": "--account", "SBATCH_ARRAY_INX": "--array", "SBATCH_CONSTRAINT": "--constraint",
    "SBATCH_CORE_SPEC": "--core-spec", "SBATCH_CPUS_PER_GPU": "--cpus-per-gpu", "SBATCH_EXCLUSIVE": "--exclusive",
    "SLURM_EXCLUSIVE": "--exclusive", "SBATCH_GPUS": "--gpus", "SBATCH_GPU_BIND": "--gpu-bind",
    "SBATCH_GPU_FREQ": "--gpu-freq", "SBATCH_GPUS_PER_NODE": "--gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "--gpus-per-task", "SBATCH_GRES": "--gres", "SBATCH_GRES_FLAGS": "--gres-flags",
    "SBATCH_HINT": "--hint", "SLURM_HINT": "--hint", "SBATCH_JOB_NAME": "--job-name",
    "SBATCH_MEM_PER_CPU": "--mem-per-cpu", "SBATCH_MEM_PER_GPU": "--mem-per-gpu", "SBATCH_MEM_PER_NODE": "--mem",
    "SBATCH_PARTITION": "--partition", "SBATCH_PREFER": "--prefer", "SBATCH_QOS": "--qos",
    "SBATCH_REQ_SWITCH": "--switches", "SBATCH_RESERVATION": "--reservation", "SBATCH_THREAD_SPEC": "--thread-spec",
    "SBATCH_THREADS_PER_CORE": "--threads-per-core", "SBATCH_TIMELIMIT": "--time",
}  # fmt: skip
_FLAGS = {
    "SBATCH_OVERCOMMIT": "--overcommit", "SBATCH_SPREAD_JOB": "--spread-job",
    "SBATCH_USE_MIN_NODES": "--use-min-nodes",
}  # fmt: skip


def options_in(environment: Mapping[str, str]) -> list[str]:
    """Return the options that sbatch would read from an environment, each as one word."""
    valued = [f"{option}={environment[name]}" for name, option in _WITH_VALUE.items() if name in environment]
    return [*valued, *(option for name, option in _FLAGS.items() if name in environment)]
