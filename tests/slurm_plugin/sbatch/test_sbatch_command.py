"""A command line is parsed like sbatch parses it, so that `rightsizer predict` accepts exactly the same words."""

from __future__ import annotations

import io
import json
import shlex
import sys

import pytest

from accounting.errors import RightsizerError
from slurm_plugin.cli.models.predict import read_command
from slurm_plugin.sbatch.command import Command, take_apart
from tests.conftest import Site, TrainedModel
from tests.slurm_plugin.conftest import Run

SCRIPT = "#!/bin/sh\n#SBATCH --mem=8000\nsrun ./fit\n"


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("job.sh", Command((), "job.sh")),
        ("-c 8 job.sh", Command(("-c", "8"), "job.sh")),
        ("-c8 --mem=4G job.sh", Command(("-c8", "--mem=4G"), "job.sh")),
        ("-J job.sh job.sh", Command(("-J", "job.sh"), "job.sh")),
        ("-c 8 job.sh --mem=1 in.txt", Command(("-c", "8"), "job.sh")),
        ("job.sh -c 8 --mem=1", Command(("-c", "8", "--mem=1"), "job.sh")),
        ("--exclusive job.sh", Command(("--exclusive",), "job.sh")),
        ("--exclusive=user -k --nice job.sh", Command(("--exclusive=user", "-k", "--nice"), "job.sh")),
        ("--unheard-of=4 -C gpu job.sh", Command(("--unheard-of=4", "-C", "gpu"), "job.sh")),
        ("--wrap 'sleep 1' -c 4", Command(("-c", "4"), wrap="sleep 1")),
        ("-c 4 --wrap='sleep 1'", Command(("-c", "4"), wrap="sleep 1")),
        ("-c 4 --wra 'sleep 1'", Command(("-c", "4"), wrap="sleep 1")),
        ("--nic job.sh --cpus=4", Command(("--nice",), "job.sh")),
        ("--parsable -c 4", Command(("--parsable", "-c", "4"))),
        ("", Command(())),
    ],
)
def test_the_words_are_read_as_sbatch_reads_them(line: str, command: Command) -> None:
    assert take_apart(shlex.split(line)) == command


@pytest.mark.parametrize(
    ("line", "said"), [("-c", "expected one argument"), ("--wrap true job.sh", "accepts only one of them")]
)
def test_a_command_that_sbatch_refuses_is_refused(line: str, said: str) -> None:
    with pytest.raises(RightsizerError, match=said):
        take_apart(line.split())


def test_an_option_without_its_optional_value_takes_no_word_after_it() -> None:
    made = read_command(("--wrap", "true", "--exclusive", "-c", "2"), "alice")
    assert (made.name, made.cpus_per_task, made.other) == ("wrap", 2, ("exclusive",))
    # Slurm's own text: with another one it would be another script for the hook.
    assert made.script == "#!/bin/sh\n# This script was created by sbatch --wrap.\n\ntrue\n"


@pytest.fixture
def modelled(site: Site, trained_model: TrainedModel) -> Site:
    """Return a site with a model in use."""
    site.configure(mode="enforce", models={"directory": str(trained_model.directory)})
    return site


def test_every_way_of_giving_a_script_has_the_same_answer(
    run: Run, modelled: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = modelled.folder / "fit"
    script.write_text(SCRIPT)
    words = ("--user", "alice", "--format", "json", "-c", "8")
    before, behind = run("predict", *words, str(script)), run("predict", str(script), *words)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SCRIPT.encode())))
    by_input = run("predict", *words, "-J", "fit")
    assert before.code == behind.code == by_input.code == 0, before.err + behind.err + by_input.err
    assert json.loads(before.out) == json.loads(behind.out) == json.loads(by_input.out)
    assert {row["requested"] for row in json.loads(before.out)} >= {8, 8000}


def test_mistyped_options_are_told(run: Run, modelled: Site) -> None:
    """sbatch would refuse the job; a plugin's option is none of ours, and the hook does not see it."""
    script = modelled.folder / "fit"
    script.write_text(SCRIPT.replace("srun", "#SBATCH --parition=main\nsrun"))
    told = run("predict", "--user", "alice", "--memm=5", "-c", "8", "--container-image=x", str(script))
    assert "--memm is no option of sbatch itself, and is ignored; did you mean `--mem`?" in told.err
    assert "--parition is no option of sbatch itself, and is ignored; did you mean `--partition`?" in told.err
    assert "--container-image is no option of sbatch itself, and is ignored\n" in told.err
    plain = run("predict", "--user", "alice", "-c", "8", str(script))
    assert (told.code, told.out) == (0, plain.out)


def test_a_command_without_a_script_is_a_usage_error(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    ran = run("predict", "-c", "8", "--config", str(site.config_file))
    assert (ran.code, ran.out) == (2, "")
    assert "give a script, or pipe one to standard input" in ran.err


def test_a_kill_switch_that_is_set_is_mentioned(run: Run, modelled: Site) -> None:
    script = modelled.folder / "fit"
    script.write_text("#!/bin/sh\nsrun ./fit --all\n")
    words = ("predict", "--user", "alice", "-c", "8", "--mem=8000", str(script))
    assert "queue the job as granted" in run(*words).err
    assert run("disable").code == 0
    said = run(*words).err
    assert "so the hook does not ask the service: sbatch would queue the job as requested" in said
    assert "as granted" not in said
    assert run("enable").code == 0
    assert "queue the job as granted" in run(*words).err
