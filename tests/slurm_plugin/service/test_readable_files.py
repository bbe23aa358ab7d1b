"""The size of a file below the roots is told only to users whom the mode bits let read it: on real files."""

import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.service.readable_files import MOST_LINKS, Reader, file_bytes

# If the tests run as root, files are given to a user who is not root.
OWNER = os.getuid() or 12345
OTHERS = Reader(OWNER + 1, frozenset({OWNER + 1}))
ME = Reader(OWNER, frozenset())


@pytest.fixture
def root() -> Iterator[Path]:
    """Yield a folder that everybody may enter, with a file of 1000 bytes that all may read; pytest's own are closed."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    give(folder)
    make(folder / "a.csv")
    yield folder
    shutil.rmtree(folder)


def give(path: Path) -> None:
    if os.getuid() == 0:
        os.chown(path, OWNER, OWNER, follow_symlinks=False)


def make(file: Path, mode: int = 0o644, size: int = 1000) -> Path:
    file.write_bytes(b"x" * size)
    file.chmod(mode)
    give(file)
    return file


def folder_in(parent: Path, mode: int = 0o755) -> Path:
    folder = parent / f"folder-{mode:o}"
    folder.mkdir()
    folder.chmod(mode)
    give(folder)
    return folder


def size(path: Path, root: Path, reader: Reader = ME) -> int | None:
    return file_bytes(str(path), [str(root)], reader)


def test_the_mode_bits_decide_who_learns_a_size(root: Path) -> None:
    group = (root / "a.csv").stat().st_gid
    member = Reader(OWNER + 1, frozenset({group}))
    expected = {
        # mode: owner, member of the group, others
        0o644: (1000, 1000, 1000),
        0o640: (1000, 1000, None),
        0o600: (1000, None, None),
        0o044: (None, 1000, 1000),
        0o604: (1000, None, 1000),
        0o111: (None, None, None),
    }
    for mode, sizes in expected.items():
        file = make(root / f"{mode:o}", mode)
        assert tuple(size(file, root, reader) for reader in (ME, member, OTHERS)) == sizes, f"{mode:o}"
        assert size(file, root, Reader(0, frozenset())) == 1000


def test_a_closed_folder_does_not_even_reveal_what_is_missing(root: Path) -> None:
    closed = folder_in(root, 0o700)
    file = make(closed / "b.csv")
    assert size(file, root) == 1000
    assert size(file, root, OTHERS) is None
    assert size(closed / "missing.csv", root, OTHERS) is None
    assert size(folder_in(root, 0o711) / "missing.csv", root, OTHERS) == 0


def test_a_folder_above_the_root_may_be_closed_too(root: Path) -> None:
    closed = folder_in(root, 0o700)
    inner = folder_in(closed)
    file = make(inner / "b.csv")
    assert size(file, inner) == 1000
    assert size(file, inner, OTHERS) is None


def test_only_regular_files_below_the_roots_have_a_size(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert size(root / "missing.csv", root) == 0
    assert size(root / "a.csv" / "below", root) == 0
    assert size(root / "pipe", root) == 0
    assert size(folder_in(root), root) == 0
    assert size(root / "a.csv", folder_in(root, 0o777)) == 0
    assert file_bytes(str(root / "a.csv"), [], ME) == 0
    assert file_bytes(f"{root}-other/a.csv", [str(root)], ME) == 0
    assert file_bytes("/proc/self/status", [str(root)], ME) == 0
    assert size(root / ("n" * 300), root) is None


def test_links_are_followed_only_below_the_roots(root: Path) -> None:
    inner, other = folder_in(root), folder_in(root, 0o775)
    file = make(inner / "b.csv", size=2000)
    (root / "absolute").symlink_to(file)
    (other / "relative").symlink_to(f"../{inner.name}/b.csv")
    (root / "folder").symlink_to(inner)
    (root / "out").symlink_to("/etc/passwd")
    (root / "up").symlink_to("../../../../etc/passwd")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("missing")
    assert [size(root / name, root) for name in ("absolute", "folder/b.csv", "dangling")] == [2000, 2000, 0]
    assert size(other / "relative", root) == 2000
    assert [size(root / name, root) for name in ("out", "up", "loop")] == [None] * 3
    # If the target is below another root, it counts.
    (inner / "beside").symlink_to(root / "a.csv")
    assert size(inner / "beside", inner) is None
    assert file_bytes(str(inner / "beside"), [str(inner), str(root)], ME) == 1000


def test_many_links_in_a_row_are_not_followed(root: Path) -> None:
    before = root / "a.csv"
    for number in range(MOST_LINKS + 1):
        link = root / f"link{number}"
        link.symlink_to(before)
        before = link
    assert size(root / f"link{MOST_LINKS - 1}", root) == 1000
    assert size(root / f"link{MOST_LINKS}", root) is None


def test_a_link_into_a_closed_folder_reveals_nothing(root: Path) -> None:
    closed = folder_in(root, 0o700)
    make(closed / "b.csv")
    (root / "link").symlink_to(closed / "b.csv")
    assert size(root / "link", root) == 1000
    assert size(root / "link", root, OTHERS) is None


def test_a_size_under_an_access_control_list_is_told_only_to_the_owner(root: Path) -> None:
    file = make(root / "listed.csv")
    # Version 2: owner rw, user OTHERS nothing, group r, mask r, others r. By the mode bits all may read.
    undefined = 0xFFFFFFFF
    entries = [
        (1, 6, undefined),
        (2, 0, OTHERS.uid),
        (4, 4, undefined),
        (16, 4, undefined),
        (32, 4, undefined),
    ]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(file, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"no access control lists in {root}: {error}")
    assert file.stat().st_mode & 0o777 == 0o644
    assert size(file, root) == 1000
    assert size(file, root, OTHERS) is None


def test_no_handle_stays_open(root: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("a.csv", "missing", "a.csv/below", "n" * 300):
        size(root / name, root)
        size(root / name, root, OTHERS)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
