"""The site's one configuration file, read strictly: a typo is an error that names the key and the nearest one.

Defaults live here and equal `etc/rightsizer.toml` (a test holds them together). Where the file is looked for:
the path given, else $RIGHTSIZER_CONFIG, else /etc/rightsizer/rightsizer.toml, else the defaults alone.
"""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from accounting.decisions import Mode
from accounting.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG_VARIABLE = "RIGHTSIZER_CONFIG"
SYSTEM_CONFIG = Path("/etc/rightsizer/rightsizer.toml")

# slurmctld waits for the hook: a deadline beyond a second would be felt in every sbatch.
Deadline = Annotated[int, msgspec.Meta(ge=1, le=1000)]
OctalMode = Annotated[str, msgspec.Meta(pattern=r"^0?[0-7]{3}\Z")]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[int, msgspec.Meta(ge=0)]
Mebibytes = Annotated[int, msgspec.Meta(ge=0)]
Margin = Annotated[float, msgspec.Meta(ge=0, le=100)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
InnerShare = Annotated[float, msgspec.Meta(gt=0, lt=1)]
FailureShare = Annotated[float, msgspec.Meta(gt=0, le=0.5)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Watts = Annotated[float, msgspec.Meta(ge=0, le=100_000)]
Grams = Annotated[float, msgspec.Meta(ge=0, le=10_000)]
HoursOfADay = Annotated[tuple[Grams, ...], msgspec.Meta(min_length=24, max_length=24)]
# Absolute, and not / itself.
RootFolder = Annotated[str, msgspec.Meta(pattern=r"^(/(?!\.{1,2}(/|\Z))[^/\0]+)+\Z")]
RuleName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,40}\Z")]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the file; unknown keys are refused."""


class Service(Section, frozen=True, kw_only=True):
    """`rightsizer serve`: where it answers, and who may connect."""

    socket: str = "/run/rightsizer/rightsizer.sock"
    socket_mode: OctalMode = "0660"
    journal: str = "/var/lib/rightsizer/journal"


class Hook(Section, frozen=True, kw_only=True):
    """What the Lua hook is told (`rightsizer config hook` prints it as the file that Lua reads)."""

    deadline_ms: Deadline = 25
    kill_switch: str = "/var/lib/rightsizer/disabled"


class Client(Section, frozen=True, kw_only=True):
    """`rightsizer serve --clients`: where direct srun and salloc ask before they submit; "" is nowhere.

    `rightsizer config clients` prints what their filter is told. Any user may connect to the socket. `salloc`
    says whether an salloc that has a name may be sized too.
    """

    socket: str = ""
    deadline_ms: Deadline = 25
    kill_switch: str = "/etc/rightsizer/clients.disabled"
    salloc: bool = False


class Store(Section, frozen=True, kw_only=True):
    """The accounting store: an SQLAlchemy URL."""

    url: str = "sqlite:////var/lib/rightsizer/store.db"


class Accounting(Section, frozen=True, kw_only=True):
    """What `rightsizer ingest` reads: slurmdbd's own database where it has a URL, else what sacct says.

    With a `pseudonym_key` the store holds pseudonyms of that file's key instead of names.
    """

    sacct: str = "sacct"
    slurmdbd_url: str = ""
    cluster: str = ""
    overlap_s: Seconds = 3600
    first_days: Count = 30
    gpu_spool: str = "/var/lib/rightsizer/gpu-spool"
    pseudonym_key: str = ""


class Energy(Section, frozen=True, kw_only=True):
    """What energy and carbon are concluded from where nothing measured them; accounting/energy.py says how.

    `carbon_g_per_kwh` is one figure, or one for each hour of the day in `time_zone` ("" is this machine's).
    """

    pue: Annotated[float, msgspec.Meta(ge=1, le=10)] = 1.58
    carbon_g_per_kwh: Grams | HoursOfADay = 473.0
    carbon_file: str = ""
    time_zone: str = ""
    watts_per_core: Watts = 12.0
    core_idle_share: Share = 0.3
    watts_per_gib: Watts = 0.3725
    watts_per_gpu: Watts = 200.0
    gpu_idle_share: Share = 0.15
    slurm_counts_gpus: bool = True


class ModelsScaling(Section, frozen=True, kw_only=True):
    """How adaptive scaling searches: models/demand/adaptive_scaling.py says what the three are."""

    alpha: InnerShare = 0.5
    step: InnerShare = 0.05
    theta: Annotated[float, msgspec.Meta(gt=0, le=100)] = 0.1


class Models(Section, frozen=True, kw_only=True):
    """Where artefacts are kept, and what training may conclude from how little."""

    directory: str = "/var/lib/rightsizer/models"
    min_evidence: Count = 1
    recent_jobs: Count = 50
    scaling: ModelsScaling = ModelsScaling()


class TrainDask(Section, frozen=True, kw_only=True):
    """What `rightsizer train --engine dask` starts: so many workers, each a Slurm job of `cores` and `memory_mib`.

    What is "" is left to Slurm, or to Dask; `directives` are further options of sbatch, such as "--qos=low".
    """

    workers: Count = 4
    cores: Count = 4
    memory_mib: Count = 8192
    wall_s: Count = 3600
    start_timeout_s: Count = 600
    partition: str = ""
    account: str = ""
    directives: tuple[str, ...] = ()
    interface: str = ""
    scheduler_host: str = ""
    shared_directory: str = ""


class Train(Section, frozen=True, kw_only=True):
    """How `rightsizer train` trains where this machine alone does not do."""

    dask: TrainDask = TrainDask()


class Inputs(Section, frozen=True, kw_only=True):
    """Whether the size of the files that a script names counts: those below `roots` are looked at; none is off."""

    roots: tuple[RootFolder, ...] = ()
    deadline_ms: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4
    most_files: Annotated[int, msgspec.Meta(ge=1, le=32)] = 16


class Policy(Section, frozen=True, kw_only=True):
    """How far a request may be cut, whatever is predicted.

    `most_failures` is the share of all jobs that may get less than they need, `most_slowdown` by which share of its run
    a job may be expected to run longer for want of CPUs.
    """

    most_failures: FailureShare = 0.01
    most_slowdown: Share = 0.0
    memory_margin: Margin = 0.01
    memory_floor_mib: Count = 128
    memory_step_mib: Count = 32
    cores_margin: Margin = 0.01
    min_saving: Share = 0.1
    headroom: Margin = 0.0
    least_share: Share = 0.0
    min_cpus_per_task: Count = 1
    min_gpus: Count = 1
    cpus_step: Count = 1
    def_mem_per_cpu_mib: Mebibytes | None = None


class Advisor(Section, frozen=True, kw_only=True):
    """`rightsizer advise`: what it wants, how far it may go, and how long what it did outlasts it.

    `most_inversion` is the difference of fair-share factors (0 to 1) beyond which no order between accounts is turned
    round. In `control_share` of its time, in blocks of `block_s` by lot, it only watches. `late_sizing` sizes pending
    jobs again.
    """

    queue: Literal["auto", "scontrol", "pyslurm"] = "auto"
    directory: str = "/var/lib/rightsizer/advisor"
    period_s: Count = 60
    lease_s: Count = 600
    objective: Literal["slowdown", "wait", "utilisation", "deadlines", "energy"] = "slowdown"
    horizon_s: Count = 86_400
    most_delay_s: Seconds = 86_400
    most_wait_s: Seconds = 604_800
    most_inversion: Share = 0.1
    most_factor: Count = 10_000
    most_changes: Count = 1_000
    writes_per_s: Count = 500
    least_gain: Share = 0.02
    control_share: Share = 0.1
    block_s: Annotated[int, msgspec.Meta(ge=60)] = 7200
    late_sizing: bool = False


class Recovery(Section, frozen=True, kw_only=True):
    """`rightsizer recover`: its journal, and how often it looks for how many jobs that failed because we cut them."""

    directory: str = "/var/lib/rightsizer/recovery"
    period_s: Count = 10
    most_jobs: Count = 200
    patience_s: Count = 120


class Rule(Section, frozen=True, kw_only=True):
    """One of `[[rules]]`: which jobs it is for, and what differs for them. The first that fits a job counts.

    A list fits where any of its patterns (`*`, `?`) does, an empty one always; what is left out stays the site's.
    `percent` is the share of users' job families it enrols; the others are observed.
    """

    name: RuleName
    partition: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    mode: Mode | None = None
    percent: Percent = 100
    headroom: Margin | None = None
    least_share: Share | None = None
    memory_floor_mib: Count | None = None
    memory_step_mib: Count | None = None
    min_cpus_per_task: Count | None = None
    min_gpus: Count | None = None
    cpus_step: Count | None = None
    min_saving: Share | None = None
    def_mem_per_cpu_mib: Mebibytes | None = None


class JobType(Section, frozen=True, kw_only=True):
    """One of `[[job_types]]`: jobs of one program, by patterns (`*`, `?`) over name, partition and account.

    The first that fits a job names its type; a job that none fits is typed by its own name (models/job_types.py).
    """

    name: RuleName
    job_name: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    account: tuple[str, ...] = ()


class Config(Section, frozen=True, kw_only=True):
    """The whole file."""

    mode: Mode = "observe"
    service: Service = Service()
    hook: Hook = Hook()
    client: Client = Client()
    store: Store = Store()
    accounting: Accounting = Accounting()
    energy: Energy = Energy()
    models: Models = Models()
    train: Train = Train()
    inputs: Inputs = Inputs()
    policy: Policy = Policy()
    advisor: Advisor = Advisor()
    recovery: Recovery = Recovery()
    rules: tuple[Rule, ...] = ()
    job_types: tuple[JobType, ...] = ()


# Tables that may stand there many times.
REPEATED: dict[str, type[Section]] = {"rules": Rule, "job_types": JobType}


def config_path(given: str | None = None) -> Path | None:
    """Return the file that will be read: `given`, $RIGHTSIZER_CONFIG, the system's, or None for defaults alone."""
    named = given or os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    try:
        SYSTEM_CONFIG.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass  # it is there, but not for this user: reading it says so
    return SYSTEM_CONFIG


def load_config(given: str | None = None) -> Config:
    """Read and check the configuration.

    Raises ConfigError, naming file and key, where it is unreadable, malformed, or holds a key that is not known.
    """
    path = config_path(given)
    if path is None:
        return Config()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration {path}: {error.strerror}; give another with --config or ${CONFIG_VARIABLE}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; compare it with etc/rightsizer.toml") from None
    return parse_config(text, source=str(path))


def parse_config(text: str, source: str = "configuration") -> Config:
    """Check TOML text against the schema; `source` names it in errors."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{source} is not valid TOML: {error}; mend that line and run `rightsizer config check`"
        ) from None
    refuse_unknown_keys(document, source)
    try:
        return msgspec.convert(document, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{source}: {error}; `rightsizer config show` prints every key with a valid value"
        ) from None


def refuse_unknown_keys(document: dict[str, Any], source: str) -> None:
    """Raise ConfigError on the first key that the schema does not know, naming the nearest one it does."""
    known = known_keys()
    for key in given_keys(document):
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean `{near[0]}`?" if near else "`rightsizer config show` lists the keys"
            raise ConfigError(f"{source}: unknown key `{key}`; {hint}")


def given_keys(table: dict[str, Any], prefix: str = "") -> list[str]:
    """List every key of a document as `key`, `section.key` or `section.section.key`, the outer ones first."""
    keys = [f"{prefix}{name}" for name in table]
    for name, value in table.items():
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                keys += given_keys(inner, f"{prefix}{name}.")
    return keys


def known_keys(schema: type[Section] | None = None, prefix: str = "") -> list[str]:
    """List every key of the schema as `key`, `section.key` or `section.section.key`."""
    keys: list[str] = []
    for field in msgspec.structs.fields(schema or Config):
        keys.append(f"{prefix}{field.name}")
        section = field.type if prefix else REPEATED.get(field.name, field.type)
        if isinstance(section, type) and issubclass(section, Section):
            keys += known_keys(section, f"{prefix}{field.name}.")
    return keys


def render_config(config: Config) -> str:
    """Return a configuration as the TOML file that gives it; a key without a value is left as a comment."""
    lines = [f'mode = "{config.mode}"']
    for section, table in msgspec.structs.asdict(config).items():
        if isinstance(table, Section):
            lines += _render_table(section, table)
    for name in REPEATED:
        for entry in getattr(config, name):
            lines += ["", f"[[{name}]]", *_render_section(entry)]
    return "\n".join(lines) + "\n"


def _render_table(name: str, table: Section) -> list[str]:
    lines = ["", f"[{name}]", *_render_section(table)]
    for key, value in msgspec.structs.asdict(table).items():
        if isinstance(value, Section):
            lines += _render_table(f"{name}.{key}", value)
    return lines


def _render_section(table: Section) -> list[str]:
    # JSON's strings, numbers, booleans and lists of them are TOML's too.
    return [
        f"# {key} =" if value is None else f"{key} = {msgspec.json.encode(value).decode()}"
        for key, value in msgspec.structs.asdict(table).items()
        if not isinstance(value, Section)
    ]
