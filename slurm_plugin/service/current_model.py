"""The model in use. It follows the registry's `current` link, and keeps the last good model if a new one is bad.

Between trainings it follows the feed of jobs that have ended (versions/feed.py). A new model learns what the feed
holds before it is used. A refused model is tried again as soon as its files have changed. One that could not be read
because of a fault of the machine, such as too many open files, is tried again and again. Each pause before the next
attempt is longer than the last.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from accounting.errors import ModelError, UnreadModelError
from models.demand.prediction import ChainSettings, Predictor
from models.versions import registry
from models.versions.feed import FeedReader, read_parts
from models.versions.holding import Hold
from slurm_plugin.log_lines import SaidOnce

log = logging.getLogger(__name__)

FEED_CHECK_S = 0.5
# This many jobs are added at a time on the thread that answers: less than a millisecond.
JOIN_AT_ONCE = 16
# This many families of a replaced model are discarded at a time.
DISCARD_AT_ONCE = 16
# Nothing is tried for this long after a refusal, then twice as long each time, up to the maximum.
LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 300.0

Files = tuple[tuple[str, int, int, int], ...]


class InUse(msgspec.Struct, frozen=True):
    """A predictor, its position in the feed, and the hold that keeps its files: the three are swapped together."""

    predictor: Predictor
    feed: FeedReader
    hold: Hold


class Refusal(msgspec.Struct, frozen=True):
    """A version that is not used, and when to look at it again.

    `files` are its files at that time, None if they were not the reason. `next_s` is on the monotonic clock,
    `pause_s` is the length of the wait until then.
    """

    version: str
    files: Files | None
    pause_s: float
    next_s: float


class CurrentModel:
    """Holds a predictor, or None before the first model; `refresh` swaps it as a whole."""

    def __init__(
        self, directory: Path, settings: ChainSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._seen: str | None = None
        self._refusal: Refusal | None = None
        self._refusals = SaidOnce()
        self._in_use: InUse | None = None
        self._replaced: Predictor | None = None
        self._told: set[tuple[str, str]] = set()
        self.predictor: Predictor | None = None

    def retune(self, settings: ChainSettings) -> None:
        """Predict with other settings, as soon as the model has been reloaded with them."""
        if settings != self._settings:
            self._settings = settings
            self._seen = self._refusal = None

    def refresh(self) -> None:
        """Load the current version if it is not the one in use; a bad one is logged once and not used."""
        version = registry.current_version(self._directory)
        if version == self._seen:
            # Promoting a refused version once more is reported once more.
            self._refusal = None
            self._refusals.over()
        if version is None or version == self._seen or not self._is_worth_trying(version):
            return
        # Taken before the version is read: whatever changes meanwhile counts as a change.
        files = files_of(self._directory / version)
        # A history of millions of jobs is not garbage, neither while it grows nor in use, and a collector that looked
        # through it would stop all answers. Present garbage must be collected first: once frozen, it would stay for
        # ever.
        gc.collect()
        gc.disable()
        try:
            in_use = self._load(version)
        except ModelError as error:
            self._refuse(version, None if isinstance(error, UnreadModelError) else files, error)
            return
        finally:
            gc.enable()
        gc.freeze()
        self._seen, self._refusal = version, None
        self._refusals.over()
        if self._in_use is not None:
            self._in_use.hold.close()
        self._replaced, self._in_use, self.predictor = self.predictor, in_use, in_use.predictor
        log.info("model %s in use", version)

    def _is_worth_trying(self, version: str) -> bool:
        """Whether a version has not been refused yet, or the obstacle may be gone."""
        refusal = self._refusal
        if refusal is None or refusal.version != version:
            return True
        if self._clock() < refusal.next_s:
            return False
        if refusal.files is None or refusal.files != files_of(self._directory / version):
            return True
        self._refusal = self._later(refusal)
        return False

    def _refuse(self, version: str, files: Files | None, error: ModelError) -> None:
        """Remember when to try a version again, and log why it is not used, but not twice in a row."""
        was = self._refusal
        again = was is not None and was.version == version
        pause_s = was.pause_s if was is not None and again else LEAST_PAUSE_S / 2
        self._refusal = self._later(Refusal(version, files, pause_s, 0.0))
        if self._refusals.is_new(f"{version} {error}"):
            kept = self.predictor.model if self.predictor else "none"
            log.error("model %s is refused, %s stays in use: %s", version, kept, error)

    def _later(self, refusal: Refusal) -> Refusal:
        pause_s = min(2 * refusal.pause_s, MOST_PAUSE_S)
        return Refusal(refusal.version, refusal.files, pause_s, self._clock() + pause_s)

    def _load(self, version: str) -> InUse:
        hold = registry.hold_version(self._directory, version)
        try:
            predictor = registry.load_version(self._directory, version, self._settings)
        except ModelError:
            hold.close()
            raise
        in_use = InUse(predictor, FeedReader(self._directory), hold)
        self._catch_up(in_use)
        return in_use

    def catch_up(self) -> None:
        """Add each job that has ended to the model in use, all at once: for callers that answer nobody meanwhile."""
        self._replaced = None
        if self._in_use is not None:
            self._catch_up(self._in_use)

    def _catch_up(self, in_use: InUse) -> None:
        for part in read_parts(in_use.feed):
            self._tell(part.problems)
            for one in part.jobs:
                in_use.predictor.join(one.request, one.job, corrects=one.corrects)

    async def _let_go(self) -> None:
        """Discard the replaced model piece by piece between answers: dropping it all at once would hold up answers.

        This runs on the loop's own thread, where no answer is half done.
        """
        replaced = self._replaced
        while replaced is not None and replaced is not self.predictor and replaced.discard(DISCARD_AT_ONCE):
            await asyncio.sleep(0)

    async def follow_feed(self) -> None:
        """Add each job that has ended to the model in use; never returns.

        The feed is read in a thread, but jobs are added on the loop's thread, so that no prediction sees half of a
        job.
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
                        in_use.predictor.join(one.request, one.job, corrects=one.corrects)
                    await asyncio.sleep(0)
            if not more:
                await asyncio.sleep(FEED_CHECK_S)

    def _tell(self, problems: Mapping[str, str]) -> None:
        """Log what is wrong with the feed, each problem once."""
        for name, problem in problems.items():
            if (name, problem) not in self._told:
                self._told.add((name, problem))
                log.warning("the feed of jobs that have ended: %s %s", name, problem)


def files_of(folder: Path) -> Files:
    """Return what shows whether a version's files have changed; () if they cannot be looked at."""
    try:
        return tuple(sorted(_look_at(folder)))
    except OSError:
        return ()


def _look_at(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    for file in folder.iterdir():
        found = file.stat()
        yield file.name, found.st_ino, found.st_size, found.st_mtime_ns
