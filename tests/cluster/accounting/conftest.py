"""Every installed release with all jobs played on it, once for all tests that check what accounting made of them."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.accounting.played import Played, play
from tests.cluster.matrix.prefixes import releases, why_missing

RELEASES = releases()


@pytest.fixture(scope="session")
def plays(make_folder: Callable[[], Path]) -> Iterator[Mapping[str, Future[Played]]]:
    """Run all releases that can run here, side by side: their jobs wait most of the time."""
    here = {name: prefix for name, prefix in RELEASES.items() if not why_missing(prefix)}
    with ExitStack() as undo, ThreadPoolExecutor(len(here) or 1) as pool:
        yield {
            name: pool.submit(undo.enter_context, play(make_folder(), prefix))
            for name, prefix in here.items()
        }


@pytest.fixture(scope="session", params=RELEASES)
def played(request: pytest.FixtureRequest, plays: Mapping[str, Future[Played]]) -> Played:
    """Return a release with all jobs played and ingested."""
    reason = why_missing(RELEASES[request.param])
    if reason:
        pytest.skip(reason)
    return plays[request.param].result()
