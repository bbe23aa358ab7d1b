"""From where accounting is read: each cluster by its own mark, whatever else fills the store."""

import pytest

from accounting.errors import SlurmError
from accounting.ingest.window_marks import read_before_s

FIRST_S = 100


@pytest.mark.parametrize(
    ("marks", "cluster", "expected"),
    [
        ({}, "alpha", None),
        ({}, "", None),
        ({"alpha": 500}, "alpha", 500),
        ({"alpha": 500}, "beta", None),
        ({"alpha": 500, "": 900}, "alpha", 500),
        # beta cannot know how much of that is behind the mark without a cluster, nor skip what it left unread for long.
        ({"alpha": 500, "": 900}, "beta", FIRST_S),
        ({"": 50}, "beta", 50),
        ({"": 500}, "", 500),
        ({"alpha": 500, "": 400}, "", 500),
    ],
)
def test_a_cluster_is_read_from_its_own_mark(
    marks: dict[str, int], cluster: str, expected: int | None
) -> None:
    assert read_before_s(marks, cluster, FIRST_S) == expected


def test_the_cluster_must_be_known_where_several_are_read() -> None:
    with pytest.raises(SlurmError, match=r"\(alpha, beta\).* set accounting\.cluster"):
        read_before_s({"alpha": 1, "beta": 2}, "", FIRST_S)
