"""The demo without a Slurm: recorded accounting, real training, the real service, the real Lua hook."""

import pytest
from click.testing import CliRunner

from slurm_plugin.cli import rightsizer
from slurm_plugin.demo.recorded import tell_recorded
from slurm_plugin.demo.workload import FAMILIES, JOBS
from slurm_plugin.sbatch_script import read_submission


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, object]]:
    return {str(row["family"]): row for row in tell_recorded(lambda _line: None)}


def test_each_family_has_a_script_that_can_be_read() -> None:
    for family in FAMILIES:
        script = (JOBS / f"{family}.sbatch").read_text(encoding="utf-8")
        assert read_submission(script, f"{family}.sbatch", "root").name == family


def test_every_family_goes_through_the_real_hook(rows: dict[str, dict[str, object]]) -> None:
    assert tuple(rows) == FAMILIES
    assert rows["align"]["CPUs/task"] == "8 → 1"
    assert str(rows["align"]["memory"]).startswith("15.6 GiB → 352 MiB")
    assert str(rows["train-net"]["gres"]).endswith("gpu:1")
    assert str(rows["assemble"]["memory"]).endswith("MiB /CPU")


def test_two_tasks_keep_a_cpu_each(rows: dict[str, dict[str, object]]) -> None:
    assert (rows["ensemble"]["tasks"], rows["ensemble"]["CPUs/task"]) == (2, "8 → 1")


def test_the_command_says_plainly_that_it_is_a_recording() -> None:
    result = CliRunner().invoke(rightsizer, ["demo", "--recorded"])
    assert result.exit_code == 0
    assert "no private Slurm here: asked for with --recorded" in result.stderr
    assert "no job was started" in result.stdout
    assert "What to do next" in result.stdout
