"""What is said of a pairing."""

from __future__ import annotations

from models.gpus.interference import Interference, Pair
from models.gpus.pairing import Choice, Job
from models.gpus.pairing_words import in_words

KNOWN = Interference(
    ("a", "b", "c"),
    [
        Pair(kind="a", beside="b", speed=0.8, seconds=1e9),
        Pair(kind="b", beside="a", speed=0.7, seconds=1e9),
    ],
)
ONE, OTHER, NEW = Job(job_id=7, kind="a"), Job(job_id=2, kind="b"), Job(job_id=9, kind="c")


def test_who_shares_with_whom_is_told_with_speeds_and_what_they_rest_on() -> None:
    said = in_words(Choice(job=ONE, gpu=3, beside=OTHER), KNOWN)
    assert said.startswith("job 7 (a) shares GPU 3 with job 2 (b): it is expected at 0.80 (0.80 to 0.80)")
    assert "the other at 0.70 (0.70 to 0.70); together they do 1.50 of what one GPU does alone" in said
    assert said.endswith("as seen side by side for 277777.8 h")
    new = in_words(Choice(job=NEW, gpu=1, beside=OTHER, left=4), KNOWN)
    assert "(c) shares GPU 1 with job 2 (b), away from GPU 4: " in new
    assert new.endswith("predicted from how each of the two gets on with others")


def test_who_waits_or_is_alone_is_told_so() -> None:
    assert in_words(Choice(job=ONE, gpu=0), KNOWN) == "job 7 (a) has GPU 0 to itself"
    assert in_words(Choice(job=ONE, gpu=None), KNOWN).startswith("job 7 (a) waits: no GPU is free")
    assert in_words(Choice(job=ONE, gpu=None, left=2), KNOWN).startswith("job 7 (a) waits, away from GPU 2: ")
