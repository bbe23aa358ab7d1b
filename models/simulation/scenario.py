"""A scenario file: nodes, a load, and what to try on them. Strict: an unknown key is an error that names it.

Sizing is not part of it: a scenario's jobs get what they ask for, or a share of it (`granted_share`) to see the
effect of less.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy

from accounting.errors import ConfigError, ModelError
from accounting.schema_hints import hint
from models.scheduling.room import MILLI, Amounts, amounts_of
from models.simulation.devices import Profile
from models.simulation.nodes import Cluster, Node, Reservation, are_amounts, cluster_of
from models.simulation.policies import SINGLE_GPUS
from models.simulation.trace import read_trace
from models.simulation.workload import Workload, poisson_arrivals, workload

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Ten times those of the largest sites.
MOST_USERS = 1_000_000


class JobKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A type of job of a made-up load: its weight in the mix, what it asks for, how much it uses, how long it runs.

    Run times are exponential with this mean; limits are `limit_factor` times the run time. `speeds` has how fast it
    runs on each device of the nodes. A deadline is `deadline_factor` times the run time on the fastest device, 0:
    none.
    """

    name: str
    cpus: float
    mem_mib: int
    mean_run_s: float
    gpus: float = 0.0
    weight: float = 1.0
    used_cpu_share: float = 1.0
    used_mem_share: float = 1.0
    users: Annotated[int, msgspec.Meta(le=MOST_USERS)] = 1
    limit_factor: float = 2.0
    deadline_factor: float = 0.0
    speeds: dict[str, float] = {}


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where jobs come from: a trace (relative to the scenario's folder), or Poisson arrivals of kinds of jobs."""

    trace: str = ""
    jobs_per_hour: float = 0.0
    hours: float = 0.0
    kinds: list[JobKind] = []


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `rightsizer simulate` runs. `until_h` ends it early, 0: when everything has ended.

    A job that a node's owner interrupts keeps what it did in whole multiples of `checkpoint_s`, 0: nothing.
    """

    nodes: list[Node] = []
    load: Load = Load()
    reservations: list[Reservation] = []
    policies: tuple[str, ...] = ("fifo", "easy")
    placement: str = "whole"
    granted_share: float = 1.0
    until_h: float = 0.0
    seed: int = 1
    checkpoint_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a negative seed or end, and a scenario with nothing to try."""
        if self.seed < 0 or not self.until_h >= 0:
            raise ModelError(f"seed is {self.seed} and until_h {self.until_h}; give 0 or more for each")
        if not 0 <= self.checkpoint_s < float("inf"):
            raise ModelError(f"checkpoint_s is {self.checkpoint_s}; give seconds, or 0 for no checkpoints")
        if not self.policies:
            raise ModelError("policies is empty; name at least one, such as easy")


def read_scenario(file: Path) -> Scenario:
    """Return a scenario; ConfigError if the file is not one."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        return msgspec.convert(document, Scenario)
    except FileNotFoundError:
        raise ConfigError(
            f"the scenario {file} does not exist; `rightsizer simulate --help` shows what it contains"
        ) from None
    except msgspec.ValidationError as error:
        told = hint(error, Scenario) or "see docs/simulation.md for the format of a scenario"
        raise ConfigError(f"{file}: {error}; {told}") from None
    # A number of thousands of digits, or brackets nested as deep, do not raise TOMLDecodeError.
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    except ModelError as error:
        raise ConfigError(f"{file}: {error}") from None


class Loaded(NamedTuple):
    """A load, how many jobs of its trace are left out, and the numbers of its users by name, or by kind of job."""

    jobs: Workload
    left_out: int
    users: Mapping[str, frozenset[int]]


def load_of(scenario: Scenario, folder: Path, seed: int) -> Loaded:
    """Return the load of a scenario."""
    load = scenario.load
    if bool(load.trace) == bool(load.kinds):
        raise ConfigError("a scenario's [load] needs either `trace` or [[load.kinds]]; give one of them")
    if load.trace:
        found = read_trace(folder / load.trace)
        return Loaded(
            found.jobs, found.left_out, {name: frozenset([user]) for name, user in found.users.items()}
        )
    ends = numpy.cumsum([each.users for each in load.kinds]).tolist()
    users = {
        each.name: frozenset(range(end - each.users, end)) for each, end in zip(load.kinds, ends, strict=True)
    }
    return Loaded(made_up(load, seed), 0, users)


def made_up(load: Load, seed: int) -> Workload:
    """Return Poisson arrivals of a mix of kinds; the same seed gives the same jobs."""
    for each in load.kinds:
        numbers = (each.weight, each.mean_run_s, each.limit_factor, each.users)
        if not all(one > 0 for one in numbers) or not are_amounts(*numbers[:2]):
            raise ConfigError(
                f"job kind {each.name}: weight, mean_run_s, limit_factor and users must be above 0, and "
                "finite"
            )
        if not are_amounts(each.used_cpu_share, each.used_mem_share):
            raise ConfigError(f"job kind {each.name}: used amounts must be 0 or more")
        if not are_amounts(each.cpus, each.mem_mib, each.gpus):
            raise ConfigError(f"job kind {each.name}: jobs cannot ask for that much; give CPUs, MiB and GPUs")
        if not are_amounts(each.deadline_factor, *each.speeds.values()) or 0 in each.speeds.values():
            raise ConfigError(
                f"job kind {each.name}: give a deadline_factor of 0 or more, and speeds above 0"
            )
    draw = numpy.random.default_rng(seed)
    submit_s = poisson_arrivals(load.jobs_per_hour, load.hours, draw)
    if not submit_s.size:
        raise ConfigError("no job arrives in this load; give more hours or jobs_per_hour")
    weights = numpy.array([each.weight for each in load.kinds])
    kind = draw.choice(len(load.kinds), len(submit_s), p=weights / weights.sum())
    run_s = numpy.maximum(draw.exponential(numpy.array([each.mean_run_s for each in load.kinds])[kind]), 1.0)
    asked = numpy.array([_units(each, 1.0, 1.0) for each in load.kinds])[kind]
    used = numpy.array([_units(each, each.used_cpu_share, each.used_mem_share) for each in load.kinds])[kind]
    first_user = numpy.cumsum([0, *(each.users for each in load.kinds)])
    users = numpy.array([each.users for each in load.kinds])[kind]
    factor = numpy.array([each.deadline_factor for each in load.kinds])[kind]
    fastest = numpy.array([max(each.speeds.values(), default=1.0) for each in load.kinds])[kind]
    return workload(
        submit_s,
        run_s,
        asked,
        used=used,
        deadline_s=numpy.where(factor > 0, submit_s + factor * run_s / fastest, numpy.inf),
        limit_s=run_s * numpy.array([each.limit_factor for each in load.kinds])[kind],
        user=first_user[kind] + draw.integers(0, users),
        kind=kind,
    )


def profiles_of(scenario: Scenario) -> tuple[Profile, ...]:
    """Return how fast each kind of a scenario's jobs runs on its devices; empty if nodes have none.

    ConfigError if a speed is missing, or is for a device that no node has.
    """
    devices = {node.device for node in scenario.nodes if node.device}
    kinds = scenario.load.kinds
    if devices and not kinds:
        raise ConfigError(
            "a trace has no speeds by device; leave out `device`, and give nodes a `speed` instead"
        )
    for kind in kinds:
        for device in sorted(kind.speeds.keys() ^ devices):
            known = ", ".join(sorted(devices)) or "none"
            raise ConfigError(
                f"job kind {kind.name} has no speed for the device {device}; add it to `speeds`"
                if device in devices
                else (
                    f"job kind {kind.name} has a speed for {device}, which no node has; the nodes' devices "
                    f"are {known}"
                )
            )
    return tuple(kind.speeds for kind in kinds) if devices else ()


def _units(kind: JobKind, cpu_share: float, mem_share: float) -> Amounts:
    return (
        round(kind.cpus * cpu_share * MILLI),
        round(kind.mem_mib * mem_share),
        round(kind.gpus * MILLI),
    )


def cluster(scenario: Scenario, users: Mapping[str, frozenset[int]] | None = None) -> Cluster:
    """Return the cluster of a scenario; `users` are those of its load, which its reservations may name."""
    if not scenario.nodes:
        raise ConfigError("a scenario needs [[nodes]]; give at least one")
    single_gpus = scenario.placement in SINGLE_GPUS
    return cluster_of(scenario.nodes, scenario.reservations, users, single_gpus=single_gpus)


class ShareOfRequest:
    """Grants every job the same share of the CPUs and memory it asks for, to see the effect of less for all."""

    def __init__(self, jobs: Workload, share: float) -> None:
        if not 0 < share <= 1:
            raise ConfigError(f"granted_share is {share}; give a share above 0 and at most 1")
        self._asked = [amounts_of(row) for row in jobs.asked]
        self._share = share

    def grant(self, number: int, now_s: float) -> Amounts:  # noqa: ARG002
        """Return that share of CPUs and memory, and the GPUs as asked."""
        cpu_milli, mem_mib, gpu_milli = self._asked[number]
        return -int(-cpu_milli * self._share // 1), -int(-mem_mib * self._share // 1), gpu_milli

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Learn nothing."""
