"""What the gateway undoes after any history: advisors that die, operators, backfill and users act on one queue."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slurm_plugin.slurm import factor_log
from slurm_plugin.slurm.gateway import Gateway
from tests.slurm_plugin.slurm.gates import changes_of, gate, in_force
from tests.slurm_plugin.slurm.memory_queue import Killed, MemoryQueue

pytestmark = pytest.mark.usefixtures("quick_disk")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.dictionaries(st.integers(1, 6), st.integers(-50, 50), min_size=1),
    cycles=st.lists(
        st.dictionaries(st.integers(1, 6), st.integers(-50, 50), max_size=5), min_size=1, max_size=4
    ),
    die_at=st.integers(0, 12),
    die_in_undo_at=st.integers(0, 6),
)
def test_undo_after_a_death_at_any_write_restores_all(
    before: dict[int, int], cycles: list[dict[int, int]], die_at: int, die_in_undo_at: int
) -> None:
    queue = MemoryQueue(dict(before), die_at=die_at)
    with TemporaryDirectory() as folder:
        with suppress(Killed):
            for cycle in cycles:
                gate(queue, Path(folder)).reorder(changes_of(cycle, queue.factors))
        queue.die_at = len(queue.writes) + die_in_undo_at
        with suppress(Killed):
            gate(queue, Path(folder)).undo()
        queue.die_at = None
        gate(queue, Path(folder)).undo()
        assert queue.factors == before
        assert in_force(Path(folder)) == {}


class Queues(RuleBasedStateMachine):
    """An advisor, an operator, backfill and users act on one queue: undo restores what the operator left.

    The model knows for each job what it must have after an undo: what the operator or Slurm set last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.queue = MemoryQueue({})
        self.originals: dict[int, int] = {}
        # Factors of jobs that have ended, and what they must have after an undo once they are requeued.
        self.ended: dict[int, tuple[int, int]] = {}
        self.hung: dict[int, int] = {}
        self.next = 1

    def teardown(self) -> None:
        self.folder.cleanup()

    def gateway(self) -> Gateway:
        return gate(self.queue, Path(self.folder.name))

    @rule(factor=st.integers(-20, 20))
    def submit(self, factor: int) -> None:
        self.queue.factors[self.next] = self.originals[self.next] = factor
        self.next += 1

    @precondition(lambda self: self.queue.factors)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.queue.factors)))
        self.ended[job] = self.queue.factors.pop(job), self.originals.pop(job)
        self.queue.hidden.discard(job)

    @precondition(lambda self: self.ended)
    @rule(data=st.data(), hidden=st.booleans())
    def requeue_ended(self, data: st.DataObject, hidden: bool) -> None:
        job = data.draw(st.sampled_from(sorted(self.ended)))
        self.queue.factors[job], self.originals[job] = self.ended.pop(job)
        self.queue.submitted[job] = (2.0, 1)
        if hidden:
            self.queue.hidden.add(job)

    @precondition(lambda self: self.queue.factors)
    @rule(data=st.data())
    def start_or_requeue(self, data: st.DataObject) -> None:
        self.queue.hidden ^= {data.draw(st.sampled_from(sorted(self.queue.factors)))}

    @precondition(lambda self: self.queue.factors)
    @rule(data=st.data(), factor=st.integers(5000, 5020))
    def operator_sets(self, data: st.DataObject, factor: int) -> None:
        shown = sorted(set(self.queue.factors) - self.queue.hidden)
        if shown:
            job = data.draw(st.sampled_from(shown))
            self.queue.factors[job] = self.originals[job] = factor
            self.hung.pop(job, None)
            # A job that somebody changed and that starts before we look cannot be told from ours, so we look first.
            self.gateway().reorder([])

    @precondition(lambda self: self.queue.factors)
    @rule(data=st.data(), after=st.integers(-20, 20), die=st.booleans(), lost=st.booleans())
    def advise(self, data: st.DataObject, after: int, die: bool, lost: bool) -> None:
        jobs = data.draw(st.lists(st.sampled_from(sorted(self.queue.factors)), unique=True, max_size=4))
        shown = self.queue.site_factors()
        self.queue.die_at = len(self.queue.writes) + 1 if die else None
        self.queue.forgotten = dict.fromkeys(jobs, 1) if lost else {}
        gateway = self.gateway()
        gateway.read()
        with suppress(Killed):
            gateway.reorder(changes_of(dict.fromkeys(jobs, after), shown))
        if die:
            known = factor_log.FactorLog(Path(self.folder.name), "alpha").read().by_job
            self.hung |= {job: after for job in jobs if job in known and after in known[job].ours}
        self.queue.die_at, self.queue.forgotten = None, {}

    @precondition(lambda self: self.hung)
    @rule(data=st.data())
    def a_write_that_hung_comes_through(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.hung)))
        after = self.hung.pop(job)
        if job in self.queue.factors:
            self.queue.factors[job] = after

    @rule(die=st.booleans())
    def undo(self, die: bool) -> None:
        self.queue.die_at = len(self.queue.writes) + 1 if die else None
        with suppress(Killed):
            self.gateway().undo()
        self.queue.die_at = None
        if not die:
            assert {job: self.queue.factors[job] for job in self.originals} == self.originals

    @invariant()
    def every_factor_is_known(self) -> None:
        """Each job whose factor is not the one from before us has an entry that knows both."""
        entries = factor_log.FactorLog(Path(self.folder.name), "alpha").read().by_job
        for job, factor in self.queue.factors.items():
            if factor != self.originals[job]:
                assert factor in entries[job].ours
                assert entries[job].original == self.originals[job]


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
