"""Simulations in which it matters on which of a node's GPUs a share is placed."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from accounting.errors import ModelError
from models.scheduling.room import PLAIN
from models.simulation.engine import simulate
from models.simulation.nodes import Node
from models.simulation.placed import first_run, room_before
from models.simulation.policies import POLICIES, SINGLE_GPUS, policies, way_to_place
from models.simulation.results import Outcome
from models.simulation.scenario import Load, Scenario, cluster, load_of, read_scenario
from models.simulation.workload import workload

SCENARIO = """
placement = "{placement}"
seed = 3

[[nodes]]
count = 3
cpus = 16
mem_mib = 64000
gpus = 2
down = [[1, 1.5]]

[[nodes]]
count = 2
cpus = 16
mem_mib = 64000

[[reservations]]
from_h = 2
to_h = 3
nodes = [0]
gpus = 1
cpus = 4
mem_mib = 1000
users = ["share"]

[load]
jobs_per_hour = 40
hours = 4

[[load.kinds]]
name = "share"
cpus = 2
mem_mib = 4000
gpus = 0.6
mean_run_s = 1200
users = 2

[[load.kinds]]
name = "two"
cpus = 4
mem_mib = 4000
gpus = 2
mean_run_s = 1200
weight = 0.3

[[load.kinds]]
name = "none"
cpus = 8
mem_mib = 4000
mean_run_s = 1200
weight = 0.5
"""


@pytest.mark.parametrize("placement", SINGLE_GPUS)
@pytest.mark.parametrize("policy", POLICIES)
def test_all_jobs_end_and_no_gpu_is_taken_twice(tmp_path: Path, policy: str, placement: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(SCENARIO.format(placement=placement))
    scenario = read_scenario(file)
    jobs, _, users = load_of(scenario, tmp_path, scenario.seed)
    machines = cluster(scenario, users)
    assert len(machines.capacity) == PLAIN + 2
    chosen = policies([policy], way_to_place(placement, jobs), scenario.seed)[policy]
    results = simulate(jobs, machines, chosen)
    assert (results.outcome == Outcome.COMPLETED).all()
    changes = sorted(
        (moment_s, starts, run.parts)
        for run in results.runs
        for moment_s, starts in ((run.start_s, 1), (run.end_s, 0))
    )
    in_use = numpy.zeros_like(machines.capacity)
    for _, starts, parts in changes:
        for node, amounts in parts:
            in_use[:, node] += numpy.array(amounts) * (1 if starts else -1)
            assert (in_use[:, node] <= machines.capacity[:, node]).all()
            assert in_use[2, node] == in_use[PLAIN:, node].sum()


def test_shares_that_fit_only_on_several_gpus_together_wait() -> None:
    jobs = workload(
        [0.0, 1.0, 2.0],
        [100.0] * 3,
        numpy.array([[1000, 10, 700]] * 2 + [[1000, 10, 600]], dtype=numpy.int64),
    )
    waits = {}
    for placement in ("whole", *SINGLE_GPUS):
        node = Node(cpus=8, mem_mib=100, gpus=2)
        machines = cluster(Scenario(nodes=[node], load=Load(), placement=placement))
        policy = policies(["easy"], way_to_place(placement, jobs))["easy"]
        waits[placement] = float(simulate(jobs, machines, policy).start_s[2])
    assert waits == {"whole": 2.0, "best-fit": 100.0, "fgd": 100.0}


def test_the_room_free_when_a_job_started_is_the_one_its_place_was_chosen_from(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    plain = SCENARIO.format(placement="fgd").replace("down = [[1, 1.5]]\n", "")
    file.write_text(plain[: plain.index("[[reservations]]")] + plain[plain.index("[load]") :])
    scenario = read_scenario(file)
    jobs = load_of(scenario, tmp_path, scenario.seed).jobs
    machines, way = cluster(scenario), way_to_place("fgd", jobs)
    results = simulate(jobs, machines, policies(["fifo"], way)["fifo"])
    for number in range(len(jobs)):
        run = first_run(results, number)
        room = room_before(machines, results, run)
        assert way.place(room, tuple(results.granted[number].tolist())) == run.parts
    with pytest.raises(
        ModelError, match=f"there is no job {len(jobs) + 1}; give a number from 1 to {len(jobs)}"
    ):
        first_run(results, len(jobs))
    none = simulate(jobs, machines, policies(["fifo"], way)["fifo"], until_s=1.0)
    with pytest.raises(ModelError, match="never started"):
        first_run(none, len(jobs) - 1)
