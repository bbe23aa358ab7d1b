"""Scenario files, traces, and how the paper's way to size shrinks a request."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from accounting.errors import ConfigError, ModelError
from models.run_time.adaptive_scaling import Scaling
from models.run_time.importance import Floats
from models.run_time.resources import CORES, GPU_PCT, MEM_MIB
from models.run_time.strategy import TypeModel
from models.simulation.adaptive import AdaptiveScaling
from models.simulation.engine import simulate
from models.simulation.nodes import Node, cluster_of
from models.simulation.policies import POLICIES, policies, way_to_place
from models.simulation.results import Outcome
from models.simulation.scenario import cluster, load_of, profiles_of, read_scenario
from models.simulation.trace import read_trace
from models.simulation.workload import workload

SCENARIO = """
policies = ["fifo", "easy"]
seed = 3
[[nodes]]
cpus = 16
mem_mib = 65536
count = 2
[load]
jobs_per_hour = 60
hours = 4
[[load.kinds]]
name = "small"
cpus = 2
mem_mib = 4096
mean_run_s = 600
[[load.kinds]]
name = "large"
cpus = 12
mem_mib = 32768
mean_run_s = 1800
weight = 0.5
"""


def scenario_file(folder: Path, text: str = SCENARIO) -> Path:
    file = folder / "scenario.toml"
    file.write_text(text)
    return file


def test_every_named_policy_finishes_a_made_up_load(tmp_path: Path) -> None:
    scenario = read_scenario(scenario_file(tmp_path))
    jobs, _, _ = load_of(scenario, tmp_path, scenario.seed)
    assert len(jobs) > 150
    waits = {}
    for name, policy in policies(POLICIES).items():
        results = simulate(jobs, cluster(scenario), policy)
        assert len(results.runs) == len(jobs)
        waits[name] = float((results.start_s - jobs.submit_s).mean())
    assert waits["easy"] < waits["fifo"]
    assert waits["srtf"] < waits["fifo"]


def test_small_jobs_wait_less_in_the_heap_than_largest_first(tmp_path: Path) -> None:
    scenario = read_scenario(scenario_file(tmp_path, SCENARIO.replace("= 60\n", "= 180\n")))
    jobs, _, _ = load_of(scenario, tmp_path, scenario.seed)
    small = jobs.kind == 0
    waits_s = {}
    for order, policy in policies(["largest", "heap"], seed=scenario.seed).items():
        wait_s = simulate(jobs, cluster(scenario), policy).start_s - jobs.submit_s
        waits_s[order] = float(wait_s[small].mean())
    assert waits_s["heap"] < waits_s["largest"] / 2


def test_a_heap_is_drawn_from_the_seed(tmp_path: Path) -> None:
    scenario = read_scenario(scenario_file(tmp_path, SCENARIO.replace("= 60\n", "= 180\n")))
    jobs, _, _ = load_of(scenario, tmp_path, scenario.seed)
    one, other, third = (
        simulate(jobs, cluster(scenario), policies(["heap"], seed=seed)["heap"]).runs for seed in (1, 1, 2)
    )
    assert one == other
    assert one != third


def test_a_seed_determines_a_load(tmp_path: Path) -> None:
    scenario = read_scenario(scenario_file(tmp_path))
    one, other, third = (load_of(scenario, tmp_path, seed)[0] for seed in (1, 1, 2))
    assert (one.run_s == other.run_s).all()
    assert len(one) != len(third) or (one.run_s != third.run_s).any()


RESERVATION = """
[[reservations]]
from_h = 1
to_h = 3
nodes = [1]
users = ["NAME"]
"""


def test_a_reservation_names_a_kind_of_job_or_a_user_of_a_trace(tmp_path: Path) -> None:
    scenario = read_scenario(scenario_file(tmp_path, SCENARIO + RESERVATION.replace("NAME", "large")))
    jobs, _, users = load_of(scenario, tmp_path, scenario.seed)
    assert cluster(scenario, users).only_for == (None, None, frozenset(jobs.user[jobs.kind == 1].tolist()))
    (tmp_path / "jobs.csv").write_text("submit_s,run_s,cpus,user\n1,0,2,eve\n2,7,2,ann\n3,5,1,bob\n")
    traced = SCENARIO.split("[load]", maxsplit=1)[0] + '[load]\ntrace = "jobs.csv"\n' + RESERVATION
    scenario = read_scenario(scenario_file(tmp_path, traced.replace("NAME", "bob")))
    jobs, _, users = load_of(scenario, tmp_path, scenario.seed)
    assert cluster(scenario, users).only_for[-1] == frozenset([int(jobs.user[1])])


def test_users_of_a_trace_who_are_numbers_keep_their_names(tmp_path: Path) -> None:
    rows = "1,5,2,\n2,5,2,1001\n3,5,1,7\n4,5,1,007\n"
    (tmp_path / "jobs.csv").write_text(f"submit_s,run_s,cpus,user\n{rows}")
    traced = SCENARIO.split("[load]", maxsplit=1)[0] + '[load]\ntrace = "jobs.csv"\n' + RESERVATION
    scenario = read_scenario(scenario_file(tmp_path, traced.replace("NAME", "1001")))
    jobs, _, users = load_of(scenario, tmp_path, scenario.seed)
    assert cluster(scenario, users).only_for[-1] == frozenset([int(jobs.user[1])])
    assert len(set(jobs.user.tolist())) == 4


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("count = 2", "down = [[2, 1]]", "from 2 to 1 h is not a valid time"),
        ("seed = 3", "sed = 3", "sed"),
        ("cpus = 16", "cpu = 16", "cpu"),
        ('name = "small"', "", "name"),
        ("[load]", "[load", "not read"),
        ("seed = 3", f"seed = {'9' * 5000}", "not read"),
        ("seed = 3", f"seed = {'[' * 5000}", "not read"),
    ],
)
def test_a_typo_is_named(tmp_path: Path, old: str, new: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_scenario(scenario_file(tmp_path, SCENARIO.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("seed = 3", "seed = -3", "seed is -3"),
        ("seed = 3", "until_h = -1", "until_h -1"),
        ("seed = 3", "until_h = nan", "until_h nan"),
        ("cpus = 16", "cpus = inf", "is not a valid node"),
        ("cpus = 16", "cpus = nan", "is not a valid node"),
        ("cpus = 2\n", "cpus = nan\n", "job kind small: jobs cannot ask for that much"),
        ("mem_mib = 4096", "mem_mib = 99999999999999999999", "job kind small: jobs cannot ask for that much"),
        ("weight = 0.5", "weight = nan", "job kind large: weight"),
        ("weight = 0.5", "weight = inf", "job kind large: weight"),
        ("weight = 0.5", "weight = 1.7e308", "job kind large: weight"),
        ('["fifo", "easy"]', "[]", "policies is empty"),
        ("hours = 4", "hours = inf", "is not a load"),
        ("hours = 4", "hours = 1e300", "is more than 10000000 jobs"),
        ("count = 2", "count = 1000000000", "is not a valid node"),
        ("weight = 0.5", "users = 1000000000000", "users"),
    ],
)
def test_an_impossible_number_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    with pytest.raises((ConfigError, ModelError), match=reason):
        load_of(read_scenario(scenario_file(tmp_path, SCENARIO.replace(old, new))), tmp_path, 3)


def test_an_unknown_policy_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no policy fif; choose one of fifo"):
        policies(["fif"])
    with pytest.raises(ConfigError, match="no placement"):
        way_to_place("somewhere", load_of(read_scenario(scenario_file(tmp_path)), tmp_path, 1).jobs)


def test_a_trace_of_either_format_is_the_same_load(tmp_path: Path) -> None:
    csv = tmp_path / "jobs.csv"
    csv.write_text(
        "submit_s,run_s,cpus,mem_mib,limit_s,user\n110,7,2,4,20,ann\n100,5,1,2,10,bob\n120,0,1,1,10,ann\n"
    )
    swf = tmp_path / "jobs.swf"
    swf.write_text(
        "; a comment\n"
        "1 100 0 5 1 -1 -1 1 10 2048 1 1 1 1 1 1 -1 -1\n"
        "2 110 0 7 2 -1 -1 2 20 2048 1 2 1 1 1 1 -1 -1\n"
        "3 120 0 0 1 -1 -1 1 10 1024 1 2 1 1 1 1 -1 -1\n"
    )
    one, other = read_trace(csv), read_trace(swf)
    assert (one.left_out, other.left_out) == (1, 1)
    for name in ("submit_s", "run_s", "asked", "limit_s"):
        assert (getattr(one.jobs, name) == getattr(other.jobs, name)).all(), name
    assert one.jobs.submit_s.tolist() == [0, 10]
    assert one.jobs.asked.tolist() == [[1000, 2, 0], [2000, 4, 0]]


def test_where_a_request_is_unknown_the_use_counts_as_requested(tmp_path: Path) -> None:
    """A job without a memory request would otherwise be killed for each MiB that it used."""
    file = tmp_path / "jobs.csv"
    file.write_text("submit_s,run_s,cpus,mem_mib,used_mem_mib,used_gpus\n0,9,2,,500,1\n1,9,2,800,500,\n")
    jobs = read_trace(file).jobs
    assert jobs.asked.tolist() == [[2000, 500, 1000], [2000, 800, 0]]
    assert jobs.used.tolist() == [[2000, 500, 1000], [2000, 500, 0]]
    cluster_ = cluster_of([Node(cpus=4, mem_mib=2000, gpus=1)])
    assert simulate(jobs, cluster_).outcome.tolist() == [Outcome.COMPLETED] * 2


def test_an_invalid_limit_leaves_out_no_job_that_ran(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("submit_s,run_s,cpus,limit_s\n0,5,1,-1\n1,5,1,0\n2,5,1,\n3,5,1,9\n")
    found = read_trace(file)
    assert (found.jobs.limit_s.tolist(), found.left_out) == ([numpy.inf, numpy.inf, numpy.inf, 9], 0)


@pytest.mark.parametrize(
    "text",
    ["", "submit_s,run_s\n1,2\n", "submit_s,run_s,cpus\nx,2,1\n", "submit_s,run_s,cpus\n1,0,1\n"],
)
def test_a_file_that_is_no_trace_says_so(tmp_path: Path, text: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(text)
    with pytest.raises(ModelError, match="cannot read"):
        read_trace(file)
    with pytest.raises(ModelError, match=r"the file .* does not exist"):
        read_trace(tmp_path / "none.csv")


@pytest.mark.parametrize("row", ["1,2,1e30,5", "1,2,1,-5", "1,2,9e15,5", "1,2,1,1e18"])
def test_an_impossible_amount_is_reported_with_its_job(tmp_path: Path, row: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(f"submit_s,run_s,cpus,mem_mib\n9,2,1,1\n1,0,1,1\n{row}\n")
    with pytest.raises(ModelError, match=r"cannot read .*: its job 3 asks for, or used"):
        read_trace(file)


def test_algorithm_1_scales_what_run_time_does_not_depend_on() -> None:
    """Run time depends on the GPU share, which stays; cores and memory are halved, or kept above what was ever used."""

    def predict(rows: Floats) -> Floats:
        return 1000 / rows[:, 1]

    model = TypeModel(
        resources=(CORES, GPU_PCT, MEM_MIB),
        predict=predict,
        important=frozenset({GPU_PCT}),
        lowest=numpy.array([1.0, 10.0, 100.0]),
        typical=numpy.array([3.0, 30.0, 500.0]),
        highest=numpy.array([5.0, 60.0, 900.0]),
    )
    load = workload([0, 0], [1, 1], [[7000, 1000, 500], [7000, 1000, 500]], kind=[0, 1])
    printed, bounded = (
        AdaptiveScaling(load, {0: model}, Scaling(), bounded=bound) for bound in (False, True)
    )
    assert printed.grant(0, 0) == (4000, 500, 500)
    assert bounded.grant(0, 0) == (4000, 900, 500)
    assert printed.grant(1, 0) == (7000, 1000, 500), "a kind without a model stays as asked"


DEVICES = """
[[nodes]]
cpus = 4
mem_mib = 100
device = "v100"
[[nodes]]
cpus = 4
mem_mib = 100
device = "k80"
owner = [[-12, -2], [8, 18]]
[load]
jobs_per_hour = 20
hours = 5
[[load.kinds]]
name = "train"
cpus = 4
mem_mib = 10
mean_run_s = 300
deadline_factor = 3
speeds = {v100 = 2.0, k80 = 0.5}
"""


def test_kinds_have_speeds_on_devices_and_deadlines_by_the_fastest(tmp_path: Path) -> None:
    scenario = read_scenario(scenario_file(tmp_path, DEVICES))
    jobs, _, _ = load_of(scenario, tmp_path, 1)
    assert profiles_of(scenario) == ({"v100": 2.0, "k80": 0.5},)
    assert jobs.deadline_s.tolist() == pytest.approx((jobs.submit_s + 3 * jobs.run_s / 2).tolist())
    assert cluster(scenario).owners == {1: ((-12 * 3600, -2 * 3600), (8 * 3600, 18 * 3600))}
    plain = read_scenario(scenario_file(tmp_path))
    assert profiles_of(plain) == ()
    assert numpy.isinf(load_of(plain, tmp_path, 1).jobs.deadline_s).all()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (", k80 = 0.5", "", "train has no speed for the device k80"),
        (
            "k80 = 0.5",
            "k80 = 0.5, a100 = 3.0",
            "a speed for a100, which no node has; the nodes' devices are k80, v100",
        ),
        ("k80 = 0.5", "k80 = 0", "job kind train: give a deadline_factor of 0 or more, and speeds above 0"),
        ("deadline_factor = 3", "deadline_factor = -1", "job kind train: give a deadline_factor"),
        ("[load]", "[load]\ntrace = 'x.csv'", "either `trace` or"),
        ("owner = [[-12, -2], [8, 18]]", "owner = [[-12, -2], [-3, 18]]", "no times one after the other"),
        ("[load]", "[load]\ncheckpoint_s = 5", "checkpoint_s"),
    ],
)
def test_impossible_devices_are_refused_with_the_reason(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    def refused() -> None:
        scenario = read_scenario(scenario_file(tmp_path, DEVICES.replace(old, new)))
        profiles_of(scenario)
        load_of(scenario, tmp_path, 3)

    with pytest.raises((ConfigError, ModelError), match=reason):
        refused()


def test_a_trace_has_no_speeds_by_device(tmp_path: Path) -> None:
    traced = DEVICES.split("[load]", maxsplit=1)[0] + '[load]\ntrace = "jobs.csv"\n'
    with pytest.raises(ConfigError, match="a trace has no speeds by device"):
        profiles_of(read_scenario(scenario_file(tmp_path, traced)))
