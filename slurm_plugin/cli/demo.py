"""`rightsizer demo`."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from accounting.errors import SandboxError
from slurm_plugin.cli.output import note, print_rows

NEXT_STEPS = """\
What to do next
  a cluster to play with   rightsizer sandbox up --dir /tmp/sandbox
                           eval "$(rightsizer sandbox env --dir /tmp/sandbox)"
  on your own accounting   rightsizer ingest && rightsizer evaluate      (reads sacct, changes nothing)
  on your own cluster      docs/admin.md: ten steps from package to observe to enforce, and back
  for your users           docs/user.md"""


@click.command("demo")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the private Slurm goes; a temporary folder by default.",
)
@click.option("--keep", is_flag=True, help="Leave the private Slurm running afterwards.")
@click.option(
    "--recorded", is_flag=True, help="Use recorded accounting and no Slurm, even where Slurm could run."
)
def demo(directory: Path | None, keep: bool, recorded: bool) -> None:
    """Tell the whole story on a private Slurm in a few minutes: asked, granted, used, before and after.

    Where Slurm is not installed it runs from accounting that was recorded on such a private Slurm.

    \b
    Example:
      rightsizer demo --keep --dir /tmp/sandbox
    """
    started_s = time.monotonic()

    def say(text: str) -> None:
        note(f"[{time.monotonic() - started_s:4.0f} s] {text}")

    reason = "asked for with --recorded" if recorded else _why_no_slurm()
    if reason:
        _recorded(say, reason)
    else:
        _on_slurm(directory, keep, say)
    click.echo(NEXT_STEPS)


def _why_no_slurm() -> str | None:
    from slurm_plugin.sandbox.release import find_programs

    try:
        find_programs(None)
    except SandboxError as error:
        return str(error)
    return None


def _on_slurm(directory: Path | None, keep: bool, say: Callable[[str], None]) -> None:
    from slurm_plugin.demo.story import tell
    from slurm_plugin.demo.table import family_rows
    from slurm_plugin.sandbox import cluster

    folder = directory or Path(tempfile.mkdtemp(prefix="rightsizer-demo-"))
    try:
        outcome = tell(folder, say)
    finally:
        if not keep and (folder / "sandbox.json").exists():
            say("ending the private Slurm")
            cluster.stop(folder, remove=directory is None)
        elif directory is None and not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print_rows(family_rows(outcome.before.attempts), "table", "before: as people ask (AllocTRES, MaxRSS)")
    print_rows(family_rows(outcome.after.attempts), "table", "after: the same sbatch, the hook enforcing")
    print_rows(
        [
            {
                "the same queue": name,
                "jobs": len(queue.attempts),
                "took (s)": queue.span_s,
                "side by side": queue.side_by_side,
            }
            for name, queue in (("before", outcome.before), ("after", outcome.after))
        ],
        "table",
    )
    click.echo("The nodes and GPUs are posing, and GPU use is simulated; the memory is real.")
    click.echo(f"A user read: {outcome.user_line}")
    click.echo(f"sacct shows: {outcome.after.attempts[0].row.admin_comment}\n")
    if keep:
        click.echo(f'Still running: eval "$(rightsizer sandbox env --dir {folder})"\n')


def _recorded(say: Callable[[str], None], reason: str) -> None:
    from slurm_plugin.demo.recorded import tell_recorded

    say(f"no private Slurm here: {reason}")
    print_rows(
        tell_recorded(say), "table", "a new submission of each family, through the real hook and service"
    )
    click.echo(
        "This ran from recorded accounting: no job was started, and GPU use was simulated when it was recorded.\n"
    )
