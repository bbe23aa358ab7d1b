"""A batch script read as sbatch would read it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import RightsizerError
from slurm_plugin.policy.forms import KEEPS
from slurm_plugin.policy.submission import Submission
from slurm_plugin.sbatch.script import (
    _OTHER_FLAGS,
    _OTHER_WITH_VALUE,
    directives,
    option_parser,
    read_submission,
)


def read(*lines: str, options: tuple[str, ...] = ()) -> Submission:
    return read_submission("\n".join(["#!/bin/sh", *lines, ""]), "job.sh", "alice", options)


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("-c 8", "cpus_per_task", 8),
        ("-c8", "cpus_per_task", 8),
        ("--cpus-per-task=8", "cpus_per_task", 8),
        ("--cpus-per-task 8", "cpus_per_task", 8),
        ("-n 2", "num_tasks", 2),
        ("--ntasks=2", "num_tasks", 2),
        ("--mem=8G", "mem_per_node_mib", 8192),
        ("--mem 8000", "mem_per_node_mib", 8000),
        ("--mem=500K", "mem_per_node_mib", 1),
        ("--mem=1025K", "mem_per_node_mib", 2),
        ("--mem-per-cpu=500M", "mem_per_cpu_mib", 500),
        ("--gres=gpu:4", "gpus_per_node", 4),
        ("--gres=gpu", "gpus_per_node", 1),
        ("--gres=gpu:a100", "gpus_per_node", 1),
        ("--gres=gpu:a100:2", "gpus_per_node", 2),
        ("--gres=gpu:1g.10gb:2", "gpus_per_node", 2),
        ("--gpus=1g.10gb:2", "gpus_per_job", 2),
        ("--gres=gres/gpu=2", "gpus_per_node", 2),
        ("--gpus-per-node=4", "gpus_per_node", 4),
        ("-J fit", "name", "fit"),
        ('--job-name="my fit"', "name", "my fit"),
        ("-A phys", "account", "phys"),
        ("-p main", "partition", "main"),
        ("-q high", "qos", "high"),
        ("--comment=rightsize=off", "comment", "rightsize=off"),
        ("-t 90", "time_limit_min", 90),
        ("--time=1-00:00:00", "time_limit_min", 1440),
        ("--time=UNLIMITED", "time_limit_min", None),
    ],
)
def test_an_option_is_read_in_the_script_and_on_the_command_line(option: str, field: str, value: Any) -> None:
    assert getattr(read(f"#SBATCH {option}"), field) == value
    beside = read(options=tuple(option.replace('"', "").split(" ", 1 if "my" not in option else 0)))
    assert getattr(beside, field) == value
    assert beside.other == ()


def test_options_on_the_command_line_win() -> None:
    made = read("#SBATCH -c 8 --mem=4G", "srun ./fit", options=("-c", "2"))
    assert (made.cpus_per_task, made.mem_per_node_mib) == (2, 4096)


def test_directives_end_at_the_first_command() -> None:
    made = read(
        "# a remark", "", "#SBATCH -c 8 # eight", "  # another", "cd /tmp", "#SBATCH -c 2", "#SBATCH --mem=1"
    )
    assert (made.cpus_per_task, made.mem_per_node_mib) == (8, None)


def test_a_line_that_only_resembles_a_directive_is_a_comment() -> None:
    assert directives("#!/bin/sh\n# SBATCH -c 8\n##SBATCH -c 7\n #SBATCH -c 6\n") == []


@pytest.mark.parametrize(
    ("option", "fields"),
    [
        ("-N 2", {"nodes_min": 2, "nodes_max": 2}),
        ("--nodes=2-4", {"nodes_min": 2, "nodes_max": 4}),
        ("--ntasks-per-node=4", {"ntasks_per_node": 4}),
        ("--tasks-per-node=4", {"ntasks_per_node": 4}),
        ("--array=1-5%2", {"array": True}),
        ("--gres=gpu:a100:2", {"gpus_per_node": 2}),
        ("--gres=license:1,gpu:2", {"gpus_per_node": 2}),
        ("--gpus-per-node=a100:2", {"gpus_per_node": 2}),
        ("-G 4", {"gpus_per_job": 4}),
        ("--gpus=a100:4", {"gpus_per_job": 4}),
        ("--gpus-per-task=2", {"gpus_per_task": 2}),
        ("--mem-per-gpu=4G", {"mem_per_gpu_mib": 4096}),
    ],
)
def test_every_form_that_can_be_rewritten_has_its_field(option: str, fields: dict[str, Any]) -> None:
    made = read(f"#SBATCH -c 8 {option}")
    assert made.other == ()
    assert {field: getattr(made, field) for field in fields} == fields


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("--exclusive", "exclusive"),
        ("--exclusive=user", "exclusive_user"),
        ("--constraint=fast", "features"),
        ("-w n1", "req_nodes"),
        ("-F nodes.txt", "req_nodes"),
        ("--hint=nomultithread", "threads_per_core"),
        ("--hint=Compute_Bound", "threads_per_core"),
        ("--hint=memory_bound", "cores_per_socket+threads_per_core"),
        ("--hint=memory_bound,multithread", "cores_per_socket"),
        ("--hint=multithread", ""),
        ("--hint=nomultithread --hint=multithread", ""),
        ("--hint=multithread --threads-per-core=1", "threads_per_core"),
        ("--gpus-per-socket=2 --sockets-per-node=1", "sockets_per_node+tres_per_socket"),
        ("--cpus-per-gpu=4", "cpus_per_tres"),
        ("-O", "min_cpus"),
        ("-s", "oversubscribe"),
        ("--gres=gpu:1,gpu:a100:2", "gres"),
        ("--gres=shard:2", "gres"),
        ("--gres=gpu:0", "gres"),
        ("--gpus=4 --gres=gpu:4", "gres+tres_per_job"),
        ("--gpus=4 -C fast", "features"),
        ("--gpus=4 -C [fast*2]", "counted_features+features"),
        ("--gpus=4 -N2 -C [fast*2]", "features"),
        ("--gres=gpu:4 -C [fast*2]", "features"),
        ("--mem=0", "mem_all"),
        ("--mem-per-cpu=0", "mem_all"),
        ("--tres-per-task=cpu:4", "tres_per_task"),
        ("--gpus=2 --tres-bind=gres/gpu:closest", "tres_bind"),
        ("--batch=fast --segment=1", "batch_features+segment_size"),
    ],
)
def test_other_forms_have_the_names_that_the_hook_uses(option: str, other: str) -> None:
    assert "+".join(read(f"#SBATCH -c 8 {option}").other) == other


def test_every_name_is_in_the_table_of_forms() -> None:
    named = {*_OTHER_WITH_VALUE.values(), *_OTHER_FLAGS.values()}
    assert named <= set(KEEPS)


@pytest.mark.parametrize(
    "option",
    [
        "-o out.txt",
        "--mail-type=END",
        "--nice",
        "--nice=10",
        "-k",
        "--no-kill",
        "--requeue",
        "-H",
        "--export=ALL",
        "-m cyclic",
        "--distribution=block:fcyclic",
        "--propagate",
        "--propagate=STACK",
        "--cpu-freq=low --delay-boot=5 --priority=7 --reboot --time-min=1 --tmp=5 --container=image",
        "--container-image=image",
    ],
)
def test_options_that_do_not_affect_the_need_are_ignored(option: str) -> None:
    made = read(f"#SBATCH {option}", "#SBATCH -c 8")
    assert (made.cpus_per_task, made.other) == (8, ())


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("--part=main", "partition", "main"),
        ("--job fit", "name", "fit"),
        ("--commen=rightsize=off", "comment", "rightsize=off"),
        ("--nic --mem=8000", "mem_per_node_mib", 8000),
    ],
)
def test_the_beginning_of_a_name_is_as_good_as_the_whole(option: str, field: str, value: Any) -> None:
    assert getattr(read(f"#SBATCH {option}"), field) == value
    assert getattr(read(options=tuple(option.split(" "))), field) == value


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        ("--memm=5 -c 4", {"--memm": ["--mem"]}),
        ("--jobname fit", {"--jobname": ["--job-name"]}),
        ("--parition=main", {"--parition": ["--partition"]}),
        ("--cpus=4", {"--cpus": ["--cpus-per-task", "--cpus-per-gpu"]}),
        ("--container-image=x -Z", {"--container-image": [], "-Z": []}),
        ("--part=main --nice -c 4 -v", {}),
    ],
)
def test_options_that_sbatch_does_not_have_are_told_with_what_they_resemble(
    words: str, unknown: dict[str, list[str]]
) -> None:
    assert option_parser().unknown(words.split()) == unknown


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("#SBATCH --mem=lots", "--mem=lots is not an amount of memory"),
        ("#SBATCH --mem-per-cpu=1X", "--mem-per-cpu=1X is not an amount"),
        ("#SBATCH --mem=" + "9" * 400, "is not an amount of memory"),
        ("#SBATCH -c eight", "cpus-per-task"),
        ("#SBATCH -c -3", "cpus-per-task"),
        ("#SBATCH -n 0", "ntasks"),
        ("#SBATCH -c", "expected one argument"),
        ('#SBATCH --job-name="open', "cannot read the #SBATCH lines"),
        ("#SBATCH --gpus-per-task=--", "--gpus-per-task has -- as its value"),
        ("#SBATCH --ntasks=--", "--ntasks( has -- as its value|: .*'--')"),
        ("#SBATCH -c--", "--cpus-per-task( has -- as its value|: .*'--')"),
        ("#SBATCH --mem=1G --mem-per-cpu=1G", "accepts only one of them"),
        ("#SBATCH --nodes=some", "--nodes=some"),
        ("#SBATCH --time=10:xx", "invalid time_limit value: '10:xx'"),
        ("#SBATCH -t 2h", "invalid time_limit value"),
        ("#SBATCH --hint=multithread,fast", "invalid hint_names value: 'multithread,fast'"),
        ("#SBATCH --hint=", "invalid hint_names value"),
    ],
)
def test_options_that_sbatch_would_refuse_are_reported_in_one_line(line: str, said: str) -> None:
    with pytest.raises(RightsizerError, match=said) as caught:
        read(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "echo hello\n", " #!/bin/sh\n", "\ufeff#!/bin/sh\n"])
def test_a_file_that_is_not_a_script_is_refused(text: str) -> None:
    with pytest.raises(RightsizerError, match="not a batch script"):
        read_submission(text, "job.sh", "alice")


@given(st.text(max_size=60))
def test_any_directive_is_read_or_refused_in_one_line(words: str) -> None:
    try:
        made = read_submission(f"#!/bin/sh\n#SBATCH {words}\n", "job.sh", "alice")
    except RightsizerError as error:
        said = str(error)
    else:
        said = made.user
    assert said
