"""docs/faults.md names every fault; its rows are replaced, not doubled."""

from pathlib import Path

from tests.cluster.fault_page import with_rows
from tests.cluster.faults import FAULTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
NEWER = "26.05.5"
NAMES = ("a|b", "b", "c")


def test_the_page_has_a_row_for_every_fault() -> None:
    first = PAGE.read_text(encoding="utf-8").partition("\n## ")[2]
    for fault in FAULTS:
        assert f"\n| {fault.name} | {fault.made} |" in first, (
            f"run `make faults` with --page docs/faults.md: {fault.name}"
        )


def test_every_fault_has_its_own_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40


def test_new_rows_replace_the_old_rows_of_the_same_name() -> None:
    page = with_rows("# Title\n\ntext\n", "22.05.8", [row("a|b"), row("c"), row("gone")], NAMES)
    assert page == (
        "# Title\n\ntext\n\n## Slurm 22.05.8\n\n| fault | verdict |\n| --- | --- |\n| a\\|b | right |\n| c | right |\n"
    )
    both = with_rows(page, NEWER, [row("c")], NAMES)
    again = with_rows(both, "22.05.8", [row("c", "wrong"), row("b")], NAMES)
    older, _, newer = again.partition(f"## Slurm {NEWER}")
    assert older.endswith("| a\\|b | right |\n| b | right |\n| c | wrong |\n\n")
    assert newer == "\n\n| fault | verdict |\n| --- | --- |\n| c | right |\n"
    assert with_rows(again, NEWER, [row("c")], NAMES) == again


def row(name: str, verdict: str = "right") -> dict[str, object]:
    return {"fault": name, "verdict": verdict}
