"""The model in use: follows the registry's `current` link, and keeps the last good one when a new one is bad.

Between trainings it follows the feed of jobs that have ended (models/feed.py). A new model knows what the feed holds
before it is used.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from accounting.errors import ModelError
from models import registry
from models.artefact import load_predictor
from models.demand.prediction import ChainSettings, Predictor
from models.feed import FeedReader, read_parts

log = logging.getLogger(__name__)

FEED_CHECK_S = 0.5
# So many join at a time on the thread that answers: less than a millisecond.
JOIN_AT_ONCE = 16
# As many families of a model that answers no more are let go at a time.
DISCARD_AT_ONCE = 16


class InUse(msgspec.Struct, frozen=True):
    """A predictor, and where it has read to in the feed: they are swapped together."""

    predictor: Predictor
    feed: FeedReader


class CurrentModel:
    """Holds a predictor, or None before the first model; swapped whole by `refresh`."""

    def __init__(self, directory: Path, settings: ChainSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._seen: str | None = None
        self._in_use: InUse | None = None
        self._replaced: Predictor | None = None
        self._told: set[tuple[str, str]] = set()
        self.predictor: Predictor | None = None

    def refresh(self) -> None:
        """Load the current version if it is not the one already seen; a bad one is logged once and not used."""
        version = registry.current_version(self._directory)
        if version is None or version == self._seen:
            return
        self._seen = version
        # A history of millions of jobs is no garbage, neither while it grows nor in use: to look through it would stop
        # all answers.
        gc.disable()
        try:
            in_use = self._load(version)
        except ModelError as error:
            kept = self.predictor.model if self.predictor else "none"
            log.error("model %s is refused, %s stays in use: %s", version, kept, error)  # noqa: TRY400
            return
        finally:
            gc.enable()
        gc.freeze()
        self._replaced, self._in_use, self.predictor = self.predictor, in_use, in_use.predictor
        log.info("model %s in use", version)

    def _load(self, version: str) -> InUse:
        in_use = InUse(
            load_predictor(self._directory / version, self._settings),
            FeedReader(self._directory),
        )
        self._catch_up(in_use)
        return in_use

    def catch_up(self) -> None:
        """Let the model in use know at once of each job that has ended: for whoever answers nobody meanwhile."""
        if self._in_use is not None:
            self._catch_up(self._in_use)

    def _catch_up(self, in_use: InUse) -> None:
        for part in read_parts(in_use.feed):
            self._tell(part.problems)
            for one in part.jobs:
                in_use.predictor.join(one.request, one.job)

    async def _let_go(self) -> None:
        """Forget what was replaced, piece by piece between answers: whoever drops the last of it stands still for none.

        On the loop's own thread, where no answer is half done.
        """
        replaced = self._replaced
        while replaced is not None and replaced is not self.predictor and replaced.discard(DISCARD_AT_ONCE):
            await asyncio.sleep(0)

    async def follow_feed(self) -> None:
        """Let the model in use know of each job that has ended, for ever: read beside the loop, joined on its thread.

        So a prediction never sees half of a job.
        """
        while True:
            await self._let_go()
            more = False
            in_use = self._in_use
            if in_use is not None:
                part = await asyncio.to_thread(in_use.feed.read_on)
                self._tell(part.problems)
                more = part.more
                for begin in range(0, len(part.jobs), JOIN_AT_ONCE):
                    for one in part.jobs[begin : begin + JOIN_AT_ONCE]:
                        in_use.predictor.join(one.request, one.job)
                    await asyncio.sleep(0)
            if not more:
                await asyncio.sleep(FEED_CHECK_S)

    def _tell(self, problems: Mapping[str, str]) -> None:
        """Say what is wrong with the feed, each thing once."""
        for name, problem in problems.items():
            if (name, problem) not in self._told:
                self._told.add((name, problem))
                log.warning("the feed of jobs that have ended: %s %s", name, problem)
