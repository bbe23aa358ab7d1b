"""Turn the configuration's [energy] into the figures from which energy and carbon are estimated."""

from __future__ import annotations

import zoneinfo
from datetime import tzinfo
from pathlib import Path

from accounting.errors import ConfigError
from accounting.labels.carbon import CarbonIntensity, CarbonSeries, parse_carbon_series
from accounting.labels.energy import EnergySite
from slurm_plugin.config.settings import Energy


def energy_site(energy: Energy) -> EnergySite:
    """Return the site's figures, with the carbon file read.

    Raises ConfigError if the time zone is unknown, or the carbon file cannot be read or is malformed.
    """
    grams = energy.carbon_g_per_kwh
    return EnergySite(
        carbon=CarbonIntensity(
            grams if isinstance(grams, tuple) else (grams,),
            _zone(energy.time_zone),
            _series(energy.carbon_file),
        ),
        pue=energy.pue,
        watts_per_core=energy.watts_per_core,
        core_idle_share=energy.core_idle_share,
        watts_per_gib=energy.watts_per_gib,
        watts_per_gpu=energy.watts_per_gpu,
        gpu_idle_share=energy.gpu_idle_share,
        slurm_counts_gpus=energy.slurm_counts_gpus,
    )


def _zone(name: str) -> tzinfo | None:
    if not name:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"energy.time_zone: this machine does not know the time zone `{name}`; give one such as "
            "Europe/Berlin (`timedatectl list-timezones`), or leave the key empty"
        ) from None


def _series(file: str) -> CarbonSeries | None:
    if not file:
        return None
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"energy.carbon_file: cannot read {file}: {error.strerror}; correct its path"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"energy.carbon_file: {file} is not UTF-8 text; export it as CSV again") from None
    return parse_carbon_series(text, file)
