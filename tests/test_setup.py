"""tools/setup, tools/releases and tools/test: what `make` does on machines that are not as expected."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Stands in for Python: records the requests for environments, and makes one whose pip installs a program.
FAKE_PYTHON = """\
#!/bin/sh
[ "$1" = -m ] || exit 0
echo "$@" >>"$NOTES"
mkdir -p .venv/bin
printf '#!/bin/sh\\necho "#!%s/.venv/bin/python" >.venv/bin/rightsizer\\n' "$PWD" >.venv/bin/python
chmod 755 .venv/bin/python
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkout"
    (folder / "tools").mkdir(parents=True)
    for name in ("tools/setup", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    (tmp_path / "python3").write_text(FAKE_PYTHON)
    (tmp_path / "python3").chmod(0o755)
    return folder


def environments_made(checkout: Path) -> list[str]:
    """Run `tools/setup venv` and return the requests for environments that Python has received in all runs so far."""
    notes = checkout.parent / "notes"
    environment = {**os.environ, "PYTHON": str(checkout.parent / "python3"), "NOTES": str(notes)}
    subprocess.run([checkout / "tools/setup", "venv"], env=environment, check=True, capture_output=True)
    return notes.read_text().splitlines()


def test_an_environment_is_made_only_once(checkout: Path) -> None:
    assert environments_made(checkout) == environments_made(checkout) == ["-m venv --clear .venv"]


def test_what_pip_cannot_install_is_told_and_tried_again(checkout: Path) -> None:
    python = checkout.parent / "python3"
    python.write_text(FAKE_PYTHON.replace('echo "#!%s', 'exit 1; echo "#!%s'))
    environment = {**os.environ, "PYTHON": str(python), "NOTES": str(checkout.parent / "notes")}
    command = (str(checkout / "tools/setup"), "venv")
    failed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "check the network and the free space" in failed.stderr
    python.write_text(FAKE_PYTHON)
    environments_made(checkout)
    assert (checkout / ".venv/bin/rightsizer").exists()


def test_changed_pins_are_installed_into_the_same_environment(checkout: Path) -> None:
    environments_made(checkout)
    (checkout / "constraints.txt").write_text("click==8.1.7\n")
    assert environments_made(checkout)[1:] == ["-m venv .venv"]


def test_a_checkout_that_was_moved_gets_its_own_environment(checkout: Path) -> None:
    environments_made(checkout)
    moved = checkout.rename(checkout.parent / "moved")
    assert environments_made(moved)[1:] == ["-m venv --clear .venv"]
    assert len(environments_made(moved)) == 2


def test_an_environment_whose_python_is_missing_is_rebuilt(checkout: Path) -> None:
    environments_made(checkout)
    (checkout / ".venv/bin/python").unlink()
    assert environments_made(checkout)[1:] == ["-m venv --clear .venv"]


def test_an_environment_of_another_checkout_behind_a_link_is_left_alone(checkout: Path) -> None:
    environments_made(checkout)
    theirs = (checkout / ".venv").rename(checkout.parent / "theirs")
    (checkout / ".venv").symlink_to(theirs)
    (theirs / "bin/rightsizer").write_text("#!/srv/theirs/.venv/bin/python\n")
    assert len(environments_made(checkout)) == 1


# Stand in for Debian's tools on a host without the packages: munge and slurmd bring services, a library does not.
FAKE_DEBIAN = {
    "id": "echo 0",
    "dpkg-query": "exit 1",
    "apt-get": """[ "$2" = update ] || for name in munge slurmd; do touch "$UNITS/$name.service"; done""",
    "systemctl": """echo "$@" >>"$NOTES\"""",
}


def test_services_that_came_with_packages_do_not_start_at_boot(checkout: Path) -> None:
    root, units, notes = (checkout.parent / name for name in ("host", "host/usr/lib/systemd/system", "notes"))
    for folder in ("bin", "usr/sbin", "usr/lib/systemd/system", "etc/systemd/system"):
        (root / folder).mkdir(parents=True)
    # The host runs its own Slurm.
    (root / "etc/systemd/system/slurmd.service").touch()
    for name, does in FAKE_DEBIAN.items():
        (root / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (root / "bin" / name).chmod(0o755)
    (checkout / "tools/debian-packages.txt").write_text("libfaketime\nmunge\nslurmd\n")
    script = (ROOT / "tools/setup").read_text()
    for folder in ("/etc", "/usr"):
        script = script.replace(f"{folder} ", f"{root}{folder} ").replace(f"{folder}/", f"{root}{folder}/")
    (checkout / "tools/setup").write_text(script)
    path = f"{root}/bin{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "UNITS": str(units), "NOTES": str(notes)}
    subprocess.run([checkout / "tools/setup", "packages"], env=environment, check=True, capture_output=True)
    assert notes.read_text() == "--quiet disable munge\n"


def test_other_slurm_releases_are_found_without_home_in_the_environment(tmp_path: Path) -> None:
    for release in ("24.11", "26.05"):
        (tmp_path / ".cache/slurm-rightsizer/releases" / release).mkdir(parents=True)
    (tmp_path / "getent").write_text(f"#!/bin/sh\necho 'me:x:1000:1000:Me:{tmp_path}:/bin/sh'\n")
    (tmp_path / "getent").chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [ROOT / "tools/releases"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def tools_test(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run tools/test in a folder in which `python` stands in for Python."""
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").write_text(python)
    (folder / ".venv/bin/python").chmod(0o755)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools/test", folder / "tools/test")
    return subprocess.run([folder / "tools/test"], capture_output=True, text=True, check=False, timeout=300)


# Stands in for pytest: tests on Slurm are interrupted once the three other parts run. Those record whether they
# can clean up.
FAKE_PYTEST = f"""\
#!{sys.executable}
import os, pathlib, sys, time
if "tests/cluster" in sys.argv:
    while len(list(pathlib.Path().glob("begun-*"))) < 3:
        time.sleep(0.02)
    sys.exit(2)
try:
    pathlib.Path(f"begun-{{os.getpid()}}").touch()
    time.sleep(600)
except KeyboardInterrupt:
    pathlib.Path(f"cleaned-{{os.getpid()}}").touch()
"""


def test_an_interrupted_run_ends_everything_that_it_started(tmp_path: Path) -> None:
    done = tools_test(tmp_path, FAKE_PYTEST)
    assert done.returncode == 2
    assert len(list(tmp_path.glob("cleaned-*"))) == 3


# Stands in for pytest: prints what it should run, and fails if told to.
TOLD_PYTEST = f"""\
#!{sys.executable}
import pathlib, sys
print(*sys.argv[3:])
sys.exit(pathlib.Path("fails").read_text() in sys.argv)
"""


@pytest.mark.parametrize(
    "fails",
    ["tests/cluster", "tests/cluster/accounting", "tests/models", "--ignore=tests/cluster", "none"],
)
def test_every_test_is_in_one_part_and_a_failure_in_any_part_counts(fails: str, tmp_path: Path) -> None:
    (tmp_path / "fails").write_text(fails)
    done = tools_test(tmp_path, TOLD_PYTEST)
    assert done.returncode == (fails != "none")
    parts = [{word for word in line.split() if "tests/" in word} for line in done.stdout.splitlines()]
    rest, on_slurm, others, others_too = parts
    assert all((ROOT / name).exists() for name in on_slurm | others)
    assert rest == {"tests/cluster", *(f"--ignore={name}" for name in on_slurm)}
    assert others_too == {"--ignore=tests/cluster", *(f"--ignore={name}" for name in others)}
