"""The work of a demo job: hold some memory, compute a little, and wait for the rest of the time.

It mostly waits, so that dozens of jobs run side by side on a laptop's two cores as they would on a cluster.
Jobs of one family differ a little, depending on the job id.
"""

from __future__ import annotations

import argparse
import os
import random
import time

BUSY_SHARE = 0.05


def main() -> None:
    """Read from the command line what to use, and use it."""
    parser = argparse.ArgumentParser(description="Hold memory and compute a little, as a demo job.")
    parser.add_argument("--mem-mib", type=int, required=True, help="peak memory, give or take a tenth")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("PRETEND_SECONDS", "4")))
    arguments = parser.parse_args()
    varied = random.Random(int(os.environ.get("SLURM_JOB_ID", "0")))  # noqa: S311
    held = bytearray(int(arguments.mem_mib * varied.uniform(0.9, 1.1) * 1024**2))
    busy_until_s = time.monotonic() + arguments.seconds * BUSY_SHARE
    while time.monotonic() < busy_until_s:
        held[varied.randrange(len(held))] = 1
    time.sleep(arguments.seconds * (1 - BUSY_SHARE))


if __name__ == "__main__":
    main()
