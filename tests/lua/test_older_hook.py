"""An upgrade: the first hook that was ever installed asks today's service, and its frames are still valid.

`tests/contract/first_hook.tar.gz` holds its Lua, and the golden frames of its time (commit f83b2b0).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from accounting.decisions.token import find_token
from slurm_plugin.policy.forms import ALL, KEEPS
from tests.builders import SCRIPT
from tests.conftest import Site, TrainedModel
from tests.lua.conftest import WIRE, Slurmctld
from tests.slurm_plugin.service.asking import install

FIRST = Path(__file__).parents[1] / "contract" / "first_hook.tar.gz"
# What is carried out is stricter now; in these replies the job's fields in addition to its request make the difference.
STRICTER = {
    "min_cpus_of_something_else",
    "overcommitted",
    "tres_per_task_of_something_else",
    "tres_per_task_not_understood",
    "environment_of_something_else",
    "exported_gpus_not_understood",
    "gpus_per_job_exports_of_other_kinds_stay",
}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the unpacked first hook."""
    folder = tmp_path_factory.mktemp("first")
    # By tar, because the arguments that tarfile needs depend on Python's patch release.
    subprocess.run(["tar", "-xzf", FIRST, "-C", folder], check=True)
    return folder


def frames(first: Path, kind: str) -> dict[str, Any]:
    text = (first / "tests" / "contract" / "wire_v1.json").read_text(encoding="utf-8")
    return {frame["name"]: frame for frame in json.loads(text)[kind]}


def test_the_service_of_today_answers_the_first_hook(
    first: Path, site: Site, trained_model: TrainedModel
) -> None:
    lua = shutil.which("lua5.1")
    if lua is None:
        pytest.skip("lua5.1 is not installed")
    install(site, trained_model)
    site.configure(mode="enforce")
    site.serve()
    told = f'return {{ socket = "{site.socket}", deadline_ms = 1000 }}\n'
    (first / "lua" / "rightsizer_site.lua").write_text(told, encoding="utf-8")
    asked = {"cpus_per_task": 8, "min_cpus": 8, "pn_min_cpus": 8, "min_mem_per_node": 8000}
    with Slurmctld(lua, first / "lua" / "job_submit.lua") as slurmctld:
        result = slurmctld.submit({"user_name": "alice", "name": "fit", "script": SCRIPT, **asked})
        written = result["writes"]
        assert (result["rc"], result["raised"], result["lines"]) == (0, False, [])
        assert {"cpus_per_task", "min_mem_per_node"} <= set(written)
        token = find_token(written["admin_comment"])
        assert token
        assert token.model == trained_model.version
        for name, frame in frames(first, "requests").items():
            result = slurmctld.submit(frame["job_desc"])
            assert (result["rc"], result["raised"], result["lines"]) == (0, False, []), name
            assert find_token(result["writes"]["admin_comment"]), name


def told_today(frame: dict[str, Any]) -> dict[str, Any]:
    """Return a frame without what the hook no longer sends: ways of asking that keep nothing."""
    if "job" not in frame:
        return frame
    names = [name for name in frame["job"]["other"] if KEEPS.get(name, ALL)]
    return {**frame, "job": {**frame["job"], "other": names}}


@pytest.mark.parametrize("kind", ["requests", "replies"])
def test_a_golden_frame_of_version_1_stays_for_ever(first: Path, kind: str) -> None:
    """Today's frames, the first ones among them, test today's hook and service (test_hook.py, test_protocol.py)."""
    today = {frame["name"]: frame for frame in WIRE[kind]}
    changed = {name for name, frame in frames(first, kind).items() if today.get(name) != told_today(frame)}
    assert changed == (STRICTER if kind == "replies" else set())
    assert {today[name]["reply"] for name in changed} == {
        frames(first, kind)[name]["reply"] for name in changed
    }
