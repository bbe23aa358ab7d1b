"""Each family that comes to rest is reported once, even if what was seen of it has been forgotten meanwhile."""

import msgspec
import pytest

from models.past.attempts import past_job, request_of
from models.past.history import History
from models.past.jobs import PastJob
from models.past.likeness import likeness_of
from tests.builders import attempt

KNOWN = request_of(attempt())
OTHER = msgspec.structs.replace(KNOWN, user="bob", job_name="other")


def job(**changes: object) -> PastJob:
    return msgspec.structs.replace(past_job(attempt()), **changes)


@pytest.mark.parametrize("most_looks", [4096, 1])
def test_a_family_whose_cached_past_was_forgotten_still_comes_to_rest(
    most_looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.past.history.MOST_LOOKS", most_looks)
    history, families = History(50), likeness_of(KNOWN).families
    for number in range(8):
        history.join(KNOWN, job(job_id=number + 1, end_s=100, wall_s=100))
    history.join(OTHER, job(end_s=100))
    evidence = history.evidence(KNOWN, enough=1)
    before = history.joined(families)
    assert evidence is not None
    assert not evidence.at_rest
    # So many others are looked at that what was seen of this family is forgotten; then time passes.
    for mib in (1, 2, 3):
        history.evidence(msgspec.structs.replace(OTHER, mem_per_node_mib=mib), enough=1)
    assert history.joined(families) == before
    history.join(OTHER, job(end_s=300))
    after = history.joined(families)
    assert after > before
    assert history.joined(families) == after, "it is told once"
    evidence = history.evidence(KNOWN, enough=1)
    assert evidence is not None
    assert evidence.at_rest
