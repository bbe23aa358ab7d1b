"""The configuration: strict, and clear about what is wrong."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting.errors import ConfigError
from slurm_plugin.config.file import (
    SYSTEM_CONFIG,
    config_path,
    known_keys,
    load_config,
    parse_config,
    render_config,
)
from slurm_plugin.config.settings import Config, LentPartition, Policy, Rule

SHIPPED = Path(__file__).resolve().parents[3] / "etc" / "rightsizer.toml"


def test_the_shipped_file_holds_the_defaults_and_names_every_key() -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    assert parse_config(text) == Config()
    keys = known_keys()
    for key in keys:
        is_table = any(other.startswith(f"{key}.") for other in keys)
        if "." in key and not is_table:
            assert re.search(rf"^(?:# )?{key.rpartition('.')[2]} =", text, re.MULTILINE), key


def test_the_shipped_file_says_which_keys_of_the_policy_a_rule_cannot_have() -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    _, _, said = text.partition("# from here on the keys of [policy], but for ")
    lacking = set(Policy.__struct_fields__) - set(Rule.__struct_fields__)
    assert set(re.findall(r"\w+_\w+", said.partition("which hold for all")[0])) == lacking
    example = text[text.index("# [[rules]]") : text.index("# from here on")]
    assert parse_config(re.sub(r"^# ?", "", example, flags=re.MULTILINE)).rules[0].headroom == 0.25


def test_the_shipped_example_of_a_lent_partition_has_the_default_risk() -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    example = text[text.index("# [[lent_partitions]]") :]
    (lent,) = parse_config(re.sub(r"^# ?", "", example, flags=re.MULTILINE)).lent_partitions
    assert lent == LentPartition(name="scavenge", jobs_of=("batch",))


def test_an_empty_file_means_the_defaults() -> None:
    assert parse_config("") == Config()


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ('[service]\nsockt = "x"', "did you mean `service.socket`"),
        ('[servce]\nsocket = "x"', "unknown key `servce`; did you mean `service`"),
        ('mod = "enforce"', "did you mean `mode`"),
        ("[models.scaling]\nalfa = 0.2", "did you mean `models.scaling.alpha`"),
        ("[[job_types]]\njobname = []", "did you mean `job_types.job_name`"),
        ("[models.scaling.alpha]\nx = 1", "unknown key `models.scaling.alpha.x`"),
        ("[policy]\nmemory_marging = 0.2", "did you mean `policy.memory_margin`"),
        ("xyzzy = 1", "`rightsizer config show` lists all keys"),
        ('[mode]\nx = "enforce"', "unknown key `mode.x`"),
    ],
)
def test_a_typo_names_the_key_and_the_nearest_one(text: str, near: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(near)):
        parse_config(text, "site.toml")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[models]\nmin_evidence = "5"', "$.models.min_evidence"),
        ("[models]\nmin_evidence = true", "$.models.min_evidence"),
        ("[models]\nmin_evidence = 1.5", "$.models.min_evidence"),
        ('mode = "Enforce"', "$.mode"),
        ("service = 3", "$.service"),
        ("[[service]]", "$.service"),
        ("[service]\nsocket = 3", "$.service.socket"),
    ],
)
def test_a_value_of_the_wrong_type_names_its_key(text: str, key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)) as caught:
        parse_config(text, "site.toml")
    assert str(caught.value).startswith("site.toml: ")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("key", "bad", "good"),
    [
        ("hook.deadline_ms", ["0", "-1", "1001"], ["1", "1000"]),
        ("models.min_evidence", ["0", "-3"], ["1"]),
        ("models.recent_jobs", ["0"], ["1"]),
        ("policy.memory_margin", ["-0.1", "nan", "inf", "15"], ["0", "2.5"]),
        ("policy.cores_margin", ["-0.1", "nan", "-inf"], ["0.0"]),
        ("policy.memory_floor_mib", ["0", "-128", "1000000001"], ["1", "1000000000"]),
        ("policy.memory_step_mib", ["0"], ["1"]),
        ("policy.min_saving", ["-0.01", "1.01", "nan"], ["0", "1"]),
        ("policy.def_mem_per_cpu_mib", ["-1"], ["0", "4000"]),
        ("accounting.overlap_s", ["-1", "99999999999"], ["0"]),
        ("accounting.first_days", ["0", "36501"], ["1", "36500"]),
        ("accounting.late_days", ["-1"], ["0", "30"]),
        ("store.keep_days", ["-1", "36501", "1" + 30 * "0"], ["0", "36500"]),
        ("models.keep_days", ["0", "36501"], ["1", "36500"]),
        ("models.scaling.alpha", ["0", "1", "nan", "-0.5"], ["0.05", "0.99"]),
        ("models.scaling.step", ["0", "1.0"], ["0.01"]),
        ("models.scaling.theta", ["0", "-0.1", "inf"], ["0.05"]),
        ("service.socket", ['""', '"rightsizer.sock"', '"/a\\u0000b"'], ['"/run/a.sock"']),
        ("client.socket", ['"./clients.sock"'], ['""', '"/run/c.sock"']),
        ("hook.kill_switch", ['""', '"off"'], ['"/run/off"']),
        ("client.kill_switch", ['""', '"./off"'], ['"/etc/off"']),
        ("service.journal", ['""', '"journal"', '"~/journal"'], ['"/srv/journal"']),
        ("models.directory", ['"./models"'], ['"/srv/models"']),
        ("brakes.directory", ['"brakes"'], ['"/srv/brakes"']),
        ("recovery.directory", ['"recovery"'], ['"/srv/recovery"']),
        ("advisor.directory", ['"advisor"'], ['"/srv/advisor"']),
        ("accounting.gpu_spool", ['"spool"'], ['"/srv/spool"']),
        ("service.journal_key", ['"key"'], ['""', '"/etc/key"']),
        ("store.url_file", ['"url"'], ['""', '"/etc/url"']),
        ("models.recent_jobs", ["0", "10001"], ["1", "10000"]),
        ("models.scaling.most_error", ["0", "nan"], ["0.3"]),
        (
            "service.socket_mode",
            ['"rw"', '"0999"', '"66"', '"00660"', '""', '"0660\\n"'],
            ['"0660"', '"666"'],
        ),
    ],
)
def test_values_out_of_range_are_refused_with_their_key(key: str, bad: list[str], good: list[str]) -> None:
    section, _, name = key.rpartition(".")
    for value in bad:
        with pytest.raises(ConfigError, match=re.escape(f"$.{key}")):
            parse_config(f"[{section}]\n{name} = {value}")
    for value in good:
        parse_config(f"[{section}]\n{name} = {value}")


def test_a_lease_that_ends_before_the_next_cycle_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"lease_s \(600\) must be more than period_s \(600\) - at `\$.advisor`"
    ):
        parse_config("[advisor]\nperiod_s = 600")
    parse_config("[advisor]\nperiod_s = 900\nlease_s = 3600")


def test_more_evidence_than_a_family_remembers_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"min_evidence \(101\) must not be more than recent_jobs \(100\) - at `\$.models`",
    ):
        parse_config("[models]\nmin_evidence = 101")
    parse_config("[models]\nmin_evidence = 101\nrecent_jobs = 101")


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ('[[lent_partitions]]\nname = "a"\njobs_of = ["b", "a"]', "a is listed in its own jobs_of"),
        ('[[lent_partitions]]\nname = "a"\njobs_of = []', "set both, with at least one partition"),
        (2 * '[[lent_partitions]]\nname = "a"\njobs_of = ["b"]\n', "has a twice"),
    ],
)
def test_a_partition_that_lends_to_itself_to_nobody_or_twice_is_refused(tables: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_config(tables)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('mode = "Enforce"', "one of observe, advise, enforce"),
        ('[advisor]\nobjective = "x"', "one of slowdown, wait, utilisation, deadlines, energy"),
        ('[[rules]]\nname = "a"\nmode = "x"', "one of observe, advise, enforce"),
    ],
)
def test_an_invalid_choice_lists_the_valid_ones(text: str, values: str) -> None:
    with pytest.raises(ConfigError, match=values):
        parse_config(text)


def test_text_that_is_not_toml_names_the_line() -> None:
    with pytest.raises(ConfigError, match=r"not valid TOML.*line 2"):
        parse_config("mode = 'observe'\nmode enforce\n", "site.toml")


def test_a_repeatable_table_in_single_brackets_is_told_to_use_double_ones() -> None:
    with pytest.raises(ConfigError, match=r"write \[\[rules\]\], in double brackets$"):
        parse_config("[rules]\npartition = ['gpu']\n")


def test_a_byte_order_mark_before_the_configuration_is_read_over(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_bytes(b'\xef\xbb\xbfmode = "advise"\n')
    assert load_config(str(tmp_path / "site.toml")).mode == "advise"


def test_a_file_that_cannot_be_read_is_reported_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match="cannot read the configuration"):
            load_config(str(path))
    (tmp_path / "latin.toml").write_bytes(b'mode = "\xff"')
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(str(tmp_path / "latin.toml"))


def test_the_given_path_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGHTSIZER_CONFIG", str(tmp_path / "environment.toml"))
    assert config_path("given.toml") == Path("given.toml")
    assert config_path() == tmp_path / "environment.toml"


def test_a_file_of_the_system_that_is_hidden_from_this_user_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.delenv("RIGHTSIZER_CONFIG", raising=False)
    monkeypatch.setattr(Path, "lstat", hidden)
    assert config_path() == SYSTEM_CONFIG


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@example("\x7f", "\x1f\n", 1, 0.0, 0.0, None)
@given(TEXT, TEXT, st.integers(1, 1000), st.floats(0, 4), st.floats(0, 1), st.none() | st.integers(0, 10**6))
def test_a_rendered_configuration_is_read_back_unchanged(
    socket: str, url: str, deadline_ms: int, margin: float, saving: float, share: int | None
) -> None:
    document: dict[str, Any] = {
        "mode": "enforce",
        "service": {"socket": f"/{socket}.sock"},
        "store": {"url": url},
        "hook": {"deadline_ms": deadline_ms},
        "models": {"scaling": {"theta": margin + 0.1}},
        "lent_partitions": [{"name": f"{url}-lent", "jobs_of": [url]}],
        "job_types": [{"name": "train", "job_name": [url], "account": [socket]}],
        "policy": {"memory_margin": margin, "min_saving": saving, "def_mem_per_cpu_mib": share},
    }
    config = msgspec.convert(document, Config)
    assert parse_config(render_config(config)) == config
