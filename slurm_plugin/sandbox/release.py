"""Which Slurm the sandbox runs: where its programs are, its release, and that release's quirks."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from accounting.errors import SandboxError
from slurm_plugin.sandbox.root_tree import RootTree, find_root_tree

Version = tuple[int, int]

# The Debian package of each program that the sandbox runs.
PACKAGE_OF = {
    "munged": "munge",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sacct": "slurm-client",
    "sacctmgr": "slurm-client",
    "scancel": "slurm-client",
    "scontrol": "slurm-client",
    "sinfo": "slurm-client",
    "squeue": "slurm-client",
}
SLURM_PROGRAMS = tuple(name for name, package in PACKAGE_OF.items() if package.startswith("slurm"))
# A user's PATH often lacks sbin, where all the daemons are.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
PREFIX_FOLDERS = ("sbin", "bin", "usr/sbin", "usr/bin")
# Where `make install` and Debian's packages put the plugins, below the prefix.
PLUGIN_FOLDERS = (
    "lib/slurm",
    "lib64/slurm",
    "usr/lib/slurm",
    "usr/lib64/slurm",
    "usr/lib/*/slurm-wlm",
    "lib/*/slurm-wlm",
)


@dataclass(frozen=True)
class Quirks:
    """How a release's configuration files must differ.

    A form that every release accepts is used for all of them: `-f` with an absolute path, and no line at all for
    TaskPlugin=task/none, MpiDefault=none and SwitchType, which 26.05 refuses.
    """

    cgroup_automount: bool
    idle_cgroup_plugin: str
    store_flags: tuple[str, ...]
    doubles_huge_pages: bool


def quirks_of(version: Version) -> Quirks:
    """Return the quirks of `version`."""
    return Quirks(
        # CgroupAutomount is defunct since 23.11: daemons complain about it at each start.
        cgroup_automount=version < (23, 11),
        # slurmd loads a cgroup plugin even if nothing uses it, by default that of the host's cgroup version, and the
        # one of v2 refuses to start without systemd. `disabled` came with 24.05; before, the plugin of v1 does nothing
        # until it is used.
        idle_cgroup_plugin="disabled" if version >= (24, 5) else "cgroup/v1",
        # job_extra came with 23.02; an unknown flag is fatal.
        store_flags=("job_comment", "job_script", *(("job_extra",) if version >= (23, 2) else ())),
        # With cgroup/v2, jobacct_gather/cgroup adds transparent huge pages to the anonymous memory, which includes
        # them already: a job shows up to twice the memory that it has.
        doubles_huge_pages=version < (23, 2),
    )


@dataclass(frozen=True)
class Programs:
    """The programs of one sandbox: `folders` are searched in order; `plugins` is set only for a prefix.

    If the prefix is a whole root file system, Slurm's own programs come from `tree`.
    """

    folders: tuple[Path, ...]
    prefix_folders: tuple[Path, ...]
    plugins: Path | None
    tree: RootTree | None = None

    def command(self, name: str) -> tuple[str, ...]:
        """Return the words that run program `name`; if there is none, SandboxError names the package."""
        if self.tree is not None and name in SLURM_PROGRAMS:
            program = self.tree.program(name)
            if program is not None:
                return self.tree.command(name, program)
        return (self.path(name),)

    def path(self, name: str) -> str:
        """Return the absolute path of program `name`; if there is none, SandboxError names the package."""
        found = self.find(name)
        if found is None:
            raise SandboxError(missing_programs_message([name]))
        return found

    def find(self, name: str) -> str | None:
        """Return the absolute path of program `name`, or None."""
        return shutil.which(name, path=":".join(str(folder) for folder in self.folders))


def find_programs(prefix: Path | None) -> Programs:
    """Locate Slurm under `prefix` (None: the system's Slurm), and everything else in the system's folders.

    Raises SandboxError if something is missing, with the command that installs it.
    """
    system = tuple(Path(folder) for folder in SYSTEM_FOLDERS)
    tree = find_root_tree(prefix) if prefix else None
    if prefix is None:
        programs = Programs(folders=system, prefix_folders=(), plugins=None)
    elif tree is not None:
        programs = Programs(folders=system, prefix_folders=(), plugins=tree.plugins, tree=tree)
        _refuse_strays([name for name in SLURM_PROGRAMS if tree.program(name) is None], prefix)
    else:
        inside = tuple(prefix / folder for folder in PREFIX_FOLDERS if (prefix / folder).is_dir())
        programs = Programs(folders=(*inside, *system), prefix_folders=inside, plugins=_plugins_under(prefix))
        _refuse_strays(
            [name for name in SLURM_PROGRAMS if not _is_under(programs.find(name), prefix)], prefix
        )
    needed = [name for name in PACKAGE_OF if tree is None or name not in SLURM_PROGRAMS]
    missing = [name for name in needed if programs.find(name) is None]
    if missing:
        raise SandboxError(missing_programs_message(missing))
    return programs


def missing_programs_message(missing: list[str]) -> str:
    """Return a message that names the missing programs and the one command that installs them."""
    packages = {PACKAGE_OF[name] for name in missing}
    if "slurmdbd" in packages:
        packages.add("slurm-wlm-mysql-plugin")
    return f"not installed: {', '.join(missing)}; run `apt-get install {' '.join(sorted(packages))}`"


def parse_version(output: str) -> Version:
    """Read `slurm-wlm 22.05.8` or `slurm 26.05.0-0rc1` as (22, 5) or (26, 5)."""
    match = re.search(r"\b(\d{2})\.(\d{2})\b", output)
    if match is None:
        raise SandboxError(
            f"`slurmctld -V` answers {output.strip()!r}, which is not a Slurm release; try another "
            "--slurm-prefix"
        )
    return int(match[1]), int(match[2])


def release_of(programs: Programs) -> str:
    """Return slurmctld's release in its own words, such as `slurm-wlm 22.05.8`."""
    command = [*programs.command("slurmctld"), "-V"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"cannot run `{' '.join(command)}`: {error}; try another --slurm-prefix") from None
    if answer.returncode != 0:
        raise SandboxError(
            f"`{' '.join(command)}` failed: {answer.stderr.strip()}; the prefix must contain a Slurm "
            "built for this host"
        )
    return answer.stdout.strip()


def _plugins_under(prefix: Path) -> Path:
    """Return the plugin folder of a prefix; SandboxError if there is none."""
    for pattern in PLUGIN_FOLDERS:
        for folder in sorted(prefix.glob(pattern)):
            if any(folder.glob("auth_*.so")):
                return folder
    raise SandboxError(
        f"no Slurm plugins (lib/slurm/auth_*.so) under {prefix}; give the folder that was the --prefix "
        "of `./configure`"
    )


def _refuse_strays(strays: list[str], prefix: Path) -> None:
    """Raise SandboxError if a Slurm program would come from the system instead: releases must not be mixed."""
    if strays:
        raise SandboxError(
            f"{prefix} has no {', '.join(strays)}; install all of Slurm there, or leave out --slurm-prefix"
        )


def _is_under(path: str | None, prefix: Path) -> bool:
    return path is not None and Path(path).is_relative_to(prefix)
