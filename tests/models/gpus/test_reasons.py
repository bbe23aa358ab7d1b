"""The reasons given for each choice: with which job, how fast, how sure, and the alternatives."""

from models.gpus.interference import Interference, Pair
from models.gpus.pairing import Job, pair
from models.gpus.reasons import reasons

KNOWN = [
    Pair(kind="a", beside="b", speed=0.9, seconds=36_000_000),
    Pair(kind="b", beside="a", speed=0.6, seconds=36_000_000),
    Pair(kind="a", beside="a", speed=0.4, seconds=36_000_000),
    Pair(kind="b", beside="b", speed=0.6, seconds=36_000_000),
    *(Pair(kind="big", beside=other, speed=0) for other in ("a", "b", "big")),
]


def known() -> Interference:
    return Interference(["a", "b", "big"], KNOWN)


def job(number: int, kind: str, waited_s: float = 0.0, ran_s: float = 0.0) -> Job:
    return Job(job_id=number, kind=kind, waited_s=waited_s, ran_s=ran_s)


def test_reasons_name_jobs_alone_jobs_that_share_and_the_next_best_host() -> None:
    gpus = [[job(1, "b")], [job(2, "a")], []]
    told = reasons(pair(gpus, [job(3, "big", 9), job(4, "b", 8)], known()), known())
    assert told[0] == "job 3 (big) has GPU 2, which was free, to itself"
    assert told[1] == (
        "job 4 (b) shares GPU 1 with job 2 (a): it runs at 0.60 (0.60–0.60, measured for 10000.0 h) of its speed "
        "alone, the other at 0.90 (0.90–0.90, measured for 10000.0 h); together they do 1.50 of what one does alone. "
        "Alone it would wait; among other kinds of jobs the best partner is job 1 (b): 1.20."
    )


def test_reasons_say_why_a_job_waits() -> None:
    found = pair([[job(1, "a")]], [job(2, "a", 3), job(3, "big", 2)], known())
    assert reasons(found, known()) == [
        "job 2 (a) waits: with job 1 (a), its best partner, the two would do 0.80 of what one does alone",
        "job 3 (big) waits: no GPU is free, and it cannot share with any job that is alone on one",
    ]
    passed = pair([[job(1, "a")]], [job(2, "b", 3), job(3, "b", 2)], known())
    assert reasons(passed, known())[1] == (
        "job 3 (b) waits: with job 1 (a), its best partner, the two would do 1.50 of what one does alone, "
        "but a job that gains more, or waits longer, goes first"
    )


def test_gpus_are_called_by_their_names() -> None:
    gpus, names = [[], [job(1, "a", ran_s=5)]], ["node1:0", "node1:1"]
    told = reasons(pair(gpus, [job(2, "a", 9), job(3, "b", 8)], known()), known(), names=names)
    assert told[0] == "job 2 (a) has node1:0, which was free, to itself"
    assert "job 3 (b) shares node1:1 with" in told[1]
    assert told[1].endswith("there is no other kind of job that it could share with.")


def test_reasons_name_moves_partings_and_gpus_that_are_kept() -> None:
    gpus = [[job(1, "b", ran_s=90), job(2, "b", ran_s=50)], [job(3, "a", ran_s=10)]]
    moved = pair(gpus, [], known(), moving=True)
    assert "It moves there from GPU 0." in reasons(moved, known())[0]
    parted = pair([[job(1, "a", ran_s=90), job(2, "a", ran_s=50)]], [], known(), moving=True)
    assert reasons(parted, known())[0].startswith(
        "job 2 (a) leaves GPU 0 and waits: with job 1 (a), its best partner"
    )
    spread = pair([[job(1, "b", ran_s=90), job(2, "b", ran_s=50)], []], [], known(), moving=True)
    assert reasons(spread, known()) == [
        "job 2 (b) has GPU 1, which was free, to itself; it moves there from GPU 0"
    ]
    kept = pair([[job(1, "a")]], [job(2, "big", waited_s=90_000)], known())
    assert reasons(kept, known())[-1] == (
        "GPU 0 takes no second job: job 2 (big) has waited 25.0 h and can share with none of the running jobs"
    )


def test_reasons_say_which_job_gives_way_to_which_and_why() -> None:
    gpus = [
        [job(1, "a", ran_s=36_000), job(2, "big", ran_s=36_000)],
        [job(3, "big", ran_s=20_000)],
        [job(4, "b", ran_s=18_000)],
    ]
    waiting = [job(5, "big", 90_000, ran_s=3600), job(6, "big", 5), job(7, "a", 4)]
    told = reasons(pair(gpus, waiting, known(), moving=True), known())
    assert told[:3] == [
        "job 5 (big) has GPU 0: it has waited 25.0 h, and job 1 (a), which has run 10.0 h, makes room",
        "job 6 (big) has GPU 1: it has run 0.0 h so far, and job 3 (big), which has run 5.6 h, makes room",
        "job 7 (a) has GPU 2: it has run 0.0 h so far, and job 4 (b), which has run 5.0 h, makes room",
    ]
    assert "job 2 (big) leaves GPU 0 to job 5 (big) and waits: no GPU is free" in " ".join(told)
    assert told[-1].startswith("job 4 (b) shares GPU 2 with job 7 (a)")
    assert "It was there before, and gave up GPU 2." in told[-1]


def test_a_pair_that_was_never_seen_is_called_predicted() -> None:
    model = Interference(
        ["a", "b"], [Pair(kind="a", beside="a", speed=0.9), Pair(kind="b", beside="b", speed=0.9)]
    )
    (told,) = reasons(pair([[job(1, "a")]], [job(2, "b")], model), model)
    assert told.count("predicted") == 2
