"""Which jobs are alike. Pure: names and scripts in, keys out.

A job belongs to several families, from the narrowest to the widest; a predictor takes the narrowest that has seen
enough. Numbers in names and scripts are dropped, so that `fit-01` and `fit-02` are one family. Parts of names that
machines made are dropped too (job_names.py).
"""

from __future__ import annotations

import functools
import hashlib
import re

from accounting.request import JobRequest
from accounting.units import counted
from models.past.job_names import MACHINE_MADE, NAMELESS, is_by_machine, normal_name, without_digests

Family = tuple[str, ...]

SIGNATURE_CHARS = 12
# Every signature is computed from the same part of a script, its beginning; the hook sends that, and the end.
SCRIPT_BYTES = 8192
# srun names a job after its program. If the program runs whatever it is given, the name says nothing of the next job:
# a session in it would be cut to what other jobs used, and where clients do not ask, nothing shows that it is a
# session (`srun --pty python3`).
RUNS_ANYTHING = frozenset(
    {
        *("bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh"),
        *("python", "python#", "python#.#", "ipython", "ipython#", "pypy#"),
        *("perl", "r", "rscript", "julia", "java"),
        *("matlab", "octave", "jupyter", "jupyter-lab", "jupyter-notebook"),
        *("apptainer", "singularity", "podman", "env", "conda", "mamba", "micromamba", "uv"),
    }
)
# Nor does it if the program only starts the next word (`srun numactl -i all ./fit`).
STARTS_ANYTHING = frozenset(
    {
        *("time", "timeout", "nice", "ionice", "nohup", "setsid", "stdbuf", "numactl", "taskset"),
        *("xargs", "parallel", "make", "strace", "ltrace", "perf", "valgrind", "nsys", "ncu"),
        *("mpirun", "mpiexec", "mpiexec.hydra", "torchrun", "accelerate", "deepspeed"),
        *("docker", "shifter", "enroot", "ch-run", "poetry", "pipenv", "pixi"),
        *("node", "ruby", "php", "lua", "tclsh"),
    }
)
# Names that say nothing about what runs: sbatch, and tools that submit, use them by default.
GENERIC_NAMES = RUNS_ANYTHING | {
    *STARTS_ANYTHING,
    *("wrap", "sbatch", "interactive", "job", "run", "test", "script", "submit", "slurm"),
    MACHINE_MADE,
    NAMELESS,
    # The names of all jobs that AiiDA, pyiron, pysqa, batchtools, submitit, FireWorks, Dask, RADICAL-Pilot, Pulsar,
    # Covalent, TorchX's utils.python and utils.sh, and MATLAB run, of signac's bundles, and of ARC's nameless jobs.
    *("aiida-#", "pi_#", "pysqa", "job#", "submitit", "fw_job", "dask-worker", "pilot.#", "bundle"),
    *("pulsar_#", "covalent-#-#", "python-#", "sh-#", "gridjob"),
    *("matlab_r#a_job#", "matlab_r#b_job#", "matlab_r#a_job#.#", "matlab_r#b_job#.#"),
}

_NUMBER = re.compile(r"\d+")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
# What Snakemake passes to each of its jobs. Rules have Python identifiers as names; a job that is a group has
# several.
_IN_ARRAY = re.compile(r"\s--slurm-jobstep-array-execs\b")
_SNAKEFILE = re.compile(r" --snakefile ('[^'\n]*'|\S+)")
_RULES = re.compile(r" --allowed-rules((?: [A-Za-z_]\w*)+)")
# The files that a line runs. Some are written for one job: dpdispatcher's (`source …/.DIGEST.sub.run`), Covalent's
# (`python …/script-UUID-0.py`).
_OPTIONS = r"[ \t]+(?:-(?!{code}\b)-?\w[\w-]*[ \t]+)*"  # what follows `code` is no file
_RUN_FILE = re.compile(
    rf"(?<![\w.-])(?:(?:source|(?:ba|c|da|k|tc|z)?sh|python[\d.]*){_OPTIONS.format(code='c')}"
    rf"|(?:Rscript|perl|julia){_OPTIONS.format(code='e')})[\"']?([^\s;|&-][^\s;|&]*)"
    r"|(?<!\S)\.[ \t]+[\"']?([^\s;|&]+)|^[ \t]*(?:exec[ \t]+)?(\./[^\s;|&]+)"
)
# What some tools put into a job's own folder under a name that is always the same: rslurm, Pulsar for Galaxy, and
# future.batchtools in a registry of its own; people's own registries of batchtools are for one kind of work.
_OWN_WORDS = ("slurm_run.R", "tool_script.sh", "/.future/")
_OWN_FILE = re.compile(
    r"(?<![\w.-])(?:slurm_run\.R|tool_script\.sh)(?![\w.-])|\bdoJobCollection\([\"'][^\"'\n]*/\.future/"
)


def script_signature(script: str) -> str:
    """Return a short digest of what a batch script does, '' for an empty one.

    Comments, `#SBATCH` lines, white space and numbers do not count: with a changed request or input number, it is
    still the same work.
    """
    return _signature(without_numbers(_beginning(script)))


def _beginning(script: str) -> str:
    if script.isascii():
        return script[:SCRIPT_BYTES]
    return script.encode(errors="replace")[:SCRIPT_BYTES].decode(errors="ignore")


# Cached by the text without numbers: the same script comes with many different numbers.
@functools.lru_cache(maxsize=512)
def _signature(script: str) -> str:
    lines = (" ".join(line.split()) for line in script.splitlines())
    body = "\n".join(line for line in lines if line and not line.startswith("#"))
    return hashlib.sha256(body.encode()).hexdigest()[:SIGNATURE_CHARS] if body else ""


# Cached because two callers need it, one after the other: the signature, and what the script's steps fix
# (slurm_plugin/policy/script_floors.py).
@functools.lru_cache(maxsize=16)
def without_numbers(text: str) -> str:
    """Return a text with 0 in place of each number; for ASCII, many times as fast as a regular expression."""
    if not text.isascii():
        return _NUMBER.sub("0", text)
    zeros = text.encode().translate(_ZEROS)
    while b"00" in zeros:
        zeros = zeros.replace(b"00", b"0")
    return zeros.decode()


def rule_signature(script: str) -> str:
    """Return a short digest of which of a workflow's rules a script runs; '' if no engine says that.

    Snakemake names a job after its run's UUID, and its script names the sample too, so that neither shows which jobs
    are alike.
    """
    head = _beginning(script)
    snakefile, rules = _SNAKEFILE.search(head), _RULES.search(head)
    if " -m snakemake " not in head or snakefile is None or rules is None:
        return ""
    # The tasks of an array hold a Snakemake more than a job of its own (snakemake-executor-plugin-slurm-jobstep).
    in_array = ("array",) if _IN_ARRAY.search(head) else ()
    said = (_NUMBER.sub("0", snakefile[1].strip("'")), *sorted(rules[1].split()), *in_array)
    return hashlib.sha256("\n".join(said).encode(errors="replace")).hexdigest()[:SIGNATURE_CHARS]


def signature_of(job_name: str, script: str) -> str:
    """Return the signature of a job's script: of all that it does, or, if a machine named the job, of its rule.

    If the rule of such a job is not known, UUIDs and digests are dropped, since its script names the run too: by a
    UUID in each of its paths (PSI/J), or by the digest of what it works on (signac, batchtools). If all that such a
    script shows is that it runs a file of its own, it has no signature. Jobs that people name keep the signatures that
    they have always had.
    """
    head = _beginning(script)
    if not is_by_machine(job_name):
        unseen = normal_name(job_name) in GENERIC_NAMES and _has_own_file(head)
        return "" if unseen else script_signature(script)
    if by_rule := rule_signature(script):
        return by_rule
    plain = without_digests(head)
    return "" if _has_own_file(head) or _runs_own_file(head, plain) else script_signature(plain)


def _has_own_file(head: str) -> bool:
    """Return whether a script runs what a tool has put into the job's own folder."""
    return any(word in head for word in _OWN_WORDS) and bool(_OWN_FILE.search(head))


def _runs_own_file(head: str, plain: str) -> bool:
    """Return whether a script runs a file that is named after its run; `plain` is the script without such names."""
    if plain == head:
        return False
    named = (
        line
        for line, without in zip(head.splitlines(), plain.splitlines(), strict=False)
        if line != without and not line.lstrip().startswith("#")
    )
    # Of the groups, one has matched.
    files = ("".join(found).rpartition("/")[2] for line in named for found in _RUN_FILE.findall(line))
    return any(without_digests(file) != file for file in files)


def runs_unseen(command: str) -> bool:
    """Return whether a command runs what it reads from its standard input: `bash -l`, `conda run -n env python3 - 7`.

    So it does if an interpreter is its last word, apart from options and numbers.
    """
    words = command.split()
    words = words[: words.index("-")] if "-" in words else words
    said = [word for word in words if not word.startswith("-") and not word.isdigit()]
    return bool(said) and normal_name(said[-1]) in RUNS_ANYTHING


def family_keys(request: JobRequest) -> tuple[Family, ...]:
    """Return the families of a job, the narrowest first; none if nothing tells it from other jobs."""
    name = normal_name(request.job_name)
    keys: list[Family] = []
    if request.script_signature:
        keys.append(("user+name+script", request.user, name, request.script_signature))
    if name not in GENERIC_NAMES:
        keys.append(("user+name", request.user, name))
    return tuple(keys)


def family_name(job_name: str, script_signature: str = "") -> str:
    """Return what people call a job's family: its normal name, and its script if the name says nothing."""
    name = normal_name(job_name)
    if name not in GENERIC_NAMES:
        return name
    return f"{name} ({script_signature or 'script not known'})"


def renamed(family: Family) -> Family:
    """Return a family under its name of today: it may have been stored under an older release's rules for names."""
    if len(family) < 3:
        return family
    kind, user, name, *script = family
    return (kind, user, normal_name(name), *script)


def is_alike(family: str) -> bool:
    """Return whether jobs of a family, named by `family_name`, can be taken to be alike."""
    return not family.endswith("(script not known)")


def cohort_key(request: JobRequest) -> Family:
    """Return the wide group whose habit of asking too much is a feature: the user alone.

    With an account's or a partition's habit, anybody's jobs could move everybody's predictions.
    """
    return ("user", request.user)


def wide_keys(request: JobRequest) -> tuple[Family, ...]:
    """Return the groups that show how long a job of no known family may run: its user's jobs, then all with its limit.

    Jobs of other users decide no grant, and outweigh no narrower past. Without them, a job of an unknown user would
    be taken to run as long as its limit, which is a year if there is none.
    """
    return cohort_key(request), ("limit", str(request.wall_s or 0))


def basis_of(number: int, words: str, each: str = "earlier job") -> str:
    """Return what a prediction is based on, for people: so many jobs of a family, described in `words`."""
    return counted(number, each) + words.removeprefix("jobs")


def describe_family(family: Family) -> str:
    """Return a family in words, for people."""
    kind, user, name, *_ = (*family, "", "")
    if kind == "user":
        return f"jobs of {user}"
    if kind == "limit":
        return "jobs of any user with the same limit"
    script = " and the same script" if kind == "user+name+script" else ""
    return f"jobs of {user} named {name}{script}"
