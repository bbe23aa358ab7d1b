"""The work of a demo job: holds some memory, computes a little, waits the rest.

It mostly waits, so that dozens of jobs run side by side on a laptop's two cores as they would on a cluster's.
Jobs of one family differ a little, by job id.
"""

from __future__ import annotations

import argparse
import os
import random
import time

BUSY_SHARE = 0.05


def main() -> None:
    """Read what to use and use it."""
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
