"""Which rule applies to a submission."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ConfigError
from accounting.request import JobRequest
from slurm_plugin.config.file import parse_config, render_config
from slurm_plugin.config.settings import Brakes, Config, Rule
from slurm_plugin.policy.braked import ALL as EVERYTHING
from slurm_plugin.policy.braked import family_brake, partition_brake
from slurm_plugin.policy.facts import Minimum, Partition, SiteFacts
from slurm_plugin.policy.rules import fits, is_control, is_enrolled, terms_for
from slurm_plugin.policy.submission import job_request
from slurm_plugin.slurm.groups import members, members_of_rules
from slurm_plugin.slurm.limits import (
    parse_qos,
)
from tests.builders import submission


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
        ({"account": ("chem",)}, False),
        ({"qos": ("normal",)}, False),
        ({"group": ("staff",)}, True),
        ({"group": ("wheel", "staff")}, True),
        ({"group": ("wheel",)}, False),
    ],
)
def test_a_rule_applies_if_each_of_its_lists_matches(rule: dict[str, Any], fitting: bool) -> None:
    one = JobRequest(user="alice", account="phys", partition="main,gpu-a", qos="high")
    assert fits(Rule(name="r", **rule), one, SiteFacts(groups={"staff": frozenset({"alice"})})) is fitting


@pytest.mark.parametrize(
    ("pattern", "name", "fitting"),
    [
        ("sys/dashboard/sys/bc_jupyter*", "sys/dashboard/sys/bc_jupyter", True),
        ("bc_*", "sys/dashboard/sys/BC_Jupyter", True),
        ("Dask-Worker", "dask-worker", True),
        ("parsl.*", "parsl.htex.block-0.1700000000.12", True),
        # One number stands for all: a family is on one side, and so is what is remembered for it.
        ("fit-2", "fit-3.sbatch", True),
        ("fit-2", "fit", False),
        ("nf-*", "nf-BWA_(sample_1)", True),
        ("jupyter", "my-jupyter", False),
    ],
)
def test_a_rule_may_apply_to_jobs_by_name(pattern: str, name: str, fitting: bool) -> None:
    config = site(Rule(name="left", job_name=(pattern,), mode="observe"), mode="enforce")
    terms = terms_for(JobRequest(user="alice", job_name=name), config, SiteFacts())
    assert (terms.rule, terms.mode) == (("left", "observe") if fitting else ("", "enforce"))


def test_accounts_and_qos_match_in_any_case_as_in_slurm() -> None:
    """`sbatch -A Physics --qos=HIGH` runs in physics, with high; slurmctld shows that only after it has asked us."""
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


def test_the_first_matching_rule_overrides_the_values_of_the_site() -> None:
    config = site(
        Rule(name="pilot", user=("alice",), mode="enforce", headroom=0.5),
        Rule(name="rest", memory_floor_mib=999),
        mode="advise",
    )
    pilot, rest = (terms_for(JobRequest(user=user), config, SiteFacts()) for user in ("alice", "bob"))
    assert (pilot.rule, pilot.mode, pilot.limits.headroom) == ("pilot", "enforce", 0.5)
    assert pilot.limits.memory_floor_mib == config.policy.memory_floor_mib
    assert (rest.rule, rest.mode, rest.limits.memory_floor_mib) == ("rest", "advise", 999)


def test_without_a_rule_the_values_of_the_site_hold() -> None:
    terms = terms_for(JobRequest(user="alice"), site(mode="enforce"), SiteFacts())
    assert (terms.rule, terms.mode, terms.enrolled) == ("", "enforce", True)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 100))
def test_a_family_stays_on_its_side_and_joins_as_the_percentage_grows(
    user: str, name: str, percent: int
) -> None:
    one = JobRequest(user=user, job_name=f"{name}1")
    enrolled = is_enrolled(one, percent)
    assert is_enrolled(JobRequest(user=user, job_name=f"{name}2", mem_per_node_mib=9), percent) is enrolled
    assert not enrolled or is_enrolled(one, min(100, percent + 1))
    assert is_enrolled(one, 100)
    assert not is_enrolled(one, 0)


@given(st.text(max_size=20), st.text(max_size=20), st.floats(0, 1))
def test_a_family_in_the_control_group_stays_in_it_whatever_the_rules_say(
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


def test_a_brake_overrides_rules_and_one_braked_partition_of_several_suffices() -> None:
    config = site(Rule(name="pilot", mode="enforce"))
    for brake in (EVERYTHING, partition_brake("gpu"), family_brake("ann", "fit_12")):
        facts = SiteFacts(brakes=frozenset({brake}))
        terms = terms_for(JobRequest(user="ann", job_name="fit_7", partition="main,gpu"), config, facts)
        assert (terms.mode, terms.rule, terms.brake) == ("observe", "pilot", brake)
        free = terms_for(JobRequest(user="bob", job_name="fit_7", partition="main"), config, facts)
        assert (free.mode == "enforce") is (brake != EVERYTHING)


def test_a_job_without_a_partition_is_braked_with_the_default_one() -> None:
    partitions = {"main": Partition(is_default=True), "gpu": Partition()}
    for name, mode in (("main", "observe"), ("gpu", "enforce")):
        facts = SiteFacts(partitions=partitions, brakes=frozenset({partition_brake(name)}))
        assert terms_for(JobRequest(user="ann"), site(mode="enforce"), facts).mode == mode


def test_a_job_without_a_partition_is_under_the_rule_of_the_default_one() -> None:
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


def test_a_family_that_is_not_enrolled_is_observed() -> None:
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
