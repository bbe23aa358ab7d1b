"""`rightsizer train`."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from accounting.errors import ModelError, UnreadModelError, install_with
from accounting.units import counted
from slurm_plugin.cli.models.pruning import remove_old
from slurm_plugin.cli.models.sizing import policy_sizing
from slurm_plugin.cli.output import config_option, note, progress_bar
from slurm_plugin.cli.stored import check_store, stored_past
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config
from slurm_plugin.freed_memory import give_back_memory

if TYPE_CHECKING:
    import xgboost

    from accounting.frames import Floats
    from models.judging.promotion import Champion, Verdict
    from models.past.columns import PastColumns
    from models.training.matrix import Matrix
    from models.training.quantile import Fit
    from models.training.training import Trained


# The modules of the extra `dask`.
DASK = ("cryptography", "dask", "dask_jobqueue", "distributed")
# How many reasons against a model are shown: a large site may have hundreds of them, one for each family.
MOST_TOLD = 10


@click.command("train")
@config_option
@click.option(
    "--promote",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When the new model becomes the current one: auto, if it is no worse on later jobs; always; or "
    "never, which leaves it in the registry.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "dask"]),
    default="local",
    show_default=True,
    help="Where the growth models are trained: on this machine, or on workers that are Slurm jobs.",
)
def train(config_file: str | None, promote: str, engine: str) -> None:
    """Train a model from the store. A running service uses it within a second after it is promoted.

    The new model becomes the current one if, on jobs that neither model has seen, it fails no more jobs and saves no
    less than the current one. The first model is compared with what users ask for. A model that is refused stays in
    the registry, with the reasons in its card; the exit code is 0, because that is not a failure.

    With --engine dask, XGBoost runs on workers that are started as Slurm jobs (see [train.dask]) and are always ended
    afterwards. If they do not start, or one is lost, nothing is trained and the current model stays.

    At the end, models that models.keep_days and models.keep_newest do not keep are removed (`rightsizer models
    --prune` lists them).

    \b
    Example:
      rightsizer ingest && rightsizer train
      rightsizer train --promote never
      rightsizer train --engine dask
    """
    config = load_config(config_file)
    check_store(config)
    from models.versions import registry
    from models.versions.artefact import load_predictor
    from slurm_plugin.service.decide import chain_settings_of

    directory = Path(config.models.directory)
    opponent = registry.current_version(directory)
    # Free what only one step needs (the past, then the fitted rows) before the next step, which needs as much memory.
    made = _make(config, engine, judged=promote != "always")
    give_back_memory()
    version, verdict = made.version, made.verdict
    load_predictor(directory / version, chain_settings_of(config))  # refuses what the service would refuse
    promoted = _promoted(directory, made, promote, opponent)
    if verdict is not None:
        for reason in verdict.reasons[:MOST_TOLD]:
            note(f"gate: {reason}")
        if more := len(verdict.reasons[MOST_TOLD:]):
            note(f"gate: {more} more reasons; `rightsizer models {version}` shows all of them")
    note(f"learned from {counted(made.attempts, 'attempt')}; " + _outcome(version, promoted, verdict))
    try:
        remove_old(config)
    except ModelError as error:  # the new model exists all the same
        note(f"old models were not removed: {error}")
    click.echo(version)


def _promoted(directory: Path, made: _Made, promote: str, opponent: str | None) -> bool:
    """Promote a model if that is wanted, and return whether it was; `opponent` was current when its training began."""
    from models.versions import registry

    if promote == "always":
        registry.promote(directory, made.version, "always")
        return True
    if promote == "never" or made.verdict is None or not made.verdict.passed:
        return False
    if registry.promote_judged(directory, made.version, opponent):
        return True
    note(
        f"{registry.current_version(directory)} became the current model during this training, and the new one was "
        "not compared with it; run `rightsizer train` again"
    )
    return False


class _Made(NamedTuple):
    """A model in the registry, the gate's verdict (None: not asked), and on how many attempts it was trained."""

    version: str
    verdict: Verdict | None
    attempts: int


def _make(config: Config, engine: str, *, judged: bool) -> _Made:
    """Train on the store, ask the gate if the model is to be `judged`, and write the model into the registry."""
    from models.judging.card import card_files, card_of
    from models.training import training
    from slurm_plugin.service.decide import chain_settings_of

    with engine_of(config, engine) as fit:
        trained, verdict = _learn(config, fit, judged=judged)
    give_back_memory()
    card = card_files(card_of(trained, verdict, chain_settings_of(config).most_failures))
    version = training.save(trained, Path(config.models.directory), time.time(), card)
    _tell(trained)
    return _Made(version, verdict, trained.seen.attempts)


def _learn(config: Config, fit: Fit, *, judged: bool) -> tuple[Trained, Verdict | None]:
    """Return a model trained on the store's past, and the gate's verdict if the model is to be `judged`."""
    from models.training.training import train_columns

    with progress_bar("reading the store"):
        past = stored_past(config)
    # The gate comes before the model itself exists: its trial training needs as much memory.
    verdict = judged_by_gate(config, past, fit) if judged else None
    give_back_memory()
    with progress_bar(f"learning from {len(past):,} attempts"):
        return train_columns(past, config.models.recent_jobs, fit), verdict


@contextmanager
def engine_of(config: Config, engine: str) -> Iterator[Fit]:
    """Yield a function that fits trees: here, or on Dask workers that start when the first rows are ready."""
    from models.training.quantile import fit_quantile

    if engine == "local":
        yield fit_quantile
        return
    _refuse_without_dask()
    from models.training.dask_engine import dask_fit
    from slurm_plugin.slurm.dask_workers import slurm_workers

    with ExitStack() as stack:

        @cache
        def started() -> Fit:
            return dask_fit(stack.enter_context(slurm_workers(config.train.dask, note)))

        def fit(matrix: Matrix, weights: Floats) -> xgboost.Booster:
            return started()(matrix, weights)

        yield fit


def _refuse_without_dask() -> None:
    missing = [name for name in DASK if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(
            f"--engine dask needs {', '.join(missing)}; {install_with('dask')}, or train with --engine local"
        )


def judged_by_gate(config: Config, past: PastColumns, fit: Fit) -> Verdict:
    """Return the promotion gate's verdict on a model trained from the past.

    If this machine cannot read the current model now, the verdict is a refusal: any other opponent would be too easy.
    """
    from models.judging.promotion import gate, refused_unread
    from slurm_plugin.service.decide import chain_settings_of

    settings = chain_settings_of(config)
    try:
        champion = _champion(config)
    except UnreadModelError as error:
        return refused_unread(error)
    with progress_bar("judging a rehearsal on the latest jobs") as told:
        return gate(
            past,
            settings,
            config.models.recent_jobs,
            policy_sizing(config),
            champion,
            fit,
            told,
        )


def _champion(config: Config) -> Champion | None:
    """Return the current model; None if there is none, if the service would not load it, or if it is newer than now.

    Raises UnreadModelError if this machine cannot read it now, which says nothing about the model.
    """
    from models.judging.promotion import Champion
    from models.versions import registry
    from models.versions.artefact import read_manifest
    from slurm_plugin.service.decide import chain_settings_of

    directory = Path(config.models.directory)
    version = _current_version(directory)
    if version is None:
        return None
    try:
        predictor = registry.load_version(directory, version, chain_settings_of(config))
        manifest = read_manifest(directory / version)
    except UnreadModelError:
        raise
    except ModelError as error:
        note(f"the new model is not compared with the current one: {error}")
        return None
    # Earlier releases learned from jobs that ran while a clock was ahead, too; but nothing learns from later jobs than
    # the model itself.
    known_until_s = min(manifest.last_end_s, manifest.created_s)
    if known_until_s > time.time():
        note(
            "the new model is not compared with the current one, because that was trained while the clock was ahead"
        )
        return None
    return Champion(predictor, known_until_s)


def _current_version(directory: Path) -> str | None:
    """Return the current version, None before the first; UnreadModelError if that cannot be determined now."""
    from models.versions import registry
    from models.versions.artefact import unread

    version = registry.current_version(directory)
    if version is None:
        link = directory / registry.CURRENT
        try:
            link.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise unread(link, error) from None
    return version


def _outcome(version: str, promoted: bool, verdict: Verdict | None) -> str:
    if promoted:
        return f"model {version} is current"
    refused = "was refused" if verdict is not None and not verdict.passed else "is kept"
    return (
        f"model {version} {refused} and is not the current one; to use it anyway: `rightsizer promote "
        f"{version}`"
    )


def _tell(trained: Trained) -> None:
    for dimension, matrix in trained.matrices.items():
        learned = dimension in trained.fitted
        note(
            f"{dimension}: {counted(len(matrix), 'job')} had a past to learn from; "
            + (
                "XGBoost quantile over the family's history"
                if learned
                else "too few for XGBoost, so history and margin alone"
            )
        )
    sources = trained.seen.gpu_sources
    note(f"gpus: {('metered by ' + ', '.join(sources) if sources else 'no meter, requests are kept')}")
