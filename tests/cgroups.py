"""A test's own cgroup in the real cgroup v2 of this host."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from slurm_plugin.sandbox.enforcement import CGROUP_ROOT, V2_CONTROLLERS


@contextmanager
def controlled_group() -> Iterator[Path]:
    """Yield an empty cgroup that has the controllers, like the top of a container; skip the test if there is none."""
    switch = CGROUP_ROOT / "cgroup.subtree_control"
    group = CGROUP_ROOT / f"rightsizer-test-{os.getpid()}"
    try:
        added = sorted(set(V2_CONTROLLERS) - set(switch.read_text().split()))
        for name in added:
            switch.write_text(f"+{name}")
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup v2 with controllers can be made here: {error}")
    try:
        yield group
    finally:
        group.rmdir()
        for name in added:
            with suppress(OSError):  # another process uses the group meanwhile
                switch.write_text(f"-{name}")
