"""Shorten a report's rows for the table: fewer, wider cells; JSON and CSV keep every column. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_plugin.cli.output import cell

Row = Mapping[str, object]

_ENDS = ("out_of_memory", "timeout", "failed", "cancelled", "other_end")
_HOURS = {"core·h": "core_h", "GiB·h": "mem_gib_h", "GPU·h": "gpu_h"}
_NAMES = ("user", "account", "family")


def brief_use(rows: Iterable[Row]) -> list[dict[str, object]]:
    """Shorten the rows of `report families` and `users`: medians, with the 95th percentile in brackets."""
    return [_use(row) for row in rows]


def brief_waste(rows: Iterable[Row]) -> list[dict[str, object]]:
    """Shorten the rows of `report waste`."""
    return [_waste(row) for row in rows]


def _use(row: Row) -> dict[str, object]:
    return {
        **_names(row),
        "jobs": row["jobs"],
        "ended otherwise": _ended(row),
        "cores: asked > granted > used": _spread(row, "cores", ("asked", "granted", "used"), ""),
        "GiB: asked > granted > used": _spread(row, "mem", ("asked", "granted", "used"), "_gib"),
        "hours: limit > used": _spread(row, "wall", ("limit", "used"), "_h"),
        **_each(row, ("granted", "used", "saveable")),
        **_energy(row),
    }


def _waste(row: Row) -> dict[str, object]:
    found: dict[str, object] = {
        **_names(row),
        "jobs": row["jobs"],
        "share": f"{cell(row['share_of_all_pct'])} % of {row['most_of']}",
        **_each(row, ("wasted", "saveable")),
    }
    if "right_cores" in row:
        sizes = (("cores", "right_cores"), ("GiB", "right_mem_gib"), ("GPUs", "right_gpus"))
        known = [f"{cell(row[name])} {unit}" for unit, name in sizes if row[name] is not None]
        found["right size"] = ", ".join(known) or "-"
    return {**found, **_energy(row)}


def _names(row: Row) -> dict[str, object]:
    return {name: row[name] for name in _NAMES if name in row}


def _ended(row: Row) -> str:
    parts = [f"{row[name]} {name.replace('_', ' ')}" for name in _ENDS if row[name]]
    return ", ".join(parts) or "-"


def _spread(row: Row, name: str, kinds: tuple[str, ...], unit: str) -> str:
    return " > ".join(_pair(row, f"{name}_{kind}", unit) for kind in kinds)


def _pair(row: Row, name: str, unit: str) -> str:
    middle, high = row[f"{name}_median{unit}"], row[f"{name}_p95{unit}"]
    return cell(middle) if middle == high else f"{cell(middle)} ({cell(high)})"


def _each(row: Row, kinds: tuple[str, ...]) -> dict[str, object]:
    return {
        f"{title}: {' / '.join(kinds)}": " / ".join(cell(row[f"{name}_{kind}"]) for kind in kinds)
        for title, name in _HOURS.items()
    }


def _energy(row: Row) -> dict[str, object]:
    if "energy_kwh" not in row:
        return {}
    return {
        "kWh": row["energy_kwh"],
        "kg CO2": row["carbon_kg"],
        "wasted": f"{cell(row['energy_wasted_pct'])} %",
    }
