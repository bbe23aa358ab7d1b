"""When owners had nodes, from lines as sacct prints them."""

from slurm_plugin.slurm.owners_past import had_nodes, spans_of, spells_of

LINES = """\
100|200|gpu[1-2]
150|300|gpu1
400|Unknown|gpu1
Unknown|Unknown|None assigned
500|600|
"""


def test_what_overlaps_is_one_and_who_runs_has_it_until_now() -> None:
    spans = spans_of(LINES, now_s=1000)
    assert spans == {"gpu1": [(100, 300), (400, 1000)], "gpu2": [(100, 200)]}
    assert spells_of(spans) == {"gpu1": [100], "gpu2": []}


def test_nobody_is_asked_of_no_partition() -> None:
    assert had_nodes([], 0, 1) == {}
