"""Work left after an answer is done soon but not at once, in order, and whatever happens to the other pieces."""

import asyncio
from functools import partial

import pytest

from slurm_plugin.service.afterwards import PAUSE_S, Afterwards


def test_work_is_done_after_a_moment_in_its_order(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def fail() -> None:
        raise ValueError

    async def answer() -> None:
        afterwards = Afterwards()
        for number in range(3):
            afterwards.add(partial(done.append, number))
            afterwards.add(fail)
        await asyncio.sleep(0)
        assert done == []
        await asyncio.sleep(PAUSE_S * 50)
        assert done == [0, 1, 2]
        afterwards.add(partial(done.append, 3))
        afterwards.do_all()
        await asyncio.sleep(0)
        assert done == [0, 1, 2, 3], "where the service stops"
        await asyncio.sleep(PAUSE_S * 50)

    asyncio.run(answer())
    assert done == [0, 1, 2, 3], "each once"
    assert caplog.text.count("Exception in callback") == 3
