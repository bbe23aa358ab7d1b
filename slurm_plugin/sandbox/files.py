"""Write the files of a sandbox's folder, with the permissions that each needs."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from accounting.decisions.decision import Mode
from accounting.errors import SandboxError
from accounting.presence import is_folder, is_there
from slurm_plugin.config.file import parse_config
from slurm_plugin.config.hook import FILTER_SCRIPT, HOOK_SCRIPT, client_settings, hook_settings, lua_folder
from slurm_plugin.config.settings import Config
from slurm_plugin.sandbox import gpu_meter, slurm_conf
from slurm_plugin.sandbox.layout import ROOT_BYTES_MAX, Layout
from slurm_plugin.sandbox.slurm_conf import ClusterPlan

MODE_LINE = re.compile(r"^mode\s*=.*$", re.MULTILINE)
# The simulated GPUs are null devices, so that opening one does nothing.
NULL_DEVICE = os.makedev(1, 3)
# MariaDB's own files and Slurm's tables take some 70 MiB, before any job.
LEAST_FREE_MIB = 128


def write_file(path: Path, text: str, mode: int) -> None:
    """Replace `path` by `text` atomically; at no time can more users read it than `mode` allows.

    Raises SandboxError if that is not allowed or the disk is full.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)
        partial.replace(path)
    except OSError as error:
        raise SandboxError(
            f"cannot write {path}: {error.strerror}; check the owner and the free space"
        ) from None


def check_folder(layout: Layout) -> None:
    """Raise SandboxError unless the folder is a sandbox, empty or absent, and its path is fit for sockets and Slurm."""
    root = layout.root
    if len(os.fsencode(root)) > ROOT_BYTES_MAX:
        raise SandboxError(
            f"{root} is longer than {ROOT_BYTES_MAX} bytes, so a Unix socket in it would have too long "
            "a path; choose a shorter --dir"
        )
    refuse_characters(root, "--dir")
    try:
        if is_there(root) and not is_folder(root):
            raise SandboxError(f"{root} is not a folder; choose another --dir")
        is_foreign = not is_there(layout.manifest) and any(root.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise SandboxError(f"cannot read {root}: {error.strerror}; choose another --dir") from None
    if is_foreign:
        raise SandboxError(f"{root} is neither empty nor a sandbox; choose another --dir, or empty it first")


def refuse_characters(path: Path, option: str) -> None:
    """Raise SandboxError if a path, given by `option`, has a character that slurm.conf cannot hold, such as a space."""
    if re.search(r"[^\w./@+-]", str(path)):
        raise SandboxError(
            f"{path} has characters that Slurm's files do not allow; choose a {option} of letters, "
            "digits and . _ - + @"
        )


def make_folders(layout: Layout) -> None:
    """Make every folder with its mode, whatever the umask; SandboxError if that is not allowed, or would be no use."""
    plain = (layout.root, layout.etc, layout.bin, layout.devices, layout.log, layout.run, layout.state)
    inner = (layout.controller_state, layout.scratch, layout.rightsizer, layout.service)
    modes = dict.fromkeys((*plain, *inner), 0o755)
    modes |= {layout.secret: 0o700, layout.database: 0o700, layout.gpu_spool: 0o1777}
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        refuse_foreign(layout)
        refuse_noexec(layout)
        refuse_full(layout)
        for folder, mode in modes.items():
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)
    except OSError as error:
        raise SandboxError(f"cannot make {error.filename}: {error.strerror}; choose another --dir") from None


def refuse_foreign(layout: Layout) -> None:
    """Raise SandboxError if another user owns the folder, who could change what we run and which processes we end."""
    owner = layout.root.stat().st_uid
    if owner != os.geteuid():
        raise SandboxError(
            f"{layout.root} belongs to user {owner}; run this as that user or choose another --dir"
        )


def refuse_noexec(layout: Layout) -> None:
    """Raise SandboxError if no program in the folder can be run: slurmd runs job scripts there."""
    if os.statvfs(layout.root).f_flag & os.ST_NOEXEC:
        raise SandboxError(
            f"{layout.root} is mounted noexec, so no job could run there; choose another --dir"
        )


def refuse_full(layout: Layout) -> None:
    """Raise SandboxError if the disk has no room for a new sandbox: MariaDB and Slurm say so in dark words."""
    free_mib = shutil.disk_usage(layout.root).free // 2**20
    if free_mib < LEAST_FREE_MIB and not is_there(layout.manifest):
        raise SandboxError(
            f"{layout.root} has {free_mib} MiB of free space, and a new sandbox needs {LEAST_FREE_MIB}; free some "
            "there, or choose another --dir"
        )


def closed_parent(root: Path) -> Path | None:
    """Return the topmost parent of `root` that other users may not enter; None if they may enter all."""
    for folder in reversed(root.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def write_slurm_files(plan: ClusterPlan) -> None:
    """Write Slurm's configuration, the secrets (kept from an earlier `up`) and the simulated GPUs."""
    layout = plan.layout
    password = _kept_secret(layout.database_password)
    if not layout.munge_key.exists():
        write_file(layout.munge_key, secrets.token_hex(64), 0o600)
    write_file(layout.database_setup, slurm_conf.database_setup_sql(password), 0o600)
    write_file(layout.slurm_conf, slurm_conf.slurm_conf(plan), 0o644)
    write_file(layout.etc / "gres.conf", slurm_conf.gres_conf(plan), 0o644)
    write_file(layout.etc / "cgroup.conf", slurm_conf.cgroup_conf(plan), 0o644)
    write_file(layout.etc / "slurmdbd.conf", slurm_conf.slurmdbd_conf(plan, password), 0o600)
    for index in range(plan.shape.devices):
        _make_device(layout.devices / f"gpu{index}")


def write_rightsizer_files(
    layout: Layout, mode: Mode | None, *, hook: bool, clients: bool, slurm_user: str
) -> None:
    """Write our own configuration (kept from an earlier `up`, except its mode), the hook, and the jobs' programs.

    A slurmctld that runs as another user, `slurm_user`, can read the hook and ask the service.
    """
    if not layout.rightsizer_toml.exists():
        text = rightsizer_toml(layout, mode or "observe", slurm_user)
        text += client_section(layout) if clients else ""
        write_file(layout.rightsizer_toml, text, 0o644)
    elif mode is not None:
        rewrite_mode(layout, mode)
    write_programs(layout.bin, {gpu_meter.PROGRAM_NAME: gpu_meter.SIMULATE_GPU_USE})
    if hook:
        write_lua(layout, HOOK_SCRIPT, "rightsizer_site.lua", hook_settings, copy=bool(slurm_user))
    if clients:
        write_lua(layout, FILTER_SCRIPT, "rightsizer_clients.lua", client_settings, copy=False)


def write_programs(folder: Path, scripts: Mapping[str, str]) -> None:
    """Write shell scripts, by name, that every user may run."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    for name, text in scripts.items():
        write_file(folder / name, text, 0o755)


def rightsizer_toml(layout: Layout, mode: Mode, slurm_user: str = "") -> str:
    """Render our own configuration: the defaults, except for paths and the times of a small, young cluster.

    Records are minutes old at most (overlap_s), the deadline is the longest, and recovery runs every second.
    A `slurm_user` other than the service's own user may ask the service too.
    """
    mode_of_socket, users = ("0666", f'["{slurm_user}"]') if slurm_user else ("0660", "[]")
    return f"""\
mode = "{mode}"

[service]
socket = "{layout.service_socket}"
socket_mode = "{mode_of_socket}"
users = {users}
journal = "{layout.rightsizer}/journal"

[hook]
# As long as may be: here the jobs share the cores of slurmctld and of the service.
deadline_ms = 1000
kill_switch = "{layout.rightsizer}/disabled"

[store]
url = "sqlite:///{layout.rightsizer}/store.db"

[accounting]
gpu_spool = "{layout.gpu_spool}"
overlap_s = 120

[models]
directory = "{layout.rightsizer}/models"

[advisor]
directory = "{layout.rightsizer}/advisor"

[recovery]
directory = "{layout.rightsizer}/recovery"
period_s = 1

[brakes]
directory = "{layout.rightsizer}/brakes"

[policy]
def_mem_per_cpu_mib = {slurm_conf.DEF_MEM_PER_CPU_MIB}
"""


def client_section(layout: Layout) -> str:
    """Render the part of our configuration that lets direct srun and salloc ask."""
    return f"""
[client]
socket = "{layout.client_socket}"
# As long as may be here too: it holds up one client, and nobody else.
deadline_ms = 1000
kill_switch = "{layout.rightsizer}/clients.disabled"
salloc = true
"""


def rewrite_mode(layout: Layout, mode: Mode) -> None:
    """Replace the mode's line in our configuration, and keep everything else that somebody wrote there."""
    try:
        text = layout.rightsizer_toml.read_text(encoding="utf-8")
    except OSError as error:
        raise SandboxError(
            f"cannot read {layout.rightsizer_toml}: {error.strerror}; `rightsizer sandbox up` writes a new one"
        ) from None
    line = f'mode = "{mode}"'
    changed, count = MODE_LINE.subn(line, text, count=1)
    write_file(layout.rightsizer_toml, changed if count else f"{line}\n{text}", 0o644)


def write_lua(
    layout: Layout, script: str, settings: str, render: Callable[[Config], str], *, copy: bool
) -> None:
    """Link or copy one of the project's Lua scripts into the folder where Slurm looks, and write its settings there."""
    source = lua_folder()
    config = parse_config(layout.rightsizer_toml.read_text(encoding="utf-8"), str(layout.rightsizer_toml))
    write_file(layout.etc / settings, render(config), 0o644)
    for name in (script, "rightsizer"):
        _put(layout.etc / name, source / name, copy=copy)


def _put(path: Path, target: Path, *, copy: bool) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if not copy:
        path.symlink_to(target)
    elif target.is_dir():
        shutil.copytree(target, path)
    else:
        shutil.copyfile(target, path)


def _kept_secret(path: Path) -> str:
    """Return the secret in `path`, made of letters and digits; write a new one if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8").strip()
    secret = secrets.token_hex(24)
    write_file(path, secret + "\n", 0o600)
    return secret


def _make_device(path: Path) -> None:
    """Make the file that gres.conf names as a GPU: a device if allowed, else a plain file.

    With a plain file, CUDA_VISIBLE_DEVICES stays empty.
    """
    if path.exists():
        return
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            os.mknod(path, 0o666 | stat.S_IFCHR, NULL_DEVICE)
            path.chmod(0o666)
            return
    path.touch()


def tail(path: Path, lines: int = 5, about: str = "") -> str:
    """Return a log's last lines that contain `about`, joined into one; if none does, its last lines."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 8192))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return "(no log)"
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in kept if about in line] or kept
    return " | ".join(told[-lines:]) or "(empty log)"
