"""What a report advises people to ask for rests on more, and leaves more, than a grant: they follow it for months.

The helps of `report waste` and `report gpu-parts`, and docs/analyst.md, say so.
"""

from __future__ import annotations

from slurm_plugin.config.settings import Config

ADVISED_MARGIN, ADVISED_JOBS = 0.15, 5


def advised_margin(site: float) -> float:
    """Return what is added to the most that was used, as a fraction, where a site's grants leave so much."""
    return max(site, ADVISED_MARGIN)


def advised_jobs(config: Config) -> int:
    """Return how many measured jobs of a family must be known."""
    return max(config.models.min_evidence, ADVISED_JOBS)
