"""A batch script as workflow engines write them: one for each task, of some 4 KiB.

They differ only in their sample's number, so that all do the same work (models/past/families.py).
"""

from __future__ import annotations

LANES = 8

HEAD = """\
#!/bin/bash
#SBATCH --job-name=align --cpus-per-task=8 --mem=16000
# task: ALIGN (sample-{number})
# inputs: {lanes} lanes of two reads each, the reference and its indices

set -e -u -o pipefail
umask 0027

on_exit() {{
    exit_status=$?
    trap - EXIT USR1 USR2
    set +u
    printf '%s' "$exit_status" > .exitcode
    [[ -z "$task_scratch" ]] || rm -rf "$task_scratch"
    sync || true
    exit "$exit_status"
}}

on_signal() {{
    trap '' TERM
    [[ -z "${{task_pid:-}}" ]] || {{ kill -TERM "$task_pid" 2> /dev/null || true; wait "$task_pid" || true; }}
    exit 143
}}

note_resources() {{
    local began=$1 ended
    ended=$(date +%s%3N)
    {{
        echo "task=align/{number}"
        echo "realtime_ms=$((ended - began))"
        awk '/^VmHWM|^VmPeak/ {{ print tolower($1) $2 }}' "/proc/$task_pid/status" 2> /dev/null || true
        awk '/^read_bytes|^write_bytes/ {{ print $1 $2 }}' "/proc/$task_pid/io" 2> /dev/null || true
    }} > .resources
}}

stage_inputs() {{
    rm -f reference.fa reference.fa.fai reference.dict
    ln -s /data/reference/GRCh38/release-110/reference.fa reference.fa
    ln -s /data/reference/GRCh38/release-110/reference.fa.fai reference.fa.fai
    ln -s /data/reference/GRCh38/release-110/reference.dict reference.dict
"""
LANE = """\
    rm -f sample-{number}_L00{lane}_R1.fastq.gz sample-{number}_L00{lane}_R2.fastq.gz
    ln -s /data/cohort-7/raw/sample-{number}_L00{lane}_R1.fastq.gz sample-{number}_L00{lane}_R1.fastq.gz
    ln -s /data/cohort-7/raw/sample-{number}_L00{lane}_R2.fastq.gz sample-{number}_L00{lane}_R2.fastq.gz
"""
TAIL = """\
}}

unstage_outputs() {{
    local results=/data/cohort-7/results/sample-{number}
    mkdir -p "$results"
    for produced in *.sorted.bam *.sorted.bam.bai *.metrics.txt versions.yml; do
        [[ -e "$produced" ]] || continue
        cp -fRL "$produced" "$results/"
    done
}}

trap on_exit EXIT
trap on_signal USR1 USR2

export TMPDIR="${{TMPDIR:-/tmp}}"
task_scratch=$(mktemp -d "$TMPDIR/task-XXXXXXXX")
cd "$task_scratch"
stage_inputs
began=$(date +%s%3N)
pretend-work --mem-mib 180 --reference reference.fa --sample sample-{number} --out sample-{number}.sorted.bam &
task_pid=$!
wait "$task_pid"
note_resources "$began"
unstage_outputs
"""


def task_script(number: int) -> str:
    """Return the script of a task."""
    lanes = "".join(LANE.format(number=number, lane=lane) for lane in range(1, LANES + 1))
    return HEAD.format(number=number, lanes=LANES) + lanes + TAIL.format(number=number)
