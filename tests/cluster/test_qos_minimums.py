"""The least that a QOS allows, also one that Slurm gives unasked, on every release that is here: less is refused."""

import os
import pwd
from pathlib import Path

import pytest

from slurm_plugin.sandbox.shape import NodeShape, Shape
from tests.cluster.matrix.form import form
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.matrix.release import Trial, trained_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()
SHAPE = Shape(
    nodes=(NodeShape(),),
    lines=(
        "AccountingStorageEnforce=associations,limits,qos",
        "PartitionName=own Nodes={node[0]}",
    ),
)
_ADD = ("sacctmgr", "--immediate", "add")
_USER = (*_ADD, "user", pwd.getpwuid(os.geteuid()).pw_name)
COMMANDS = (
    (*_ADD, "qos", "large", "MinTRESPerJob=cpu=4", "Flags=DenyOnLimit"),
    (*_ADD, "qos", "roomy", "MinTRESPerJob=mem=4000", "Flags=DenyOnLimit"),
    (*_ADD, "account", "several", "large", "roomy", "divided"),
    (*_USER, "account=several", "qos=normal,large,roomy"),
    *((*_USER, f"account={name}", f"qos={name}") for name in ("large", "roomy")),
    (*_USER, "account=divided", "qos=normal"),
    *(
        (*_USER, "account=divided", f"partition={name}", "qos=normal,large", "defaultqos=large")
        for name in ("main", "own")
    ),
    ("scontrol", "update", "PartitionName=own", "QOS=large"),
)
FORMS = (
    form("named", "-A several -q large -c 8 --mem=8000", cpu=4, mem=256),
    form("named-memory", "-A several -q roomy -c 8 --mem=8000", cpu=2, mem=4000),
    # Memory comes with CPUs.
    form("named-default", "-A several -q roomy -c 8", cpu=4, mem=4000),
    form("named-per-cpu", "-A several -q roomy -c 8 --mem-per-cpu=1000", cpu=4, mem=4000),
    form("of-partition", "-A several -p own -c 8 --mem=8000", cpu=4, mem=256),
    form("not-named", "-A several -c 8 --mem=8000", cpu=2, mem=256),
    # It is the user's only one in this account, and not said to be his default.
    form("only-one", "-A large -c 8 --mem=8000", cpu=4, mem=256),
    form("only-one-memory", "-A roomy -c 8 --mem=8000", cpu=2, mem=4000),
    # It is his default in the default partition.
    form("default-there", "-A divided -c 8 --mem=8000", cpu=4, mem=256),
    form("default-named-there", "-A divided -p main -c 8 --mem=8000", cpu=4, mem=256),
)


@pytest.mark.parametrize("name", RELEASES)
def test_nobody_is_cut_below_the_least_of_the_qos_that_slurm_gives_him(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    prefix: Path | None = RELEASES[name]
    if reason := why_missing(prefix):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("minimums")
    with trained_cluster(folder / "site", prefix, FORMS, SHAPE, COMMANDS) as sandbox:
        trial = Trial(sandbox, FORMS, folder)
        trial.submit()
        problems = {cell.form.name: cell.problem for cell in trial.collect()}
    assert problems == dict.fromkeys(problems, "")
