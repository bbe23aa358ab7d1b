"""Reads the first line of a dump: the delimiter, the columns that this project uses, and what is missing."""

from __future__ import annotations

import re

import msgspec

from accounting.errors import DumpError

# What we read, and its possible column names: sacct's, old and new, then those of slurmdbd's job table.
SOURCES: dict[str, tuple[str, ...]] = {
    "raw_id": ("jobidraw", "id_job"),
    "id": ("jobid",),
    "array": ("id_array_job",),
    "task": ("id_array_task",),
    "cluster": ("cluster", "clustername"),
    "user": ("user", "id_user", "uid"),
    "account": ("account",),
    "partition": ("partition",),
    "qos": ("qos",),
    "job_name": ("jobname", "job_name"),
    "comment": ("comment", "derived_es"),
    "admin_comment": ("admincomment", "admin_comment"),
    "state": ("state",),
    "submit": ("submit", "time_submit"),
    "start": ("start", "time_start"),
    "end": ("end", "time_end"),
    "elapsed_raw": ("elapsedraw",),
    "elapsed": ("elapsed",),
    "cpu_time_raw": ("cputimeraw",),
    "cpu_time": ("cputime",),
    "waited_raw": ("plannedcpuraw", "resvcpuraw"),
    "waited": ("planned", "reserved"),
    "limit_min": ("timelimitraw",),
    "limit": ("timelimit",),
    "nodes": ("nnodes", "allocnodes", "nodes_alloc", "reqnodes"),
    "tasks": ("ntasks",),
    "req_cpus": ("reqcpus", "cpus_req"),
    "alloc_cpus": ("alloccpus", "ncpus"),
    "req_mem": ("reqmem", "mem_req"),
    "req_tres": ("reqtres", "tres_req"),
    "alloc_tres": ("alloctres", "tres_alloc"),
    "max_rss": ("maxrss",),
    "total_cpu": ("totalcpu",),
    "in_max": ("tresusageinmax",),
    "in_tot": ("tresusageintot",),
    "out_tot": ("tresusageouttot",),
    "energy_raw": ("consumedenergyraw",),
}
# Users choose these texts. sacct does not escape delimiters or line ends in them, so they can forge a line.
FREE_TEXT = frozenset(
    {
        *("jobname", "job_name", "comment", "derived_es", "admincomment", "admin_comment", "systemcomment"),
        *(
            "workdir",
            "work_dir",
            "submitline",
            "submit_line",
            "extra",
            "container",
            "stdin",
            "stdout",
            "stderr",
        ),
    }
)
# Makes a complete dump: times are in unix seconds, independent of time zones, and the texts chosen by users come last.
SACCT_COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct --allusers --duplicates --noconvert --parsable2 --delimiter=$'\\x1f' "
    "--starttime=2026-01-01 --format=JobIDRaw,JobID,Cluster,User,Account,Partition,QOS,State,Submit,Start,End,"
    "ElapsedRaw,TimelimitRaw,NNodes,NTasks,ReqCPUS,AllocCPUS,ReqTRES,AllocTRES,ReqMem,MaxRSS,TotalCPU,"
    "TRESUsageInMax,TRESUsageInTot,TRESUsageOutTot,ConsumedEnergyRaw,JobName,Comment,AdminComment "
    "| gzip > NAME.psv.gz"
)
_SLURMDBD = frozenset(("id_job", "time_submit", "tres_req", "id_array_job", "cpus_req"))
# pandas writes its index as a first column without a name.
_FIRST_NAMES = re.compile(r'^(?:"?[A-Za-z_][A-Za-z0-9_]*"?)?(?P<delimiter>[^A-Za-z0-9_"]{1,8})"?[A-Za-z_]')
_KNOWN = frozenset(name for names in SOURCES.values() for name in names) | FREE_TEXT


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a dump. `place` is the position of each thing that we read, counted from 0."""

    line: str
    delimiter: str
    names: tuple[str, ...]
    place: dict[str, int]
    slurmdbd: bool
    quoted: bool

    @property
    def free_text(self) -> bool:
        """Whether some column holds text chosen by users."""
        return any(name in FREE_TEXT for name in self.names)

    def has(self, *sources: str) -> bool:
        """Whether the dump has columns for all of these."""
        return all(source in self.place for source in sources)


def read_heading(line: str) -> Heading:
    """Parse a dump's first line.

    Raises DumpError if it is not a heading, or lacks necessary columns; the error names columns that would suffice.
    """
    delimiter = _delimiter(line)
    names = tuple(name.strip().strip('"').lower() for name in line.split(delimiter))
    place = {
        thing: next(names.index(name) for name in sources if name in names)
        for thing, sources in SOURCES.items()
        if any(name in names for name in sources)
    }
    slurmdbd = bool(_SLURMDBD.intersection(names))
    heading = Heading(
        line=line,
        delimiter=delimiter,
        names=names,
        place=place,
        slurmdbd=slurmdbd,
        quoted=delimiter in (",", ";", "\t"),
    )
    wanting = [wanted for suffices, wanted in _needs(heading) if not suffices]
    if wanting:
        raise DumpError(f"the dump lacks {'; '.join(wanting)}; make it again with: {SACCT_COMMAND}")
    return heading


def _delimiter(line: str) -> str:
    if re.match(r"^\s*[\[{]", line):
        raise DumpError("the dump is JSON; make it again with sacct --parsable2 instead of --json")
    if re.match(r"^\s*[A-Za-z_]+\s{2,}[A-Za-z_]", line):
        raise DumpError("sacct cut the columns to fit a screen; make the dump again with --parsable2")
    match = _FIRST_NAMES.match(line)
    if match is None or not _KNOWN.intersection(re.split(r"[^a-z0-9_]+", line.lower())):
        raise DumpError(
            f"the first line does not name columns of Slurm ({line[:60]!r}); make the dump again "
            "without --noheader"
        )
    return match["delimiter"]


def _needs(heading: Heading) -> tuple[tuple[bool, str], ...]:
    has = heading.has
    cpus = any(has(name) for name in ("alloc_cpus", "alloc_tres", "req_cpus"))
    ran = has("elapsed_raw") or has("elapsed") or has("start", "end")
    ran = ran or (cpus and (has("cpu_time_raw") or has("cpu_time")))
    return (
        (has("state"), "State"),
        (has("submit") or has("start"), "Submit"),
        (ran, "ElapsedRaw (or Start and End, or CPUTimeRAW and AllocCPUS)"),
    )


def missing(heading: Heading, cluster: str = "") -> tuple[str, ...]:
    """Return what is wrong with a dump and what each fault costs, in words that continue after the file's name.

    `cluster` is used if the dump names no cluster; '' stands for the file's name.
    """
    has = heading.has
    lacks = (
        (
            has("raw_id") or has("id"),
            "JobIDRaw: jobs are numbered by their lines, so do not change the file",
        ),
        (
            has("raw_id") or not has("id"),
            "JobIDRaw: tasks of arrays and components of het jobs get made-up numbers",
        ),
        (has("cluster") or cluster != "", _NO_CLUSTER),
        (has("user"), "User: job families are not separated by user"),
        (has("job_name"), "JobName: job families are not separated by job name"),
        (has("partition"), "Partition: jobs of all partitions are treated alike"),
        (has("submit"), f"Submit: the start is used instead, so waiting times are not known{_TWICE}"),
        (has("start") and has("end"), _start_and_end(heading)),
        (_elapsed_is_told(heading), "AllocCPUS: the elapsed time is computed as CPUTimeRAW / ReqCPUS"),
        (
            has("limit_min") or has("limit"),
            "TimelimitRaw: a run that reached its time limit looks like a whole run",
        ),
        (has("req_tres") or has("req_cpus"), "ReqTRES: what was requested is not known"),
        (has("alloc_tres"), "AllocTRES: what was granted, and GPUs, are not known"),
        (has("max_rss") or has("in_tot"), "MaxRSS, TRESUsageInTot: memory use was not measured"),
        (has("total_cpu"), "TotalCPU: use of cores was not measured"),
        (
            has("in_tot") and has("out_tot"),
            "TRESUsageInTot, TRESUsageOutTot: input and output are not known",
        ),
    )
    said = tuple(f"lacks {cost}" for holds, cost in lacks if not holds)
    if has("cluster") and cluster:
        said = (
            *said,
            (
                f"names the clusters of its jobs itself; `--cluster {cluster}` is used only for jobs that "
                "name none"
            ),
        )
    is_safe = not heading.free_text or heading.delimiter == "\x1f"
    return said if is_safe else (*said, _forgeable(heading))


# An attempt is identified by these times: in a dump that has them, its line counts as another attempt.
_TWICE = "; jobs that a more complete dump also contains may be counted twice"
_NO_CLUSTER = (
    "Cluster: the file's name is used instead; give `--cluster NAME`, the same for every dump of the "
    "cluster, or jobs are counted twice"
)


def _elapsed_is_told(heading: Heading) -> bool:
    has = heading.has
    told = has("elapsed_raw") or has("elapsed") or has("start", "end")
    return told or has("alloc_cpus") or has("alloc_tres")


def _start_and_end(heading: Heading) -> str:
    if heading.has("waited") or heading.has("waited_raw"):
        return f"Start, End: computed from Submit, the wait and the elapsed time{_TWICE}"
    return f"Start, End: a job is assumed to start when it was submitted{_TWICE}"


def _forgeable(heading: Heading) -> str:
    return (
        f"separates its columns by {heading.delimiter!r}; texts that users choose may contain that or a "
        "newline, and look like columns. To avoid this, use sacct --parsable2 --delimiter=$'\\x1f' with "
        "such columns last"
    )
