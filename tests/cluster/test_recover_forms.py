"""Jobs cut in each form of CPU and memory request, on a real Slurm: killed once, they get the original request."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.conftest import CPUS_STAY, PATIENCE_S
from tests.cluster.matrix.form import Form
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.cluster.matrix.release import Cell, Trial, sandbox_run, trained_cluster
from tests.cluster.matrix.table import CPUS, MEMORY, PLACE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# Ends like a shell whose child was killed; the twin, with the same request but not cut, runs to its end.
KILLED_ONCE = """case $SLURM_JOB_NAME in *.twin) ;; *) test "${SLURM_RESTART_COUNT:-0}" -gt 0 || exit 137;; esac
srun hostname
"""
# Array tasks come back one by one, and components of het jobs not at all. What a form that runs alone is allocated
# depends on what else runs: on 22.05 a twin of 16 CPUs was once given 14.
FORMS = tuple(
    replace(form, script=KILLED_ONCE)
    for form in (*CPUS, *MEMORY, *PLACE)
    if "mem" in form.cut and form.command == "sbatch" and form.jobs == 1 and not form.alone
)


@pytest.fixture(scope="module")
def cells(make_folder: Callable[[], Path]) -> Iterator[Mapping[str, Cell]]:
    """Yield each form once it has failed, was requeued, and has ended."""
    folder = make_folder()
    with trained_cluster(folder / "site", chosen_prefix(), FORMS) as sandbox:
        trial = Trial(sandbox, FORMS, folder)
        trial.submit()

        def failed() -> int:
            return len(sandbox_run(sandbox, "squeue", "--noheader", "--states=FAILED").splitlines())

        until_s = time.monotonic() + PATIENCE_S
        while failed() < len(FORMS) and time.monotonic() < until_s:
            time.sleep(0.5)
        # Some may still be ending in the first round.
        until_s = time.monotonic() + PATIENCE_S
        while failed() and time.monotonic() < until_s:
            sandbox_run(sandbox, "rightsizer", "recover", "--apply")
        yield {cell.form.name: cell for cell in trial.collect()}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_whole_original_request_is_allocated_again(
    cells: Mapping[str, Cell], form: Form, cpus_stay: bool
) -> None:
    ours, twin = cells[form.name].ours, cells[form.name].twin
    assert "PENDING" not in ours.states, "it was queued again, and stays held"
    if cpus_stay and "cpu" in form.cut:
        pytest.skip(CPUS_STAY)
    assert twin.completed, twin.said + twin.output
    assert ours.completed, ours.said + ours.output
    assert ours.allocations == twin.allocations
