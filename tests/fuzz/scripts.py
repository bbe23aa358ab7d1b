"""Batch scripts: what the service reads in them while slurmctld waits, and what `rightsizer predict` reads."""

from __future__ import annotations

import posixpath
import zlib
from collections.abc import Iterator

from accounting.errors import RightsizerError
from models.past.families import script_signature
from slurm_plugin.policy.script_floors import read_floors
from slurm_plugin.policy.script_inputs import MOST_NAMED, input_names
from slurm_plugin.sbatch.script import read_submission
from slurm_plugin.sbatch.wire_text import SCRIPT_BYTES, as_sent, clean
from tests.fuzz.corpus import found, frames
from tests.fuzz.target import Target

# One in so many inputs is repeated to the length of the longest request: backtracking shows then.
STRETCHED = 64
MOST_BYTES = 64 * 1024


def check(data: bytes) -> None:
    """Run every reader of scripts on a script and, now and then, on a long one made of it."""
    read(data)
    if data and zlib.crc32(data) % STRETCHED == 0:
        read((data * (MOST_BYTES // len(data) + 1))[:MOST_BYTES])


def read(data: bytes) -> None:
    """Read a script as the service does, and as `rightsizer predict` does."""
    script = clean(data, MOST_BYTES)
    assert len(script.encode()) <= max(len(data), 3)
    floors = read_floors.__wrapped__(script, 3)
    assert floors.memory_mib >= 0
    assert floors.cpus_per_task >= 0
    names = input_names.__wrapped__(script, "/work")
    assert len(names) <= MOST_NAMED
    assert all(name.startswith("/") and posixpath.normpath(name) == name for name in names)
    assert script_signature(script) == "" or script.strip()
    try:
        submission = read_submission(f"#!/bin/sh\n{script}"[:SCRIPT_BYTES], "job.sh", "alice")
    except RightsizerError:
        return
    as_sent(submission, data)


def seeds() -> Iterator[bytes]:
    """Yield the golden requests' scripts, and scripts that fix something."""
    yield from {frame["job"].get("script", "").encode(): None for frame in frames()["requests"]}
    yield b"#SBATCH -c 8 --mem=4G -J fit\n#SBATCH --gres=gpu:a100:2 -t 1-02:03:04\nsrun -n 4 -c 2 --mem=2G ./fit\n"
    yield b"#SBATCH --gpus-per-task=2 --exclusive -N 2-4 --hint=nomultithread --array=1-9%2 -- x\n"
    yield b"export OMP_NUM_THREADS=16\njava -Xmx16g -jar x.jar --threads 8\nmpirun -np 32 ./x; make -j 4\n"
    yield b"samtools sort -@ 8 -m 2G -o out.bam in.bam > log 2>&1\nbwa --max-memory=16GiB ref.fa | gzip > b.gz\n"
    yield b'D=/data/x; cd "$D" && cat < in.txt <<EOF\ntext $D\nEOF\nfor f in a.csv b; do ./run --in=$f,c.csv; done\n'
    yield b"mpirun mpiexec orterun \\\n -x -y mpirun -n\t8 srun --mem-per-cpu=$X --gpus=1 srun ${SLURM_MEM_PER_NODE}\n"
    yield from found("scripts")


WORDS = tuple(
    word.encode()
    for word in (
        "#SBATCH ", "--cpus-per-task=", "--mem=", "--mem-per-cpu=", "--gres=gpu:", "--gpus=", "--exclusive", "srun ",
        "mpirun ", "mpiexec ", " -n ", " -np=", " --np ", "-Xmx", "-XX:MaxRAMPercentage=", "--max-memory=",
        "--threads=", "OMP_NUM_THREADS=", "make -j", " -j ", " -t ", "<<EOF\n", "\\\n", "$D", "${D}", "D=$D$D",
        "'", '"', "\\", ";", "|", "&&", "export ", "for f in ", "; do ", "done\n", "cd ", "./", ".csv ", "https://",
        "\t", "\x85", "\u2028", "#!",
    )
)  # fmt: skip
TARGETS = (Target("scripts", check, seeds, share=20, words=WORDS, most_bytes=8192),)
