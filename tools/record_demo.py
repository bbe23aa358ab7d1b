"""Record the accounting that `rightsizer demo --recorded` starts from.

    rightsizer demo --keep --dir /tmp/sandbox
    eval "$(rightsizer sandbox env --dir /tmp/sandbox)"
    python tools/record_demo.py

Takes the first jobs of the private Slurm, as many as the demo's history has.
"""

import json
import os
import shutil
import time
from pathlib import Path

from accounting.sacct import COLUMNS, DELIMITER, query_sacct
from slurm_plugin.demo.recorded import RECORDED, RECORDED_SACCT
from slurm_plugin.demo.story import HISTORY_ROUNDS
from slurm_plugin.demo.workload import FAMILIES


def main() -> None:
    """Write sacct.txt, the decision journal and the GPU spool of the history's jobs."""
    sandbox = Path(os.environ["RIGHTSIZER_SANDBOX"])
    last = HISTORY_ROUNDS * len(FAMILIES)
    heading, *lines = query_sacct("sacct", int(time.time()) - 86400, int(time.time()))
    raw_id = COLUMNS.index("JobIDRaw")
    kept = [line for line in lines if int(line.split(DELIMITER)[raw_id].split(".")[0]) <= last]
    shutil.rmtree(RECORDED, ignore_errors=True)
    for folder in ("gpu-spool", "journal"):
        (RECORDED / folder).mkdir(parents=True)
    RECORDED_SACCT.write_text("\n".join([heading, *kept]) + "\n", encoding="utf-8")
    samples = [
        line
        for file in sorted((sandbox / "gpu-spool").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    early = [line for line in samples if int(json.loads(line)["job_id"]) <= last]
    (RECORDED / "gpu-spool" / "recorded.jsonl").write_text("\n".join(early) + "\n", encoding="utf-8")
    decisions = [
        line
        for file in sorted((sandbox / "rightsizer" / "journal").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    (RECORDED / "journal" / "decisions-recorded.jsonl").write_text(
        "\n".join(decisions[:last]) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
