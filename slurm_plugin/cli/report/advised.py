"""The margin and the number of jobs behind the requests that a report recommends.

A recommendation needs more jobs and leaves a larger margin than a grant, because people follow it for months. The
help of `report waste` and of `report gpu-parts`, and docs/analyst.md, say so.
"""

from __future__ import annotations

from slurm_plugin.config.settings import Config

ADVISED_MARGIN, ADVISED_JOBS = 0.15, 5


def advised_margin(site: float) -> float:
    """Return the fraction to add to the highest use; `site` is the fraction that the site's grants add."""
    return max(site, ADVISED_MARGIN)


def advised_jobs(config: Config) -> int:
    """Return how many measured jobs a family must have."""
    return max(config.models.min_evidence, ADVISED_JOBS)
