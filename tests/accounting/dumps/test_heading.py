"""What a dump's heading lacks, and what that costs."""

import re

import pytest

from accounting.dumps.heading import SACCT_COMMAND, Heading, missing, read_heading


def heading_without(*lacking: str, delimiter: str = "\x1f") -> Heading:
    """Return the heading of the advised command's dump without some columns."""
    asked = re.search(r"--format=(\S+)", SACCT_COMMAND)
    assert asked is not None
    return read_heading(delimiter.join(name for name in asked[1].split(",") if name not in lacking))


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("", []),
        ("JobIDRaw,JobID", ["JobIDRaw: jobs are numbered"]),
        ("JobIDRaw", ["JobIDRaw: tasks of arrays"]),
        ("Cluster", ["Cluster"]),
        ("User", ["User"]),
        ("JobName", ["JobName"]),
        ("Partition", ["Partition"]),
        ("Submit", ["Submit"]),
        ("Start", ["Start, End"]),
        ("TimelimitRaw", ["TimelimitRaw"]),
        ("ReqTRES", []),
        ("ReqTRES,ReqCPUS", ["ReqTRES"]),
        ("AllocTRES", ["AllocTRES"]),
        ("MaxRSS", []),
        ("MaxRSS,TRESUsageInTot", ["MaxRSS", "TRESUsageInTot"]),
        ("TRESUsageOutTot", ["TRESUsageInTot"]),
        ("TotalCPU", ["TotalCPU"]),
    ],
)
def test_each_column_that_the_advised_command_gives_is_missed_where_it_lacks(
    lacking: str, said: list[str]
) -> None:
    told = missing(heading_without(*lacking.split(",")))
    assert len(told) == len(said)
    assert all(one.startswith(f"lacks {start}") for one, start in zip(told, said, strict=True))


def test_a_given_cluster_is_used_for_jobs_that_name_none() -> None:
    (lack,) = missing(heading_without("Cluster"))
    assert "give `--cluster NAME`, the same for every dump of the cluster, or jobs are counted twice" in lack
    assert missing(heading_without("Cluster"), "blue") == ()
    (said,) = missing(heading_without(), "blue")
    assert said.startswith("names the clusters of its jobs itself; `--cluster blue`")


def test_texts_of_users_may_forge_columns_unless_the_delimiter_is_in_none() -> None:
    texts = ("JobName", "Comment", "AdminComment")
    (said,) = missing(heading_without(delimiter="|"))
    assert said.startswith("separates its columns by '|'; texts that users choose may contain that")
    assert [one[:13] for one in missing(heading_without(*texts, delimiter="|"))] == ["lacks JobName"]
