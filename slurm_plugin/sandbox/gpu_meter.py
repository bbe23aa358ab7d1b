"""A stand-in for the meter that a simulated GPU lacks: a shell program by which jobs say what they would use."""

from __future__ import annotations

# Each sample is one JSON line, appended in one write; its source says that it was not measured.
SIMULATE_GPU_USE = """\
#!/bin/sh
# simulate-gpu-use N [UTIL_PCT [MEM_MIB]]: inside a job, say that N of its GPUs on this node are busy, the others idle.
set -eu
usage='usage: simulate-gpu-use N [UTIL_PCT [MEM_MIB]]   (whole numbers, inside a job of a sandbox)'
busy=${1:-} util_pct=${2:-90} mem_mib=${3:-2000}
for number in "$busy" "$util_pct" "$mem_mib"; do
    case $number in '' | *[!0-9]* | 0?*) echo "$usage" >&2; exit 2 ;; esac
done
job_id=${SLURM_JOB_ID:-}
if [ -z "$job_id" ] || [ -z "${RIGHTSIZER_SANDBOX:-}" ]; then echo "$usage" >&2; exit 2; fi

devices=${CUDA_VISIBLE_DEVICES:-${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-}}}
case $devices in NoDevFiles) devices= ;; esac
if [ -n "$devices" ]; then
    held=$(printf '%s\\n' "$devices" | tr ',' '\\n' | grep -c .)
else
    held=${SLURM_GPUS_ON_NODE:-0}
fi

node=${SLURMD_NODENAME:-$(hostname)}
now=$(date +%s)
gpu=0
while [ "$gpu" -lt "$held" ]; do
    if [ "$gpu" -ge "$busy" ]; then util_pct=0 mem_mib=0; fi
    for time_s in "$now" $((now + 1)); do  # once shows too little, and so does this of a job of some minutes
        printf '{"job_id":"%s","node":"%s","time_s":%s,"gpu":%s,"util_pct":%s,"mem_mib":%s,"source":"simulated"}\\n' \\
            "$job_id" "$node" "$time_s" "$gpu" "$util_pct" "$mem_mib"
    done
    gpu=$((gpu + 1))
done >>"$RIGHTSIZER_SANDBOX/gpu-spool/$job_id.jsonl"
"""
PROGRAM_NAME = "simulate-gpu-use"
