"""The table of forms: what each form of request keeps, as the hook sends it and as docs/forms.md says."""

import re
from pathlib import Path

from slurm_plugin.policy.forms import ALL, KEEPS, kept_by_form

ROOT = Path(__file__).resolve().parents[3]
LUA_FORMS = ROOT / "lua" / "rightsizer" / "forms.lua"
DOCUMENTED = ROOT / "docs" / "forms.md"


def test_an_unknown_form_keeps_everything() -> None:
    assert set(kept_by_form(["a_form_of_tomorrow"])) == ALL
    assert kept_by_form(["features", "threads_per_core"]) == {"cores": "threads_per_core"}


def test_a_job_with_specialized_cores_keeps_everything_as_it_gets_whole_nodes() -> None:
    """`-S 2 -c 8 --mem=8000` had 16 of a node's 16 CPUs, and 256 MiB (26.05 with AllowSpecResourcesUsage=yes)."""
    for name in ("core_spec", "thread_spec"):
        assert kept_by_form([name]) == dict.fromkeys(ALL, name)


def test_every_name_that_the_hook_can_send_is_in_the_table() -> None:
    words = set(re.findall(r'"([a-z][a-z_]+)"', LUA_FORMS.read_text(encoding="utf-8")))
    known = {name for name in KEEPS if name in words}
    assert {"threads_per_core", "exclusive", "oversubscribe", "cpus_per_tres", "gres_flags"} <= known


def test_the_hook_sends_no_form_that_keeps_nothing() -> None:
    words = set(re.findall(r'"([a-z][a-z_]+)"', LUA_FORMS.read_text(encoding="utf-8")))
    assert not {name for name, kept in KEEPS.items() if not kept} & words


def test_the_documented_table_is_the_one_in_use() -> None:
    rows = dict(
        re.findall(
            r"^\| `([a-z_]+)` \|[^|]*\| ([a-z, ]+) \|$", DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    said = {
        name: frozenset() if kept == "nothing" else frozenset(kept.split(", ")) for name, kept in rows.items()
    }
    assert said == KEEPS
