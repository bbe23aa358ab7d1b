"""Submissions while the service restarts: each is carried out completely or left alone, and none waits."""

from __future__ import annotations

import shutil
import signal
import threading

import pytest

from tests.builders import SCRIPT
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.lua.conftest import Fields, Slurmctld
from tests.lua.conftest import install as install_hook
from tests.slurm_plugin.service.asking import install
from tests.waiting import wait_until

HOOKS = 4
SOME = 40
JOB = {
    "user_name": "alice",
    "name": "fit",
    "script": SCRIPT,
    "cpus_per_task": 8,
    "min_cpus": 8,
    "pn_min_cpus": 8,
    "min_mem_per_node": 8000,
}
WHOLE = {"admin_comment", "cpus_per_task", "min_cpus", "pn_min_cpus", "min_mem_per_node"}


def test_a_restart_under_load_costs_no_submission(site: Site, trained_model: TrainedModel) -> None:
    lua = shutil.which("lua5.1")
    if lua is None:
        pytest.skip("lua5.1 is not installed")
    install(site, trained_model)
    site.configure(mode="enforce")
    site.folder.chmod(0o755)
    told = f'return {{ socket = "{site.socket}", deadline_ms = 1000 }}\n'
    script = install_hook(site.folder, told)
    service, stop = site.serve(), threading.Event()
    results: list[list[Fields]] = [[] for _ in range(HOOKS)]

    def submit_on(found: list[Fields]) -> None:
        with Slurmctld(lua, script) as slurmctld:
            while not stop.is_set():
                found.append(slurmctld.submit(JOB))

    def wait_for_some() -> None:
        enough = [len(found) + SOME for found in results]
        wait_until(
            lambda: all(len(found) >= count for found, count in zip(results, enough, strict=True)),
            "submissions stand still",
        )

    threads = [threading.Thread(target=submit_on, args=(found,)) for found in results]
    for thread in threads:
        thread.start()
    try:
        wait_for_some()
        service.send_signal(signal.SIGTERM)
        assert service.wait(PATIENCE_S) == 0
        wait_for_some()
        site.serve()
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    for found in results:
        assert all((one["rc"], one["raised"]) == (0, False) for one in found)
        assert {frozenset(one["writes"]) for one in found} == {frozenset(WHOLE), frozenset()}
        # Jobs are cut until the stop, then left alone: no submission is lost or half done in between.
        assert found[0]["writes"]
        assert not found[-1]["writes"]
    with Slurmctld(lua, script) as slurmctld:
        assert slurmctld.submit(JOB)["writes"]
