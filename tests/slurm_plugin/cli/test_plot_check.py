"""Where a command may put its picture, said before anything is computed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from slurm_plugin.cli.plot_check import check_plots

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Let root be nobody for the block; others are refused as they are."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_is_closed_to_the_user_is_a_wrong_use(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    with unprivileged(), pytest.raises(click.UsageError, match="or you may not write there"):
        check_plots(closed / "pictures" / "use.png")
