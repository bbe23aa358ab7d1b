"""Run the Slurm of another Debian release from the folder that debootstrap made, without chroot.

Its programs are started with that tree's own dynamic loader and libraries; the jobs that they start use this host's.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

PROGRAM_FOLDERS = ("usr/sbin", "usr/bin")
LINKS_MAX = 10


@dataclass(frozen=True)
class RootTree:
    """A root file system in a folder; `loader` is its dynamic loader, `libraries` are the loader's search paths."""

    root: Path
    loader: Path
    libraries: tuple[Path, ...]
    plugins: Path

    def program(self, name: str) -> Path | None:
        """Return the tree's own program of that name, with links followed inside the tree; None if it has none."""
        for folder in PROGRAM_FOLDERS:
            found = follow(self.root, self.root / folder / name)
            if found is not None:
                return found
        return None

    def command(self, name: str, program: Path) -> tuple[str, ...]:
        """Return the words that run a program of the tree under its plain name.

        Slurm's libraries look at that name, and would not take `slurmctld-wlm`, Debian's file name, for a slurmctld.
        """
        path = ":".join(str(folder) for folder in self.libraries)
        return (str(self.loader), "--argv0", name, "--library-path", path, str(program))

    def wrappers(self) -> dict[str, str]:
        """Return a shell script for each program of the tree's Slurm, by name; users' shells and slurmd call these."""
        names = {file.name for folder in PROGRAM_FOLDERS for file in (self.root / folder).glob("s*")}
        programs = {name: self.program(name) for name in sorted(names)}
        return {name: self._wrapper(name, path) for name, path in programs.items() if path and is_slurm(path)}

    def _wrapper(self, name: str, program: Path) -> str:
        # The daemons re-execute themselves by this name, so it must be the script's, not the program's.
        words = self.command(name, program)
        before, after = shlex.quote(words[0]), shlex.join(words[3:])
        # slurmctld's Lua must find the modules of its own tree before those of this host.
        share, lib = self.root / "usr/share/lua/5.1", self.libraries[-1] / "lua/5.1"
        return (
            "#!/bin/sh\n"
            f"export LUA_PATH={shlex.quote(f'{share}/?.lua;{share}/?/init.lua;;')} "
            f"LUA_CPATH={shlex.quote(f'{lib}/?.so;;')}\n"
            f'exec {before} --argv0 "$0" {after} "$@"\n'
        )


def find_root_tree(prefix: Path) -> RootTree | None:
    """Return the root file system with Debian's Slurm in `prefix`; None if that is a plain prefix."""
    loaders = sorted(prefix.glob("lib64/ld-linux*.so.*"))
    plugins = sorted(prefix.glob("usr/lib/*/slurm-wlm"))
    if not loaders or not plugins:
        return None
    # Slurm's own library is next to its plugins; the run path in the programs would find this host's instead.
    return RootTree(prefix, loaders[0], (plugins[0], plugins[0].parent), plugins[0])


def follow(root: Path, path: Path) -> Path | None:
    """Follow links as if `root` were `/`; None if they do not lead to a file."""
    for _ in range(LINKS_MAX):
        if not path.is_symlink():
            return path if path.is_file() else None
        target = path.readlink()
        path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
    return None


def is_slurm(program: Path) -> bool:
    """Whether a program is Slurm's, that is, contains the name of Slurm's library."""
    return b"libslurm" in program.read_bytes()
