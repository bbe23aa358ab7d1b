"""The command line: helpful, honest about failure, and with only data on stdout."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from slurm_plugin.brakes.pulled import pulled_file
from slurm_plugin.cli import COMMANDS, rightsizer
from tests.builders import DAY_S, FakeSacct, executable, job_line, past, step_line
from tests.conftest import Site, TrainedModel
from tests.slurm_plugin.conftest import Run, assert_one_line
from tests.stores import store_attempts


def all_commands(group: click.Group, names: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    context = click.Context(group)
    found: list[tuple[str, ...]] = [names]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found += (
            all_commands(command, (*names, name)) if isinstance(command, click.Group) else [(*names, name)]
        )
    return found


@pytest.mark.parametrize("names", all_commands(rightsizer), ids=" ".join)
def test_the_help_of_every_command_ends_with_an_example(names: tuple[str, ...], run: Run) -> None:
    shown = run(*names, "--help")
    assert shown.code == 0
    # What follows it begins at the margin: the options, or the commands of a group.
    assert re.search(r"Example:\n( +.*\n)* +.*\brightsizer .*\n( +.*\n)*\n\S", shown.out)
    assert shown.err == ""


@pytest.mark.parametrize("names", all_commands(rightsizer), ids=" ".join)
def test_every_command_and_option_says_what_it_is_for(names: tuple[str, ...]) -> None:
    command: click.Command = rightsizer
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    assert (command.help or "").split("\n\n")[0].endswith(".")
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [option.opts[0] for option in options if not option.help] == []


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "--train-share", "nan"),
        ("evaluate", "--train-share", "0.96"),
        ("forecast", "--level", "NaN"),
        ("collect", "--every", "-nan"),
        ("share", "--gpu-mem-mib", "nan", "pairs.csv"),
        ("share", "--trying", "nan", "pairs.csv"),
        ("report", "gpu-parts", "--gpu-mem-gib", "nan"),
        ("report", "gpu-parts", "--slower", "nan", "--gpu-mem-gib", "80"),
    ],
    ids=" ".join,
)
def test_a_value_outside_its_range_is_a_usage_error(words: tuple[str, ...], run: Run) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    option = next(word for word in words if word.startswith("--"))
    assert f"Invalid value for '{option}'" in ran.err


def test_every_command_is_listed_with_a_one_line_description(run: Run) -> None:
    shown = run("--help").out
    for name, lazy in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(lazy.words)}$", shown, re.MULTILINE), name


EVERYDAY = [
    ["train"],
    ["evaluate"],
    ["models"],
    ["rollback"],
    ["predict", "x.sh"],
    ["ingest"],
    ["forecast"],
    ["replay"],
    ["report", "waste"],
    ["report", "quality"],
    ["export", "--to", "x.csv"],
    ["serve"],
    ["disable"],
    ["recover"],
    ["audit"],
    ["report", "recoveries"],
]


@pytest.mark.parametrize("arguments", EVERYDAY, ids=" ".join)
def test_a_bad_configuration_is_reported_in_one_line_with_exit_code_2(
    arguments: list[str], run: Run, site: Site
) -> None:
    site.config_file.write_text("[policy]\nmemory_margn = 1\n")
    assert_one_line(run(*arguments), 2, r"did you mean `policy\.memory_margin`")
    site.config_file.unlink()
    assert_one_line(run(*arguments), 2, "cannot read the configuration")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["train", "--nonsense"],
        ["explain", "x"],
        ["predict"],
        ["recover", "--watch", "--job", "7"],
        ["doctor", "--metrics", "/run/rightsizer"],
        ["disable", "--partition", ""],
        ["disable", "--partition", "gpu,cpu"],
        ["disable", "--partition", "gpu*"],
        ["enable", "--partition", ""],
    ],
)
def test_a_usage_error_has_exit_code_2(arguments: list[str], run: Run, site: Site) -> None:
    ran = run(*arguments, *(["--config", str(site.config_file)] if arguments == ["train"] else []))
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: rightsizer" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train"], "the store .* does not exist; run `rightsizer ingest` first"),
        (["evaluate"], "the store .* does not exist; run `rightsizer ingest` first"),
        (["explain", "1"], "the store .* does not exist; run `rightsizer ingest` first"),
        (["audit"], "the store .* does not exist; run `rightsizer ingest` first"),
        (["replay"], "the store .* does not exist; run `rightsizer ingest` first"),
        (["report", "users"], "the store .* does not exist; run `rightsizer ingest` first"),
        (["export", "--to", "x.csv"], "the store .* does not exist; run `rightsizer ingest` first"),
        (["ingest"], r"cannot run .*no-sacct.*accounting\.sacct"),
        (["predict", "none.sh"], "cannot read the script none.sh: No such file"),
        (["promote", "v9"], "there is no model v9"),
        (["rollback"], "nothing was changed"),
    ],
    ids=str,
)
def test_an_empty_site_is_told_what_to_do_first(
    arguments: list[str], said: str, run: Run, site: Site
) -> None:
    assert_one_line(run(*arguments), 1, said)
    assert not (site.folder / "models").exists()


def test_a_broken_sacct_leaves_the_store_as_it_was(run: Run, site: Site) -> None:
    broken = executable(site.folder / "sacct", "#!/bin/sh\necho 'sacct: error: no slurmdbd' >&2\nexit 1\n")
    site.configure(accounting={"sacct": str(broken)})
    assert_one_line(run("ingest"), 1, "no slurmdbd")
    assert_one_line(run("train"), 1, "cannot learn from 0 attempts")


def test_a_script_that_cannot_be_predicted_is_reported_in_one_line(run: Run, site: Site) -> None:
    script = site.folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --mem=lots\n")
    assert_one_line(run("predict", str(script)), 1, "not an amount of memory")
    script.write_text("#!/bin/sh\n#SBATCH --mem=1G\n")
    assert_one_line(run("predict", str(script)), 1, "there is no model .*; run `rightsizer train`")


@pytest.fixture
def learned(run: Run, site: Site) -> str:
    """Return the version of a model trained by the command line on the site's stored past."""
    store_attempts(site.config.store.url, past(90))
    ran = run("train")
    assert ran.code == 0, ran.err
    assert "90 attempts" in ran.err
    assert "metered by nvml" in ran.err
    return ran.out.strip()


def test_from_sacct_to_a_prediction_with_the_command_line_alone(run: Run, site: Site) -> None:
    first_s = int(time.time()) - 5 * DAY_S
    lines = [
        line
        for number in range(1, 21)
        for line in (
            job_line(number, first_s + 1000 * number),
            step_line(number, start_s=first_s + 1000 * number),
        )
    ]
    site.configure(mode="enforce", accounting={"sacct": FakeSacct(site.folder / "slurm", lines).command})
    counts = {row["what"]: row for row in json.loads(run("ingest", "--format", "json").out)}
    assert (counts["attempts"]["new"], counts["steps"]["new"]) == (20, 20)
    again = {row["what"]: row for row in json.loads(run("ingest", "--format", "json").out)}
    assert (again["attempts"]["new"], again["attempts"]["changed"]) == (0, 0)
    assert run("train").code == 0
    script = site.folder / "fit.sh"
    script.write_text("#!/bin/sh\n#SBATCH --mem=8000\nsrun ./fit\n")
    rows = json.loads(run("predict", str(script), "--user", "alice", "--format", "json").out)
    [memory] = [row for row in rows if row["resource"] == "memory (MiB)"]
    # Twenty jobs of 200 MiB that are all alike leave 5 % open; 1 % on top, in whole steps of 32 MiB.
    assert (memory["requested"], memory["granted"]) == (8000, 224)


@pytest.mark.usefixtures("learned")
def test_a_user_without_a_name_may_ask_for_predictions_and_stop_the_hook_too(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a container, for example, where nobody has logged in.
    for name in ("getuid", "geteuid"):
        monkeypatch.setattr(os, name, lambda: 54_321)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    script = site.folder / "fit"
    script.write_text("#!/bin/sh\nsrun ./fit\n")
    predicted = run("predict", str(script), "--mem=8000")
    assert predicted.code == 0, predicted.err
    stopped = run("disable", "--partition", "gpu")
    assert stopped.code == 0, stopped.err
    [held] = pulled_file(site.config.brakes).read().pulled
    assert held.why == "by hand: 54321"


def test_sbatch_options_may_follow_the_script(run: Run, site: Site, learned: str) -> None:
    site.configure(mode="enforce")
    script = site.folder / "fit"
    script.write_text("#!/bin/sh\nsrun ./fit --all\n")
    ran = run("predict", str(script), "-c", "8", "--mem=8000", "--user", "alice", "--format", "json")
    rows = {row["resource"]: row for row in json.loads(ran.out)}
    assert (rows["CPUs"]["requested"], rows["memory (MiB)"]["requested"]) == (8, 8000)
    assert rows["CPUs"]["granted"] < 8
    assert "memory of a GPU (MiB)" not in rows, "it asks for no GPU"
    assert learned in ran.err
    assert "queue the job as granted" in ran.err


@pytest.mark.usefixtures("learned")
def test_gpu_memory_is_predicted_for_a_job_that_requests_a_gpu(run: Run, site: Site) -> None:
    site.configure(mode="enforce")
    script = site.folder / "fit"
    script.write_text("#!/bin/sh\nsrun ./fit --all\n")
    asked = (str(script), "--gres=gpu:4", "--mem=8000", "--user", "alice", "--format", "json")
    rows = {row["resource"]: row for row in json.loads(run("predict", *asked).out)}
    assert rows["GPUs"]["granted"] == 1
    row = rows["memory of a GPU (MiB)"]
    assert (row["requested"], row["granted"]) == (None, None)
    assert 4000 < row["predicted"] < 8000
    why = json.loads(run("predict", "--why", *asked).out)
    steps = [one for one in why if (one["resource"], one["part"]) == ("memory of a GPU (MiB)", "step")]
    assert round(steps[-1]["figure"]) == row["predicted"]


def test_only_data_is_written_to_stdout(run: Run, site: Site, learned: str) -> None:
    script = site.folder / "fit"
    script.write_text("#!/bin/sh\n#SBATCH -c 8\nsrun ./fit\n")
    for arguments in (["evaluate"], ["models"], ["explain", "5"], ["predict", str(script)]):
        as_json = run(*arguments, "--format", "json")
        rows = json.loads(as_json.out)
        assert rows, arguments
        as_csv = list(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv").out)))
        assert len(as_csv) == len(rows)
        assert list(as_csv[0]) == list(rows[0])
        table = run(*arguments).out
        assert "\x1b" not in table
        assert all(name.split()[0] in table for name in rows[0])
    assert json.loads(run("models", "--format", "json").out)[0]["version"] == learned


def test_models_are_promoted_and_rolled_back(run: Run, site: Site, learned: str) -> None:
    refused = run("train").out.strip()
    second = run("train", "--promote", "always").out.strip()
    assert learned < refused < second
    assert learned in run("rollback").err
    [current] = [row for row in json.loads(run("models", "--format", "json").out) if row["current"]]
    assert current["version"] == learned
    assert run("promote", second).code == 0
    (site.models / learned / "history.json").write_text("{}")
    assert_one_line(run("promote", learned), 1, "differs from its digest")
    assert (site.models / "current").readlink() == Path(second)


def test_a_damaged_model_cannot_predict(run: Run, site: Site, trained_model: TrainedModel) -> None:
    shutil.copytree(trained_model.directory, site.models, symlinks=True)
    (site.models / "current" / "golden.json").write_text("[]")
    script = site.folder / "fit"
    script.write_text("#!/bin/sh\n#SBATCH -c 8\n")
    assert_one_line(run("predict", str(script)), 1, "differs from its digest; run `rightsizer train`")


def test_the_kill_switch_is_a_file(run: Run, site: Site) -> None:
    switch = Path(site.config.hook.kill_switch)
    for _ in range(2):
        assert run("disable").code == 0
        assert switch.exists()
    for _ in range(2):
        assert run("enable").code == 0
        assert not switch.exists()
    site.configure(client={"socket": f"{site.folder}/clients", "kill_switch": f"{site.folder}/clients.off"})
    assert run("disable").code == 0
    assert (site.folder / "clients.off").exists()
    assert run("enable").code == 0
    assert not (site.folder / "clients.off").exists()
    (site.folder / "file").touch()
    site.configure(hook={"kill_switch": f"{site.folder}/file/disabled"})
    assert_one_line(run("disable"), 1, "cannot make .*; run this as root")


def test_a_brake_on_a_part_neither_makes_nor_removes_the_kill_switch(run: Run, site: Site) -> None:
    switch, part = Path(site.config.hook.kill_switch), ("--family", "ann:align")
    assert run("disable", *part).code == 0
    assert not switch.exists()
    assert run("disable").code == 0
    assert "brake released" in run("enable", *part).err
    assert switch.exists()


def test_characters_that_the_locale_cannot_show_are_escaped(tmp_path: Path) -> None:
    config = tmp_path / "rightsizer.toml"
    config.write_text('[store]\nurl = "sqlite:////srv/作业/store.db"\n', encoding="utf-8")
    shown = subprocess.run(
        [sys.executable, "-m", "slurm_plugin.cli", "config", "show", "--config", str(config)],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert r"sqlite:////srv/\u4f5c\u4e1a/store.db" in shown.stdout


@pytest.mark.parametrize("words", [["--version"], ["config", "show"], ["simulate", "--help"]], ids=" ".join)
def test_a_full_disk_behind_stdout_is_reported_in_one_line(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "slurm_plugin.cli", *words],
            env={**os.environ, "RIGHTSIZER_CONFIG": f"{tmp_path}/empty.toml"},
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr == "rightsizer: cannot write: No space left on device; the output may be incomplete\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_stream_causes_no_traceback(closed: str, site: Site, learned: str) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m slurm_plugin.cli models {closed}', sys.executable],
        env={**os.environ, "RIGHTSIZER_CONFIG": str(site.config_file)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (learned in ran.stdout) == (closed == "2>&-")


@pytest.mark.usefixtures("site")
def test_releasing_a_brake_that_is_not_pulled_says_so(run: Run) -> None:
    assert "no brake was pulled on jobs of ann named align" in run("enable", "--family", "ann:align").err
