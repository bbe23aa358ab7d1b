"""Record the accounting from which `rightsizer demo --recorded` starts.

    rightsizer demo --keep --dir /tmp/sandbox
    eval "$(rightsizer sandbox env --dir /tmp/sandbox)"
    python tools/record_demo.py

Records the first jobs of the private Slurm, as many as the demo's history has.
"""

import json
import os
import shutil
import time
from pathlib import Path

from accounting.slurm.sacct import DELIMITER, query_sacct
from slurm_plugin.demo.recorded import FIGURES_FILE, RECORDED, TEXTS_FILE
from slurm_plugin.demo.story import HISTORY_ROUNDS
from slurm_plugin.demo.workload import FAMILIES


def main() -> None:
    """Write sacct's output, the decision journal and the GPU spool of the history's jobs."""
    sandbox = Path(os.environ["RIGHTSIZER_SANDBOX"])
    last = HISTORY_ROUNDS * len(FAMILIES)
    answer = query_sacct("sacct", int(time.time()) - 86400, int(time.time()))
    shutil.rmtree(RECORDED, ignore_errors=True)
    for folder in ("gpu-spool", "journal"):
        (RECORDED / folder).mkdir(parents=True)
    for file, printed in ((FIGURES_FILE, answer.figures), (TEXTS_FILE, answer.texts)):
        file.write_bytes(first_jobs(printed, last))
    early = [line for line in lines_in(sandbox / "gpu-spool") if int(json.loads(line)["job_id"]) <= last]
    (RECORDED / "gpu-spool" / "recorded.jsonl").write_text("\n".join(early) + "\n", encoding="utf-8")
    decisions = lines_in(sandbox / "rightsizer" / "journal")[:last]
    (RECORDED / "journal" / "decisions-recorded.jsonl").write_text(
        "\n".join(decisions) + "\n", encoding="utf-8"
    )


def lines_in(folder: Path) -> list[str]:
    """Return the lines of the folder's JSON Lines files, in the order of the files' names."""
    return [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def first_jobs(printed: bytes, last: int) -> bytes:
    """Return the header and the rows of the jobs up to `last`; each row begins with its job's id."""
    heading, *rows = printed.splitlines(keepends=True)
    kept = [row for row in rows if int(row.split(DELIMITER.encode())[0].split(b".")[0]) <= last]
    return b"".join([heading, *kept])


if __name__ == "__main__":
    main()
