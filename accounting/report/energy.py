"""Energy and carbon of a batch of attempts, by accounting/labels/energy.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from accounting.labels.energy import J_PER_KWH, EnergySite, energy_of
from accounting.records import Attempt, GpuUse, JobRow, Use

NAMES = ("energy_kwh", "carbon_kg", "wasted_kwh", "estimated_kwh")


def energy_columns(
    batch: pa.Table, gpu_use: Mapping[int, Sequence[GpuUse]], site: EnergySite
) -> dict[str, pa.Array]:
    """Return the cost of each attempt in a non-empty batch, by the names in NAMES; `gpu_use` is by job id."""
    costs = [_costs(row, gpu_use.get(row["job_id"], ()), site) for row in batch.to_pylist()]
    columns = zip(NAMES, zip(*costs, strict=True), strict=True)
    return {name: pa.array(column, pa.float64()) for name, column in columns}


def _costs(row: dict[str, Any], uses: Sequence[GpuUse], site: EnergySite) -> tuple[float, ...]:
    if not row["start_s"]:
        return 0.0, 0.0, 0.0, 0.0
    cost = energy_of(_attempt(row), [use for use in uses if use.may_be_of(row["cluster"])], site)
    return (
        cost.energy_j / J_PER_KWH,
        cost.carbon_kg,
        cost.wasted_j / J_PER_KWH,
        cost.estimated_j / J_PER_KWH,
    )


def _attempt(row: dict[str, Any]) -> Attempt:
    """Return the attempt of a row, with the fields that its energy depends on."""
    return Attempt(
        row=JobRow(
            cluster="", job_id=row["job_id"], display_id="", user="", account="", partition="", qos="",
            job_name="", comment="", admin_comment="", state=row["state"], submit_s=row["start_s"],
            start_s=row["start_s"], end_s=row["end_s"], elapsed_s=row["wall_s"], limit_s=row["limit_s"],
            nodes=row["nodes"], req_cpus=None, req_mem_mib=None, req_gpus=None,
            alloc_cpus=row["alloc_cpus"], alloc_mem_mib=row["alloc_mem_mib"], alloc_gpus=row["alloc_gpus"],
        ),
        num_tasks=1, asked_cpus=None, asked_mem_mib=None, asked_gpus=None, decision_id="", script_signature="",
        use=Use(
            outcome=row["outcome"], peak_mem_mib=row["peak_mem_mib"], memory_quality=row["memory_quality"],
            cores=row["cores"], cores_per_task=None, wall_s=row["wall_s"], gpus=row["gpus"],
            energy_j=row["energy_j"],
        ),
    )  # fmt: skip
