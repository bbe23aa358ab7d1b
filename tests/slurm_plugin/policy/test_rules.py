"""Which rule a submission falls under, what a script fixes by itself, and the table of forms."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.decisions.decision import Fixed
from accounting.errors import ConfigError
from accounting.request import JobRequest
from slurm_plugin.config.file import parse_config, render_config
from slurm_plugin.config.settings import Brakes, Config, Policy, Rule
from slurm_plugin.policy import script_floors
from slurm_plugin.policy.braked import ALL as EVERYTHING
from slurm_plugin.policy.braked import family_brake, partition_brake
from slurm_plugin.policy.facts import MemoryTerms, Minimum, Partition, SiteFacts
from slurm_plugin.policy.forms import ALL, KEEPS, kept_by_form
from slurm_plugin.policy.rules import fits, is_control, is_enrolled, limits_of, terms_for
from slurm_plugin.policy.script_floors import ScriptFloors, read_floors
from slurm_plugin.policy.submission import job_request
from slurm_plugin.service.decide import fixed_by, with_floors
from slurm_plugin.slurm.groups import members, members_of_rules
from slurm_plugin.slurm.limits import (
    chooses_partitions,
    gives_whole_nodes,
    parse_partitions,
    parse_qos,
    parse_threads,
)
from tests.builders import submission

ROOT = Path(__file__).resolve().parents[3]
LUA_FORMS = ROOT / "lua" / "rightsizer" / "forms.lua"
DOCUMENTED = ROOT / "docs" / "forms.md"


def site(*rules: Rule, **changes: Any) -> Config:
    return msgspec.structs.replace(Config(), rules=rules, **changes)


@pytest.mark.parametrize(
    ("rule", "fitting"),
    [
        ({}, True),
        ({"partition": ("gpu*",)}, True),
        ({"partition": ("cpu", "gpu-?")}, True),
        ({"partition": ("gpu",)}, False),
        ({"account": ("phys",), "user": ("alice",)}, True),
        ({"account": ("phys",), "user": ("bob",)}, False),
        ({"qos": ("normal",)}, False),
        ({"group": ("staff",)}, True),
        ({"group": ("wheel",)}, False),
    ],
)
def test_a_rule_fits_where_each_of_its_lists_does(rule: dict[str, Any], fitting: bool) -> None:
    one = JobRequest(user="alice", account="phys", partition="main,gpu-a", qos="high")
    assert fits(Rule(name="r", **rule), one, SiteFacts(groups={"staff": frozenset({"alice"})})) is fitting


def test_accounts_and_qos_count_in_any_case_as_slurm_takes_them() -> None:
    """`sbatch -A Physics --qos=HIGH` runs in physics, by high; slurmctld says so only after it asked us."""
    typed = job_request(submission(account="Physics", qos="HIGH", partition="main"))
    assert (typed.account, typed.qos) == ("physics", "high")
    rule = Rule(name="r", account=("PHYS*",), qos=("High",))
    assert fits(rule, typed, SiteFacts())
    assert fits(rule, JobRequest(user="alice", account="Physics", qos="HIGH"), SiteFacts())
    least = SiteFacts(
        qos_minimums=parse_qos("high|cpu=4\n"), partitions={"own": Partition(qos="High"), "main": Partition()}
    )
    assert least.minimum_for(typed) == Minimum(cpus=4)
    assert least.minimum_for(JobRequest(user="alice", partition="own")) == Minimum(cpus=4)


def test_the_first_rule_that_fits_counts_over_the_sites_own_values() -> None:
    config = site(
        Rule(name="pilot", user=("alice",), mode="enforce", headroom=0.5),
        Rule(name="rest", memory_floor_mib=999),
        mode="advise",
    )
    pilot, rest = (terms_for(JobRequest(user=user), config, SiteFacts()) for user in ("alice", "bob"))
    assert (pilot.rule, pilot.mode, pilot.limits.headroom) == ("pilot", "enforce", 0.5)
    assert pilot.limits.memory_floor_mib == config.policy.memory_floor_mib
    assert (rest.rule, rest.mode, rest.limits.memory_floor_mib) == ("rest", "advise", 999)


def test_without_a_rule_the_site_speaks() -> None:
    terms = terms_for(JobRequest(user="alice"), site(mode="enforce"), SiteFacts())
    assert (terms.rule, terms.mode, terms.enrolled) == ("", "enforce", True)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 100))
def test_a_family_stays_on_its_side_and_only_ever_joins(user: str, name: str, percent: int) -> None:
    one = JobRequest(user=user, job_name=f"{name}1")
    enrolled = is_enrolled(one, percent)
    assert is_enrolled(JobRequest(user=user, job_name=f"{name}2", mem_per_node_mib=9), percent) is enrolled
    assert not enrolled or is_enrolled(one, min(100, percent + 1))
    assert is_enrolled(one, 100)
    assert not is_enrolled(one, 0)


@given(st.text(max_size=20), st.text(max_size=20), st.floats(0, 1))
def test_a_family_of_the_control_group_stays_in_it_whatever_the_rules_say(
    user: str, name: str, share: float
) -> None:
    one, other = (JobRequest(user=user, job_name=f"{name}{number}") for number in (1, 22))
    config = site(Rule(name="r"), mode="enforce", brakes=Brakes(control_share=share))
    terms = terms_for(one, config, SiteFacts())
    assert terms.enrolled is not is_control(one, share)
    assert (terms.mode == "enforce") is terms.enrolled
    assert terms == terms_for(other, config, SiteFacts())
    assert is_control(one, 1.0)
    assert not is_control(one, 0.0)
    assert not is_control(one, share) or is_control(one, min(1.0, share * 1.5))


def test_the_control_group_is_a_share_of_both_sides_of_a_rollout() -> None:
    jobs = [
        JobRequest(user=f"user{letter}", job_name=name) for letter in range(100) for name in ("a", "b", "c")
    ]
    for side in (True, False):
        drawn = [is_control(job, 0.2) for job in jobs if is_enrolled(job, 50) is side]
        assert 0.1 < sum(drawn) / len(drawn) < 0.3


def test_a_brake_holds_over_rules_and_of_a_job_that_names_several_partitions_by_any() -> None:
    config = site(Rule(name="pilot", mode="enforce"))
    for brake in (EVERYTHING, partition_brake("gpu"), family_brake("ann", "fit_12")):
        facts = SiteFacts(brakes=frozenset({brake}))
        terms = terms_for(JobRequest(user="ann", job_name="fit_7", partition="main,gpu"), config, facts)
        assert (terms.mode, terms.rule, terms.brake) == ("observe", "pilot", brake)
        free = terms_for(JobRequest(user="bob", job_name="fit_7", partition="main"), config, facts)
        assert (free.mode == "enforce") is (brake != EVERYTHING)


def test_a_job_that_names_no_partition_stands_still_with_the_default_one() -> None:
    partitions = {"main": Partition(is_default=True), "gpu": Partition()}
    for name, mode in (("main", "observe"), ("gpu", "enforce")):
        facts = SiteFacts(partitions=partitions, brakes=frozenset({partition_brake(name)}))
        assert terms_for(JobRequest(user="ann"), site(mode="enforce"), facts).mode == mode


def test_a_job_that_names_no_partition_is_under_the_rule_of_the_default_one() -> None:
    config = site(Rule(name="spared", partition=("ma*",), mode="observe"), mode="enforce")
    partitions = {"main": Partition(is_default=True), "gpu": Partition()}
    unnamed = JobRequest(user="ann")
    assert terms_for(unnamed, config, SiteFacts(partitions=partitions)).rule == "spared"
    for named, rule in (("main", "spared"), ("gpu", "")):
        other = JobRequest(user="ann", partition=named)
        assert terms_for(other, config, SiteFacts(partitions=partitions)).rule == rule
    assert terms_for(unnamed, config, SiteFacts()).rule == ""
    everybody = site(Rule(name="all", mode="observe"), mode="enforce")
    assert terms_for(unnamed, everybody, SiteFacts()).rule == "all"


def test_about_as_many_families_are_enrolled_as_the_percentage_says() -> None:
    share = (
        sum(is_enrolled(JobRequest(user=f"u{chr(97 + n % 26)}{n}", job_name="fit"), 20) for n in range(2000))
        / 2000
    )
    assert 0.16 < share < 0.24
    assert not any(is_enrolled(JobRequest(user=f"u{chr(97 + n)}", job_name="fit"), 0) for n in range(1000))


def test_who_is_not_enrolled_is_observed() -> None:
    terms = terms_for(
        JobRequest(user="alice"), site(Rule(name="pilot", mode="enforce", percent=0)), SiteFacts()
    )
    assert (terms.mode, terms.enrolled, terms.rule) == ("observe", False, "pilot")


def test_rules_are_read_and_written_as_toml() -> None:
    text = '[[rules]]\nname = "gpu"\npartition = ["gpu*"]\npercent = 20\n\n[[rules]]\nname = "rest"\nmode = "observe"\n'
    config = parse_config(text)
    assert [rule.name for rule in config.rules] == ["gpu", "rest"]
    assert parse_config(render_config(config)) == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[rules]]\nname = "x"\npartitions = []\n', "did you mean `rules.partition`"),
        ("[[rules]]\npercent = 5\n", "name"),
        ('[[rules]]\nname = "x"\npercent = 101\n', "percent"),
        ('[[rules]]\nname = "a;b"\n', "name"),
    ],
)
def test_a_mistake_in_a_rule_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse_config(text)


def test_groups_are_looked_up_and_a_missing_one_is_named() -> None:
    assert "root" in members("root")
    with pytest.raises(ConfigError, match="no-such-group"):
        members_of_rules(site(Rule(name="r", group=("no-such-group",))))


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        ("OverSubscribe=NO", False),
        ("OverSubscribe=FORCE:4", False),
        ("ExclusiveUser=YES ExclusiveTopo=NO OverSubscribe=NO", False),
        ("OverSubscribe=EXCLUSIVE", True),
        ("ExclusiveTopo=YES OverSubscribe=NO", True),
        ("OverSubscribe=NO Exclusive=NODE", True),
        ("OverSubscribe=NO Exclusive=TOPO", True),
        ("OverSubscribe=NO Exclusive=USER", False),
        ("OverSubscribe=NO Exclusive=NO", False),
    ],
)
def test_a_partition_of_whole_nodes_keeps_all_that_its_jobs_ask(said: str, whole: bool) -> None:
    text = f"PartitionName=main Default=YES OverSubscribe=NO\nPartitionName=other Default=NO {said}\n"
    facts = SiteFacts(partitions=parse_partitions(text, MemoryTerms()))
    forms = {
        name: facts.forms_of(JobRequest(user="alice", partition=name))
        for name in ("", "main", "unknown", "other", "main,other")
    }
    kept = ("exclusive_partition",) if whole else ()
    assert forms == {"": (), "main": (), "unknown": (), "other": kept, "main,other": kept}
    assert set(kept_by_form(["exclusive_partition"])) == ALL


def test_a_cluster_of_whole_nodes_keeps_all_that_is_asked() -> None:
    asked = JobRequest(user="alice")
    linear, shared = (
        "SelectType              = select/linear\n",
        "SelectType              = select/cons_tres\n",
    )
    assert SiteFacts(whole_nodes=gives_whole_nodes(linear)).forms_of(asked) == ("select_linear",)
    assert SiteFacts(whole_nodes=gives_whole_nodes(shared)).forms_of(asked) == ()
    assert set(kept_by_form(["select_linear"])) == ALL


def test_a_qos_and_the_partitions_own_set_the_least() -> None:
    facts = SiteFacts(
        qos_minimums=parse_qos("normal|\nlarge|cpu=4,mem=2G\ngpu|gres/gpu=2,cpu=1\n"),
        partitions=parse_partitions(
            "PartitionName=a AllowQos=ALL Default=YES QoS=gpu x=1\nPartitionName=b Default=NO QoS=N/A\n",
            MemoryTerms(),
        ),
    )
    assert facts.minimum_for(JobRequest(user="alice", qos="normal", partition="b")) == Minimum()
    assert facts.minimum_for(JobRequest(user="alice")) == Minimum(cpus=1, gpus=2)
    assert facts.minimum_for(JobRequest(user="alice", qos="large", partition="b,a")) == Minimum(
        cpus=4, gpus=2, mem_mib=2048
    )


@pytest.mark.parametrize(
    ("plugins", "any_of_them"),
    [
        ("lua", False),
        ("all_partitions,lua", False),
        ("lua,require_timelimit", False),
        ("lua,all_partitions", True),
        ("job_submit/lua,job_submit/partition", True),
        ("(null)", False),
    ],
)
def test_a_plugin_behind_ours_may_give_a_job_without_partitions_any(plugins: str, any_of_them: bool) -> None:
    """slurmctld refused a job that was cut to less than the QOS of such a partition allows."""
    facts = SiteFacts(
        chosen_later=chooses_partitions(f"JobSubmitPlugins        = {plugins}\n"),
        qos_minimums=parse_qos("large|cpu=4\n"),
        partitions=parse_partitions(
            "PartitionName=a Default=YES\nPartitionName=b QoS=large\n", MemoryTerms()
        ),
    )
    least = facts.minimum_for(JobRequest(user="alice"))
    assert least == (Minimum(cpus=4) if any_of_them else Minimum())
    assert facts.minimum_for(JobRequest(user="alice", partition="a")) == Minimum()


def test_a_job_that_names_several_qos_is_held_to_each_of_them() -> None:
    facts = SiteFacts(qos_minimums=parse_qos("large|cpu=4\nwide|cpu=2,mem=2G\n"))
    asked = JobRequest(user="alice", qos="normal,Large,wide")
    assert facts.minimum_for(asked) == Minimum(cpus=4, mem_mib=2048)
    assert fits(Rule(name="r", qos=("lar*",)), asked, facts)
    assert not fits(Rule(name="r", qos=("narrow", "normal,*")), asked, facts)


def test_no_grant_is_below_the_least_that_a_qos_allows() -> None:
    asked = submission(num_tasks=2, cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4)
    limits = with_floors(
        limits_of(Config().policy),
        job_request(asked),
        Fixed(),
        Minimum(cpus=5, gpus=2, mem_mib=4096),
        2,
    )
    assert (limits.min_cpus_per_task, limits.min_gpus, limits.memory_floor_mib) == (3, 2, 4096)
    assert limits.cpus_step == 2


def test_a_floor_of_the_sites_stands_where_a_job_fixes_less() -> None:
    site = Config(policy=Policy(memory_floor_mib=512, min_cpus_per_task=4, min_gpus=2, cpus_step=4)).policy
    fixed = Fixed(memory_mib=300, cpus_per_task=3, gpus=1)
    limits = with_floors(limits_of(site), job_request(submission()), fixed, Minimum(cpus=1, gpus=1), 2)
    assert limits == limits_of(site)


def test_the_gpus_of_a_job_reach_for_the_fewest_of_its_nodes() -> None:
    for changes, least in (({"gpus_per_job": 4}, 2), ({"gpus_per_node": 4}, 1)):
        asked = submission(nodes_min=2, nodes_max=4, **changes)
        plain = limits_of(Config().policy)
        request = job_request(asked)
        limits = with_floors(plain, request, fixed_by(asked, request), Minimum(), 1)
        assert limits.min_gpus == least


def test_the_threads_of_a_core_are_read_off_the_nodes() -> None:
    assert (
        parse_threads("NodeName=a ThreadsPerCore=1 x=2\nNodeName=b CoresPerSocket=8 ThreadsPerCore=2\n") == 2
    )
    assert parse_threads("No nodes in the system\n") == 1


@pytest.mark.parametrize(
    ("body", "floors"),
    [
        ("java -Xmx4g -jar tool.jar", ScriptFloors(memory_mib=5120)),
        ("java -Xmx2048m x; java -Xmx1g y", ScriptFloors(memory_mib=2560)),
        ("sort --max-mem=3G x", ScriptFloors(memory_mib=3072)),
        ("export OMP_NUM_THREADS=6", ScriptFloors(cpus_per_task=6)),
        ("RAYON_NUM_THREADS=6 tool", ScriptFloors(cpus_per_task=6)),
        ('export OMP_NUM_THREADS="6"', ScriptFloors(cpus_per_task=6)),
        ("MKL_NUM_THREADS='6' ./a", ScriptFloors(cpus_per_task=6)),
        ("setenv OMP_NUM_THREADS 6", ScriptFloors(cpus_per_task=6)),
        ('tool --threads "6" --max-memory="3G"', ScriptFloors(cpus_per_task=6, memory_mib=3072)),
        ("mpirun -np '8' ./a\nsrun --mem='2G' -c '4' ./b", ScriptFloors(cpus_per_task=4, memory_mib=2048)),
        ("mpirun -np  8 ./a\nsrun --mem\t 2G ./b", ScriptFloors(cpus_per_task=4, memory_mib=2048)),
        ("tool --threads   6 --max-memory  3G", ScriptFloors(cpus_per_task=6, memory_mib=3072)),
        ("samtools sort -@ 4 x.bam", ScriptFloors(cpus_per_task=4)),
        ("make -j8", ScriptFloors(cpus_per_task=8)),
        ("tool --threads 12 x", ScriptFloors(cpus_per_task=12)),
        ("mpirun -np 8 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun -n 8 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun --ntasks=4 --cpus-per-task=3 ./a", ScriptFloors(cpus_per_task=6)),
        # It starts the job's two tasks.
        ("srun -c 4 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun --cpus-per-task=4 ./a", ScriptFloors(cpus_per_task=4)),
        # Each of the two may be alone on its node.
        ("srun -n 1 -c 4 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun --ntasks-per-node=4 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun --ntasks-per-node=4 -c 2 ./a", ScriptFloors(cpus_per_task=8)),
        ("srun -n 8 --ntasks-per-node=8 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun -N 1 -n 4 -c 2 ./a", ScriptFloors(cpus_per_task=8)),
        ("srun -N 1-2 -n 4 -c 2 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun -N1 -n1 ./a &\nsrun -N1 -n1 ./b &\nwait", ScriptFloors(cpus_per_task=1)),
        ("export SRUN_CPUS_PER_TASK=4\nsrun ./a", ScriptFloors(cpus_per_task=4)),
        ("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun ./a", ScriptFloors()),
        ("srun --mem=2G ./a", ScriptFloors(memory_mib=2048)),
        ("srun --mem=2GB ./a\nsrun --mem 3000mb ./b", ScriptFloors(memory_mib=3000)),
        ("srun \\\n  -n 8 \\\n  --mem=2G \\\n  ./a", ScriptFloors(cpus_per_task=4, memory_mib=2048)),
        ("mpirun \\\r\n -np 8 ./a", ScriptFloors(cpus_per_task=4)),
        ("java \\\n-Xmx4g x", ScriptFloors(memory_mib=5120)),
        ("srun -c 4 --mem=2G ./a\nsrun -c 6 --mem=1G ./b", ScriptFloors(cpus_per_task=6, memory_mib=2048)),
        (
            "srun -c 4 --mem=2G ./a &\nsrun -c 6 --mem=1G ./b&\nwait",
            ScriptFloors(cpus_per_task=10, memory_mib=3072),
        ),
        ("srun -c 8 ./a > a.log 2>&1 & srun -c 8 ./b &> b.log & wait", ScriptFloors(cpus_per_task=16)),
        ("srun -c 8 ./a | tee a.log & srun -c 8 ./b |& tee b.log &\nwait", ScriptFloors(cpus_per_task=16)),
        ("srun -c 8 ./a 2>&1 && srun -c 8 ./b || srun -c 8 ./c", ScriptFloors(cpus_per_task=8)),
        ("srun -c $SLURM_CPUS_PER_TASK ./a", ScriptFloors()),
        ("OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK ./a", ScriptFloors()),
        ("srun ./a -n 5", ScriptFloors(cpus_per_task=3)),
        ("#SBATCH -c 8 --mem=8000\n# make -j64\n./a", ScriptFloors()),
        ("./a", ScriptFloors()),
    ],
)
def test_numbers_in_a_script_are_floors(body: str, floors: ScriptFloors) -> None:
    found = read_floors(f"#!/bin/sh\n{body}\n", num_tasks=2)
    assert msgspec.structs.replace(found, tasks_by_fit=False) == floors


def test_a_step_that_starts_as_many_tasks_as_fit_keeps_their_room() -> None:
    for body, changes, kept in (
        ("srun -c 2 ./a", {}, True),
        ("srun -n 1 ./first\nsrun -c 2 ./a", {}, True),
        ("srun -c 2 ./a", {"num_tasks": 1}, False),
        ("srun -c 2 ./a", {"ntasks_per_node": 1}, False),
        ("srun -n 1 -c 2 ./a", {}, False),
        ("srun --ntasks-per-node=1 -c 2 ./a", {}, False),
        ("srun -c $SLURM_CPUS_PER_TASK ./a", {}, False),
        ("srun ./a", {}, False),
    ):
        asked = submission(cpus_per_task=8, script=f"#!/bin/sh\n{body}\n", **changes)
        assert ("cores" in dict(fixed_by(asked, job_request(asked)).kept)) is kept, (body, changes)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("./a --mem $SLURM_MEM_PER_NODE", ["memory"]),
        ("java -Xmx${SLURM_MEM_PER_CPU}m x", ["memory"]),
        ("java -XX:MaxRAMPercentage=75 x", ["memory"]),
        ("srun --mem-per-cpu=500 ./a", ["memory"]),
        ("srun --gres=gpu:2 ./a", ["gpus"]),
        ("srun -G4 ./a", ["gpus"]),
        ("srun --gres='gpu:2' ./a", ["gpus"]),
        ("srun --gpus  4 ./a", ["gpus"]),
        ("srun --gpus=$SLURM_GPUS ./a", []),
        ("srun --gpu-bind=map_gpu:0,1 ./a", ["gpus"]),
        ("srun --gpu-bind verbose,mask_gpu:0x3 ./a", ["gpus"]),
        ("srun --gpu-bind=closest ./a", []),
        ("srun --mem-per-cpu  $X ./a", []),
        ("srun --cpus-per-gpu=4 ./a", ["cores"]),
        ("srun --cpu-bind=map_cpu:0,1,2,3 ./a", ["cores"]),
        ("srun --cpu-bind=verbose,mask_cpu:0xff ./a", ["cores"]),
        ('B=mask_cpu:0xf\nsrun --cpu-bind "$B" --gpu-bind=$G ./a', ["gpus", "cores"]),
        ("srun --cpu-bind=cores ./a", []),
        ("srun --hint=nomultithread -c 4 ./a", ["cores"]),
        ("srun --threads-per-core 1 ./a", ["cores"]),
        ("srun --ntasks-per-gpu=1 ./a", ["gpus", "cores"]),
        ("srun --tres-per-task=cpu=4 ./a", ["gpus", "cores"]),
    ],
)
def test_what_cannot_be_a_floor_is_kept(body: str, kept: list[str]) -> None:
    assert [dimension for dimension, _ in read_floors(f"#!/bin/sh\n{body}\n", 1).kept] == kept


# The same as in script_floors.py, said plainly: each begins at a boundary, and one pass goes over all ranks.
PLAIN_THREADS = re.compile(
    r"(?:(?:_(?:NUM_THREADS|CPUS_PER_TASK)(?:=|[ \t]+)"
    r"|\B--?(?:threads|num[-_]threads|n?cpus|nproc|cores|jobs)(?:=|[ \t]+)"
    r"|\B-(?:t|@|j|p)\s+)[\"']?|\bmake\s+-j\s*)(\d{1,4})\b"
)
PLAIN_LAUNCHED = re.compile(
    r"\b(mpirun|mpiexec|orterun)\b|([\n;|&])|\s(?:-np|-n|--np|--n)(?:=|[ \t]+)[\"']?(\d{1,6})\b"
)
PIECES = (
    "mpirun", "mpiexec", "orterun", "make", "srun", "-np", "-n", "--np", "--n", "-j", "-t", "-@", "-c", "-", "--mem=",
    "--threads", "--ncpus", "--gres=", "--max-mem ", "OMP_NUM_THREADS", "-Xmx", "g", "k", ".", "x", "_", "=", " ", " ",
    " ", "\t", "\n", "\\\n", ";", "|", "&", "0", "4", "16", "250", '"', "'",
)  # fmt: skip


def plain_cpus(script: str) -> int:
    cpus, is_launched = [0, *map(int, PLAIN_THREADS.findall(script))], False
    for launcher, end, number in PLAIN_LAUNCHED.findall(script):
        if is_launched and number:
            cpus.append(int(number))
        is_launched = bool(launcher) or (is_launched and not end and not number)
    return max(cpus)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_a_fast_search_finds_what_a_plain_one_does(script: str) -> None:
    launched = script.replace("srun", "run")
    assert read_floors(launched, 1).cpus_per_task == plain_cpus(launched.replace("\\\n", ""))


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.integers(1, 3))
def test_what_numbers_fix_is_found_whatever_was_read_before(script: str, num_tasks: int) -> None:
    assert read_floors(script, num_tasks) == script_floors._read(script, num_tasks)


@given(st.text(max_size=400), st.integers(1, 64))
def test_any_script_can_be_read(script: str, num_tasks: int) -> None:
    floors = read_floors(script, num_tasks)
    assert floors.memory_mib >= 0
    assert floors.cpus_per_task >= 0


def test_an_unknown_form_keeps_everything() -> None:
    assert set(kept_by_form(["a_form_of_tomorrow"])) == ALL
    assert kept_by_form(["features", "threads_per_core"]) == {"cores": "threads_per_core"}


def test_every_name_that_the_hook_can_send_is_in_the_table() -> None:
    words = set(re.findall(r'"([a-z][a-z_]+)"', LUA_FORMS.read_text(encoding="utf-8")))
    known = {name for name in KEEPS if name in words}
    assert {"threads_per_core", "exclusive", "oversubscribe", "cpus_per_tres", "gres_flags"} <= known


def test_the_hook_reads_no_way_of_asking_that_keeps_nothing() -> None:
    words = set(re.findall(r'"([a-z][a-z_]+)"', LUA_FORMS.read_text(encoding="utf-8")))
    assert not {name for name, kept in KEEPS.items() if not kept} & words


def test_the_documented_table_is_the_one_in_force() -> None:
    rows = dict(
        re.findall(
            r"^\| `([a-z_]+)` \|[^|]*\| ([a-z, ]+) \|$", DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    said = {
        name: frozenset() if kept == "nothing" else frozenset(kept.split(", ")) for name, kept in rows.items()
    }
    assert said == KEEPS
