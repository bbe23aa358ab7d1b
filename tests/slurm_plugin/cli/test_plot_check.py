"""Whether a command may write its picture is checked before anything is computed."""

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
    """Act as nobody in the block if root runs this; other users are refused anyway."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_picture_in_a_folder_closed_to_the_user_is_a_usage_error(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    with unprivileged(), pytest.raises(click.UsageError, match="or you may not write there"):
        check_plots(closed / "pictures" / "use.png")
