"""When owners used nodes, from lines as sacct prints them."""

from slurm_plugin.slurm.owners_past import had_nodes, spans_of, spells_of

LINES = """\
100|200|gpu[1-2]
150|300|gpu1
400|Unknown|gpu1
Unknown|Unknown|None assigned
500|600|
"""


def test_overlapping_jobs_are_one_span_and_a_running_job_lasts_until_now() -> None:
    spans = spans_of(LINES, now_s=1000)
    assert spans == {"gpu1": [(100, 300), (400, 1000)], "gpu2": [(100, 200)]}
    assert spells_of(spans) == {"gpu1": [100], "gpu2": []}


def test_sacct_is_not_asked_without_partitions() -> None:
    assert had_nodes([], 0, 1) == {}
