"""The schema of the site's one configuration file, table by table (file.py reads it).

The defaults are defined here. `etc/rightsizer.toml` repeats them and explains each key; a test compares the two.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from accounting.decisions.decision import Mode

# slurmctld waits for the hook: users would notice a deadline of more than a second at every sbatch.
Deadline = Annotated[int, msgspec.Meta(ge=1, le=1000)]
OctalMode = Annotated[str, msgspec.Meta(pattern=r"^0?[0-7]{3}\Z")]
# Beyond a century, or a thousand million, no figure is meant, and dates and sums of them overflow.
MOST_DAYS = 36_500
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Days = Annotated[int, msgspec.Meta(ge=0, le=MOST_DAYS)]
SomeDays = Annotated[int, msgspec.Meta(ge=1, le=MOST_DAYS)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Mebibytes = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
# A fraction: 0.15 is 15 %. A site that writes 15 means per cent; accepted, it would silently stop nearly all cuts.
Margin = Annotated[float, msgspec.Meta(ge=0, le=4)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
InnerShare = Annotated[float, msgspec.Meta(gt=0, lt=1)]
FailureShare = Annotated[float, msgspec.Meta(gt=0, le=0.5)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Watts = Annotated[float, msgspec.Meta(ge=0, le=100_000)]
Grams = Annotated[float, msgspec.Meta(ge=0, le=10_000)]
HoursOfADay = Annotated[tuple[Grams, ...], msgspec.Meta(min_length=24, max_length=24)]
# Absolute, without `.` or `..` as a component, and not / itself.
RootFolder = Annotated[str, msgspec.Meta(pattern=r"^(/(?!\.{1,2}(/|\Z))[^/\0]+)+\Z")]
# A relative path would mean one file to the command line, and another to slurmctld or to a service.
AbsolutePath = Annotated[str, msgspec.Meta(pattern=r"^/[^\0]+\Z")]
MaybeAbsolutePath = Annotated[str, msgspec.Meta(pattern=r"^(/[^\0]+)?\Z")]
RuleName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,40}\Z")]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the file; file.py refuses unknown keys."""


class Service(Section, frozen=True, kw_only=True):
    """`rightsizer serve`: its socket, who may ask there (`users`, root, and its own user), and its journal.

    `journal_key` names a file; "" means no key. With `limits_needed`, nothing is cut until Slurm's limits are known.
    """

    socket: AbsolutePath = "/run/rightsizer/rightsizer.sock"
    socket_mode: OctalMode = "0660"
    users: tuple[str, ...] = ("slurm",)
    journal: AbsolutePath = "/var/lib/rightsizer/journal"
    journal_key: MaybeAbsolutePath = ""
    limits_needed: bool = True


class Hook(Section, frozen=True, kw_only=True):
    """Settings of the Lua hook; `rightsizer config hook` prints them as the file that Lua reads."""

    deadline_ms: Deadline = 25
    kill_switch: AbsolutePath = "/var/lib/rightsizer/disabled"


class Client(Section, frozen=True, kw_only=True):
    """`rightsizer serve --clients`: the socket on which direct srun and salloc ask before they submit; "" is off.

    Any user may connect to it. `rightsizer config clients` prints these settings as the file that the filter
    reads. `salloc` says whether an salloc that has a name may be sized too.
    """

    socket: MaybeAbsolutePath = ""
    deadline_ms: Deadline = 25
    kill_switch: AbsolutePath = "/etc/rightsizer/clients.disabled"
    salloc: bool = False


class Store(Section, frozen=True, kw_only=True):
    """The accounting store: an SQLAlchemy URL, or a file that holds one (slurm_plugin/config/secret_urls.py).

    `rightsizer ingest --prune` removes what ended more than `keep_days` ago; 0 keeps everything.
    """

    url: str = "sqlite:////var/lib/rightsizer/store.db"
    url_file: MaybeAbsolutePath = ""
    keep_days: Days = 0


class Accounting(Section, frozen=True, kw_only=True):
    """What `rightsizer ingest` reads: slurmdbd's own database if a URL is set, else sacct.

    `cluster` names the cluster whose jobs these are; '' means that slurmctld is asked. With a `pseudonym_key`, the
    store holds pseudonyms made with the key in that file instead of names.
    """

    sacct: str = "sacct"
    slurmdbd_url: str = ""
    slurmdbd_url_file: MaybeAbsolutePath = ""
    cluster: str = ""
    overlap_s: Seconds = 3600
    late_days: Days = 3
    first_days: SomeDays = 30
    gpu_spool: AbsolutePath = "/var/lib/rightsizer/gpu-spool"
    pseudonym_key: MaybeAbsolutePath = ""


class Energy(Section, frozen=True, kw_only=True):
    """The figures from which energy and carbon are estimated if nothing measured them (accounting/labels/energy.py).

    `carbon_g_per_kwh` is one figure, or one for each hour of the day in `time_zone` ("" is this machine's).
    """

    pue: Annotated[float, msgspec.Meta(ge=1, le=10)] = 1.58
    carbon_g_per_kwh: Grams | HoursOfADay = 473.0
    carbon_file: MaybeAbsolutePath = ""
    time_zone: str = ""
    watts_per_core: Watts = 12.0
    core_idle_share: Share = 0.3
    watts_per_gib: Watts = 0.3725
    watts_per_gpu: Watts = 200.0
    gpu_idle_share: Share = 0.15
    slurm_counts_gpus: bool = True


class ModelsScaling(Section, frozen=True, kw_only=True):
    """How adaptive scaling searches; `most_error` is the largest error of a run-time model that it still uses.

    models/run_time/adaptive_scaling.py explains `alpha`, `step` and `theta`, models/run_time/strategy.py `most_error`.
    """

    alpha: InnerShare = 0.5
    step: InnerShare = 0.05
    theta: Annotated[float, msgspec.Meta(gt=0, le=100)] = 0.1
    most_error: Annotated[float, msgspec.Meta(gt=0, le=100)] = 0.15


class Models(Section, frozen=True, kw_only=True):
    """Where models are kept, how few similar jobs are enough to cut a request, and how many jobs a family remembers.

    Of the old models, those that were current in the last `keep_days` stay, and the `keep_newest` newest of all
    others (models/versions/keeping.py).
    """

    directory: AbsolutePath = "/var/lib/rightsizer/models"
    min_evidence: Count = 1
    recent_jobs: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    keep_days: SomeDays = 90
    keep_newest: Count = 5
    scaling: ModelsScaling = ModelsScaling()

    def __post_init__(self) -> None:
        """Refuse more evidence than a family remembers: nothing would ever be predicted."""
        if self.min_evidence > self.recent_jobs:
            raise ValueError(
                f"min_evidence ({self.min_evidence}) must not be more than recent_jobs ({self.recent_jobs})"
            )


class TrainDask(Section, frozen=True, kw_only=True):
    """What `rightsizer train --engine dask` starts: `workers`, each a Slurm job with `cores` and `memory_mib`.

    "" leaves a value to Slurm or to Dask. `directives` are further options of sbatch, such as "--qos=low".
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
    """How `rightsizer train` trains if this machine alone is not enough."""

    dask: TrainDask = TrainDask()


class Inputs(Section, frozen=True, kw_only=True):
    """Whether predictions use the size of the files that a script names, if they lie below `roots`; no roots is off."""

    roots: tuple[RootFolder, ...] = ()
    deadline_ms: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4
    most_files: Annotated[int, msgspec.Meta(ge=1, le=32)] = 16


class Policy(Section, frozen=True, kw_only=True):
    """How far a request may be cut, whatever is predicted.

    `most_failures` is the largest share of all jobs that may get less than they need. `most_slowdown` is the share of
    its run time by which a job may be expected to run longer because it gets fewer CPUs. `cut_sessions` says whether
    interactive sessions, such as Jupyter, are cut.
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
    cut_sessions: bool = False


class Advisor(Section, frozen=True, kw_only=True):
    """`rightsizer advise`: its objective, its bounds, and how long its changes outlast it.

    Two jobs of different accounts keep their order if their fair-share factors (0 to 1) differ by more than
    `most_inversion`. The advisor only watches in `control_share` of its time, in blocks of `block_s` seconds drawn at
    random. With `late_sizing`, pending jobs are sized again.
    """

    queue: Literal["auto", "scontrol", "pyslurm"] = "auto"
    directory: AbsolutePath = "/var/lib/rightsizer/advisor"
    period_s: Count = 60
    lease_s: Count = 600
    objective: Literal["slowdown", "wait", "utilisation", "deadlines", "energy"] = "slowdown"
    horizon_s: Count = 86_400
    most_delay_s: Seconds = 345_600
    most_wait_s: Seconds = 604_800
    most_inversion: Share = 0.1
    most_factor: Count = 10_000
    most_changes: Count = 1_000
    writes_per_s: Count = 50
    least_gain: Share = 0.02
    control_share: Share = 0.1
    block_s: Annotated[int, msgspec.Meta(ge=60, le=1_000_000_000)] = 7200
    late_sizing: bool = False

    def __post_init__(self) -> None:
        """Refuse a lease that expires before the next cycle: each cycle's changes would be undone before it."""
        if self.lease_s <= self.period_s:
            raise ValueError(f"lease_s ({self.lease_s}) must be more than period_s ({self.period_s})")


class Recovery(Section, frozen=True, kw_only=True):
    """`rightsizer recover`: its journal, how often it looks for jobs that failed because we cut them, and how many.

    A round handles at most `most_jobs`. `patience_s` is how long `--job` waits for its job to end.
    """

    directory: AbsolutePath = "/var/lib/rightsizer/recovery"
    period_s: Count = 10
    most_jobs: Count = 200
    patience_s: Count = 120
    read_output: bool = False


class Brakes(Section, frozen=True, kw_only=True):
    """When cutting stops by itself: when cut jobs fail more often, by the share `most_excess`, than uncut jobs.

    `control_share` is the share of job families that are never cut, for comparison.
    """

    directory: AbsolutePath = "/var/lib/rightsizer/brakes"
    most_excess: FailureShare = 0.02
    control_share: Share = 0.0


class Rule(Section, frozen=True, kw_only=True):
    """One of `[[rules]]`: which jobs it matches, and what differs for them. The first rule that matches a job applies.

    A list matches if any of its patterns (`*`, `?`) does; an empty list always matches. A key that is left out keeps
    the site's value. `job_name` is compared with the family's form of the name (without folders, in lower case, all
    numbers alike), so that one rule applies to a whole family. `percent` is the share of users' job families that the
    rule enrols; the others are observed.
    """

    name: RuleName
    job_name: tuple[str, ...] = ()
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
    cut_sessions: bool | None = None


class JobType(Section, frozen=True, kw_only=True):
    """One of `[[job_types]]`: the jobs of one program, by patterns (`*`, `?`) over name, partition and account.

    The first that matches a job is its type. A job that none matches has its own name as its type
    (models/run_time/job_types.py).
    """

    name: RuleName
    job_name: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    account: tuple[str, ...] = ()


class LentPartition(Section, frozen=True, kw_only=True):
    """One of `[[lent_partitions]]`: a partition on nodes that others own, into which the advisor lets waiting jobs.

    `jobs_of` are the partitions of those jobs. A job is let in if the owners return before it is done in no more than
    the share `risk` of cases.
    """

    name: str
    jobs_of: tuple[str, ...]
    risk: Share = 0.5

    def __post_init__(self) -> None:
        """Refuse a partition that lends to itself, or to none."""
        if not (self.name and self.jobs_of):
            raise ValueError(
                "a lent partition needs a name and jobs_of; set both, with at least one partition in jobs_of"
            )
        if self.name in self.jobs_of:
            raise ValueError(
                f"{self.name} is listed in its own jobs_of; list the partitions that jobs ask for"
            )


class Config(Section, frozen=True, kw_only=True):
    """The whole configuration file."""

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
    brakes: Brakes = Brakes()
    rules: tuple[Rule, ...] = ()
    job_types: tuple[JobType, ...] = ()
    lent_partitions: tuple[LentPartition, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a partition that is lent twice: only one of its tables would be used."""
        names = [one.name for one in self.lent_partitions]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"lent_partitions has {twice[0]} twice; put all its jobs_of into one table")
