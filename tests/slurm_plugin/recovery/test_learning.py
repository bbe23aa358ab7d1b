"""A family that failed because of us: not cut that far again, but not spared for ever. The service decides."""

import msgspec

from models.judging.online import OnlineJob
from slurm_plugin.cli.models.sizing import online_grant
from slurm_plugin.config.settings import Config
from tests.models.judging.test_online import ASKED_MIB, job, learner

NEEDS_MIB, ONCE_MIB = 100.0, 3000.0


class Family:
    """Jobs of one family, one after the other; a job killed for memory comes back with its original request."""

    def __init__(self) -> None:
        self.learner = learner()
        self.grant = online_grant(Config())
        self.number = 0
        self.failures = 0

    def run(self, need_mib: float) -> int:
        """Run a job that needs this much; return what it was given at first."""
        request = self._past(need_mib).request
        given = self.grant(self.learner.predictor, request)[0].mem_per_node_mib or ASKED_MIB
        if given < need_mib:
            self.failures += 1
            self._end(given, killed=True)
        self._end(need_mib)
        self.learner.refit()
        return given

    def _past(self, mem_mib: float) -> OnlineJob:
        return job(self.number, 10.0 * self.number, 10.0 * self.number + 5, mem_mib=mem_mib)

    def _end(self, mem_mib: float, *, killed: bool = False) -> None:
        self.number += 1
        ended = self._past(mem_mib)
        past = msgspec.structs.replace(ended.past, mem_at_least=killed, complete=not killed)
        ended = msgspec.structs.replace(ended, past=past)
        self.learner.decided(ended)
        self.learner.ended(ended)


def test_what_failed_is_not_granted_again_until_enough_jobs_have_succeeded() -> None:
    family = Family()
    before = [family.run(NEEDS_MIB) for _ in range(40)][-1]
    assert before < 2 * NEEDS_MIB
    assert family.run(ONCE_MIB) < ONCE_MIB
    after = [family.run(NEEDS_MIB) for _ in range(60)]
    # Less would have sufficed for the next jobs; once the failure is far enough behind, they are cut as before.
    assert all(given >= ONCE_MIB for given in after[:30])
    assert after[-1] <= 1.1 * before
    assert family.failures == 1


def test_a_family_with_a_growing_need_fails_rarely_and_never_gets_more_than_it_asked_for() -> None:
    family = Family()
    given = [family.run(NEEDS_MIB) for _ in range(20)]
    given += [family.run(NEEDS_MIB * 1.05**step) for step in range(60)]
    assert family.failures <= 4
    assert max(given) <= ASKED_MIB
