"""`rightsizer demo`."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.errors import RightsizerError, SandboxError
from slurm_plugin.cli.orderly_end import orderly_end
from slurm_plugin.cli.output import print_rows

if TYPE_CHECKING:
    from slurm_plugin.demo.story import Voice
    from slurm_plugin.sandbox.cluster import Sandbox

ERASE_LINE = "\r\x1b[K"
NEXT_STEPS = """\
What to do next
  a cluster to play with   rightsizer sandbox up --dir /tmp/sandbox
                           eval "$(rightsizer sandbox env --dir /tmp/sandbox)"
  on your own accounting   rightsizer ingest && rightsizer evaluate      (reads sacct, changes nothing)
  on your own cluster      docs/admin.md: the steps from package to observe to enforce, and back
  for your users           docs/user.md"""


@click.command("demo")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the private Slurm. Default: a temporary folder.",
)
@click.option("--keep", is_flag=True, help="Leave the private Slurm running at the end.")
@click.option(
    "--recorded", is_flag=True, help="Use recorded accounting and no Slurm, even if Slurm could run here."
)
def demo(directory: Path | None, keep: bool, recorded: bool) -> None:
    """Show on a private Slurm, in a few minutes, what jobs ask for, are granted and use, before and after.

    If Slurm is not installed, the demo uses accounting that was recorded on such a private Slurm.

    \b
    Example:
      rightsizer demo --keep --dir /tmp/sandbox
    """
    if recorded and (directory or keep):
        raise click.UsageError(
            "--recorded starts no private Slurm, so --dir and --keep have no effect; leave them out"
        )
    reason = "asked for with --recorded" if recorded else _why_no_slurm()
    if reason:
        _recorded(_voice(), reason)
    else:
        _on_slurm(directory, keep, _voice())
    click.echo(NEXT_STEPS)


def _voice() -> Voice:
    from slurm_plugin.demo.story import Voice

    started_s, terminal = time.monotonic(), sys.stderr.isatty()

    def line(text: str) -> str:
        return f"[{time.monotonic() - started_s:4.0f} s] {text}"

    def say(text: str) -> None:
        click.echo(f"{ERASE_LINE if terminal else ''}{line(text)}", err=True)

    def tick(text: str) -> None:
        if terminal:
            click.echo(f"{ERASE_LINE}{line(text)}", err=True, nl=False)

    return Voice(say, tick)


def _why_no_slurm() -> str | None:
    from slurm_plugin.sandbox.release import find_programs

    try:
        find_programs(None)
    except SandboxError as error:
        return str(error)
    return None


def _on_slurm(directory: Path | None, keep: bool, voice: Voice) -> None:
    from slurm_plugin.demo.story import tell
    from slurm_plugin.demo.table import family_rows

    with orderly_end(), _private_slurm(directory, keep, voice) as sandbox:
        outcome = tell(sandbox, voice)
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
    click.echo("Nodes and GPUs are imitations and GPU use is simulated; memory and its use are real.")
    click.echo(f"The user saw: {outcome.user_line}")
    click.echo(f"sacct shows: {outcome.after.attempts[0].row.admin_comment}\n")
    if keep:
        click.echo(f'Still running: eval "$(rightsizer sandbox env --dir {sandbox.directory})"\n')


@contextlib.contextmanager
def _private_slurm(directory: Path | None, keep: bool, voice: Voice) -> Iterator[Sandbox]:
    """Run a private Slurm during the block, and with `keep` also afterwards; one that ran before is left alone.

    A temporary folder is removed, except if the demo fails: the error may name a log in it.
    """
    from slurm_plugin.demo.story import begin
    from slurm_plugin.sandbox import cluster

    folder = directory or Path(tempfile.mkdtemp(prefix="rightsizer-demo-"))
    stays = keep or directory is not None
    try:
        with contextlib.ExitStack() as afterwards:
            sandbox = begin(folder, voice)
            if not keep:
                # ExitStack calls these in reverse order, each even if another fails: the terminal may be gone.
                afterwards.callback(cluster.stop, folder)
                afterwards.callback(voice.say, "stopping the private Slurm")
            yield sandbox
    except RightsizerError:
        stays = stays or (folder / "sandbox.json").exists()
        if directory is None and stays:
            voice.say(
                f"its logs are kept; to stop and remove it: rightsizer sandbox down --remove --dir {folder}"
            )
        raise
    finally:
        if not stays:
            shutil.rmtree(folder, ignore_errors=True)


def _recorded(voice: Voice, reason: str) -> None:
    from slurm_plugin.demo.recorded import tell_recorded

    voice.say(f"cannot run a private Slurm here: {reason}")
    with orderly_end():
        rows = tell_recorded(voice.say)
    print_rows(rows, "table", "new submissions of each family, through the real hook and service")
    click.echo(
        "This ran from recorded accounting: no job was started, and GPU use was simulated when it was recorded.\n"
    )
