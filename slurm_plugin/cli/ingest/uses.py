"""Which options of `rightsizer ingest` go together: an option that would have no effect is a usage error."""

from __future__ import annotations

import click

from slurm_plugin.cli.given_options import given

ANYWHERE = ("--config",)
# The options allowed with each main option ('' means none of these); the first main option that is given counts.
USES: dict[str, tuple[str, ...]] = {
    "--watch": ("--pseudonymise",),
    "--quarantined": ("--format",),
    "--prune": ("--format",),
    "--retry": ("--pseudonymise", "--report", "--format"),
    "--from-file": ("--zone", "--cluster", "--gpu-tres", "--pseudonymise", "--report", "--format"),
    "": ("--since", "--pseudonymise", "--report", "--format"),
}


def check_use(context: click.Context) -> None:
    """Raise UsageError if an option was given that has no effect together with the others."""
    names = [option.opts[0] for option in given(context)]
    use = next((name for name in USES if name in names), "")
    idle = [name for name in names if name not in (use, *ANYWHERE, *USES[use])]
    if idle and use:
        allowed = " and ".join(filter(None, (", ".join((*ANYWHERE, *USES[use][:-1])), USES[use][-1])))
        raise click.UsageError(f"{use} can only be combined with {allowed}, not with {', '.join(idle)}")
    if idle:
        wanted = " or ".join(name for name, options in USES.items() if set(idle) <= set(options))
        raise click.UsageError(f"{', '.join(idle)} has no effect without {wanted}")
