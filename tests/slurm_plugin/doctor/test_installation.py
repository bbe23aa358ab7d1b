"""`rightsizer doctor` on what surrounds the service: slurm.conf, the hook, whether it asks, timers, permissions."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from accounting.decisions.decision import encode_decision
from slurm_plugin.doctor.hook_checks import asked, tokens
from slurm_plugin.doctor.installation_checks import timers
from slurm_plugin.doctor.look_installation import ANSWERS, FAILS, in_control_elsewhere
from slurm_plugin.doctor.metrics import registry_of
from slurm_plugin.doctor.permission_checks import permissions
from slurm_plugin.doctor.seen import PathSeen, SlurmSeen, StoreSeen
from tests.builders import decision, executable
from tests.slurm_plugin.doctor.surrounded import Surrounded, found_without_capabilities
from tests.slurm_plugin.surroundings import (
    conf_folder,
    say_counts,
    say_settings,
    say_units,
    told_time,
)

HOUR_S = 3600.0


def test_a_silent_slurmctld_leaves_all_these_checks_unknown(surrounded: Surrounded) -> None:
    (surrounded.site.folder / "tools" / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    found = surrounded.findings()
    assert {found[name].state for name in ("slurm.conf", "hook", "asked")} == {"unknown"}


def test_a_backup_controller_that_does_not_share_the_kill_switch_is_a_warning(surrounded: Surrounded) -> None:
    two = {"SlurmctldHost[0]": "head1(10.0.0.1)", "SlurmctldHost[1]": "head2"}
    # A file system of its own on every Linux.
    say_settings(surrounded.site, **two, StateSaveLocation="/proc/self")
    said = r"head1\(10\.0\.0\.1\), head2, .* not on a shared file system: .*disabled, .*brakes, .*models"
    surrounded.expect("controllers", "warning", said, "rightsizer disable.*on each")
    say_settings(surrounded.site, **two, StateSaveLocation=str(surrounded.site.folder))
    surrounded.expect("controllers", "ok", "share the kill switch")
    say_settings(surrounded.site, **{"SlurmctldHost[0]": "head1"}, StateSaveLocation="/proc/self")
    surrounded.expect("controllers", "ok", "one host")


def test_a_missing_hook_is_a_problem(surrounded: Surrounded) -> None:
    beside = conf_folder(surrounded.site)
    (beside / "rightsizer" / "checks.lua").unlink()
    surrounded.expect("hook", "problem", "lacks checks.lua: jobs are not changed", "copy job_submit.lua")
    (beside / "job_submit.lua").unlink()
    surrounded.expect("hook", "problem", "slurmctld would fail at its next start", "copy job_submit.lua")


def test_an_unreadable_hook_is_not_taken_for_a_missing_one(surrounded: Surrounded) -> None:
    """As root makes it by the steps of docs/admin.md under umask 077."""
    beside = conf_folder(surrounded.site)
    assert found_without_capabilities(surrounded.site)["hook"]["state"] == "ok"
    (beside / "rightsizer_site.lua").chmod(0)
    (beside / "rightsizer").chmod(0)
    found = found_without_capabilities(surrounded.site)["hook"]
    (beside / "rightsizer").chmod(0o755)
    paths = f"{beside}/rightsizer_site.lua", f"{beside}/rightsizer"
    assert found["state"] == "problem"
    assert found["saw"].startswith(f"cannot read {', '.join(paths)}: ")
    assert f"chmod -R a+rX {' '.join(paths)}" in found["fix"]


def test_a_hook_of_another_version_is_a_warning(surrounded: Surrounded) -> None:
    with (conf_folder(surrounded.site) / "rightsizer" / "plan.lua").open("a") as module:
        module.write("-- older\n")
    surrounded.expect("hook", "warning", "slurm differ .*: rightsizer/plan.lua$", "touch job_submit.lua")


def test_a_hook_of_an_older_release_with_fewer_modules_is_a_warning_whatever_calls_it(
    surrounded: Surrounded,
) -> None:
    """None of its modules needs the new one, so it runs: jobs do not pass unchanged, and no part of it is elsewhere."""
    beside = conf_folder(surrounded.site)
    module = beside / "rightsizer" / "job_desc.lua"
    needs = 'local users = require("rightsizer.users")\n'
    older = module.read_text().replace(needs, "")
    assert needs not in older != module.read_text()
    (beside / "rightsizer" / "users.lua").unlink()
    surrounded.expect("hook", "problem", "lacks users.lua: jobs are not changed", "copy job_submit.lua and")
    module.write_text(older)
    stale = "rightsizer/job_desc.lua, rightsizer/users.lua$"
    surrounded.expect("hook", "warning", stale, r"^copy \S+/lua/ to")
    (beside / "job_submit.lua").write_text('pcall(require, "rightsizer.hook")\n')
    surrounded.expect(
        "hook", "warning", stale, r"^copy \S+/lua/rightsizer to .* older version of ours\), write"
    )


def test_a_script_of_the_site_may_call_our_hook_from_elsewhere(surrounded: Surrounded) -> None:
    beside = conf_folder(surrounded.site)
    shutil.rmtree(beside / "rightsizer")
    surrounded.expect(
        "hook", "problem", "rightsizer/ lacks .*: jobs are not changed", "^copy job_submit.lua and"
    )
    (beside / "job_submit.lua").write_text('pcall(require, "rightsizer.hook")\n')
    surrounded.expect("hook", "ok", "calls rightsizer from another folder")


def test_settings_of_another_configuration_are_a_warning(surrounded: Surrounded) -> None:
    surrounded.site.configure(hook={"deadline_ms": 50})
    surrounded.expect("hook", "warning", "rightsizer_site.lua$", "rightsizer config hook")
    (conf_folder(surrounded.site) / "rightsizer_site.lua").write_text("\n")
    surrounded.expect("hook", "problem", "rightsizer_site.lua is empty: jobs are not changed", "config check")
    (conf_folder(surrounded.site) / "rightsizer_site.lua").unlink()
    surrounded.expect("hook", "problem", "jobs are not changed", "rightsizer config hook >")


def test_a_script_of_the_site_must_call_our_hook(surrounded: Surrounded) -> None:
    script = conf_folder(surrounded.site) / "job_submit.lua"
    script.write_text("function slurm_job_submit() return 0 end\n")
    surrounded.expect("hook", "warning", "does not call rightsizer.hook", "copy ours")
    call = 'require("rightsizer.hook").submit(job_desc, part_list, submit_uid)'
    script.write_text(f"{call}\n")
    surrounded.expect(
        "hook", "warning", "without pcall: .* 26.05 rejects all jobs", "comment at the top of our"
    )
    script.write_text(f"pcall(function() {call} end)\n")
    surrounded.expect("hook", "ok", "has the installed version")


def test_modules_that_slurmctld_may_not_have_loaded_are_a_warning(surrounded: Surrounded) -> None:
    later_s, soon_s = time.time() + HOUR_S, time.time() + 30
    module = conf_folder(surrounded.site) / "rightsizer" / "plan.lua"
    os.utime(module, (soon_s, soon_s))
    surrounded.expect("hook", "ok", "has the installed version")  # copied together, one after the other
    os.utime(module, (later_s, later_s))
    surrounded.expect("hook", "warning", "may still run older modules", "touch .*job_submit.lua")
    os.utime(conf_folder(surrounded.site) / "job_submit.lua", (later_s, later_s))
    surrounded.expect("hook", "ok", "has the installed version")


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("form", ["", "relative", "%H:%M"])
# Both are half past two on this clock, which is put back at three.
@pytest.mark.parametrize("booted", ["2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00"])
def test_the_start_of_slurmctld_is_known_at_any_hour_and_in_any_format(
    surrounded: Surrounded, booted: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", form)
    booted_s = int(datetime.fromisoformat(booted).timestamp())
    say_settings(surrounded.site, BOOT_TIME=told_time(booted_s))
    beside = conf_folder(surrounded.site)
    files = [beside / "job_submit.lua", *(beside / "rightsizer").glob("*.lua")]
    for file in files:
        os.utime(file, (booted_s - HOUR_S, booted_s - HOUR_S / 2))
    surrounded.expect("hook", "ok", "has the installed version")
    os.utime(files[1], (booted_s, booted_s + HOUR_S / 2))
    surrounded.expect("hook", "warning", "may still run older modules", "touch .*job_submit.lua")


def journal(surrounded: Surrounded, ago_s: float) -> None:
    time_s = time.time() - ago_s
    file = surrounded.site.folder / "journal" / time.strftime("decisions-%Y%m%d.jsonl", time.gmtime(time_s))
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(encode_decision(decision(time_s=time_s)) + b'{"torn')


def test_a_service_that_nobody_asks_is_a_problem(surrounded: Surrounded) -> None:
    journal(surrounded, 2 * HOUR_S)
    surrounded.expect("asked", "ok", "asked last: 2 hours ago")
    for few, ago_s in ((19, HOUR_S), (500, 30)):  # all of them late, or on their way
        say_counts(surrounded.site, submitted=few, since_s=time.time() - ago_s)
        surrounded.expect("asked", "ok", "asked last: 2 hours ago")
    say_counts(surrounded.site, submitted=500, since_s=time.time() - HOUR_S)
    surrounded.expect("asked", "problem", "none of 500 submissions in 60 minutes", "rightsizer_site.lua")
    Path(surrounded.site.config.hook.kill_switch).touch()
    surrounded.expect("asked", "ok", "a kill switch is set")
    Path(surrounded.site.config.hook.kill_switch).unlink()
    journal(surrounded, 60)
    surrounded.expect("asked", "ok", "asked 60 s ago|asked 6. s ago")
    age_s = registry_of(surrounded.look(), [], time.time()).get_sample_value(
        "rightsizer_decision_age_seconds"
    )
    assert age_s == pytest.approx(60, abs=30)


def test_jobs_need_no_token_while_a_kill_switch_is_set(surrounded: Surrounded) -> None:
    store = StoreSeen(read_until_s=None, newest_end_s=None, journal_offsets={}, latest_unnamed=50)
    assert tokens(replace(surrounded.look(), store=store))[0] == "warning"
    Path(surrounded.site.config.hook.kill_switch).touch()
    assert tokens(replace(surrounded.look(), store=store))[0] == "ok"


@pytest.mark.parametrize(
    ("states", "host", "found"),
    [
        (("UP", "UP"), "head1", ""),
        (("UP", "UP"), "head2", "head1.site"),
        (("DOWN", "UP"), "head1", "head2.site"),
        (("DOWN", "UP"), "head2.other", ""),
        (("UP", "UP"), "login", ""),
        (("DOWN", "DOWN"), "head2", ""),
        (("UP",), "head1", ""),
    ],
)
def test_the_first_controller_that_is_up_is_in_control(
    states: tuple[str, ...], host: str, found: str
) -> None:
    told = "\n".join(
        f"Slurmctld({'backup' if number else 'primary'}) at head{number + 1}.site is {state}"
        for number, state in enumerate(states)
    )
    assert in_control_elsewhere(f"SlurmctldPort           = 6817\n\n{told}\n", host) == found


def test_the_host_of_a_controller_that_stands_by_need_not_be_asked(surrounded: Surrounded) -> None:
    say_counts(surrounded.site, submitted=500, since_s=time.time() - HOUR_S)
    seen = surrounded.look()
    assert isinstance(seen.slurm, SlurmSeen)
    assert asked(seen)[0] == "problem"
    assert asked(replace(seen, slurm=replace(seen.slurm, in_control="head1")))[:2] == (
        "ok",
        "slurmctld is in control on head1, and asks the service there",
    )


def test_a_user_who_may_not_read_the_journal_is_not_told_that_nobody_asks(surrounded: Surrounded) -> None:
    journal(surrounded, 2 * HOUR_S)
    say_counts(surrounded.site, submitted=500, since_s=time.time() - HOUR_S)
    seen = surrounded.look()
    assert isinstance(seen.slurm, SlurmSeen)
    closed = replace(seen.slurm.asked, last_decision_s=None, closed="decisions-20261122.jsonl")
    judged = asked(replace(seen, slurm=replace(seen.slurm, asked=closed)))
    assert judged[0] == "unknown"
    assert "you may not read decisions-20261122.jsonl" in judged[1]
    assert seen.slurm.asked.closed == ""


# In the formats of LogTimeFormat; the last one has no year.
STAMPS: dict[str, Callable[[datetime], str]] = {
    "iso8601_ms": lambda moment: moment.replace(tzinfo=None).isoformat(timespec="milliseconds"),
    "iso8601": lambda moment: moment.replace(tzinfo=None).isoformat(timespec="seconds"),
    "rfc5424_ms": lambda moment: moment.isoformat(timespec="milliseconds"),
    "short": lambda moment: moment.strftime("%b %d %H:%M:%S"),
}


def opened(moment_s: float, form: str = "iso8601_ms") -> str:
    """Return the line by which slurmctld's log says that the hook has stopped asking the service."""
    stamp = STAMPS[form](datetime.fromtimestamp(moment_s, timezone.utc).astimezone())
    return f"[{stamp}] lua: {FAILS}: jobs pass as they were submitted\n"


def test_an_open_breaker_is_a_problem(surrounded: Surrounded) -> None:
    log, now_s = surrounded.site.folder / "slurmctld.log", time.time()
    say_settings(surrounded.site, BOOT_TIME=told_time(int(now_s - HOUR_S)))
    log.write_text(f"x\n{opened(now_s + 60)}y\n")
    surrounded.expect("asked", "problem", "has stopped asking the service: .*: jobs pass", "deadline_ms")
    with log.open("a") as more:
        more.write(f"[2026-11-22T10:00:30.000] lua: {ANSWERS}\n")
    surrounded.expect("asked", "ok", "")


@pytest.mark.parametrize("form", STAMPS)
def test_a_breaker_that_opened_before_the_hook_was_loaded_again_does_not_count(
    surrounded: Surrounded, form: str
) -> None:
    opened_s = time.time() + HOUR_S
    (surrounded.site.folder / "slurmctld.log").write_text(opened(opened_s, form))
    later = "problem" if form == "short" else "ok"
    say_settings(surrounded.site, BOOT_TIME=told_time(int(opened_s + 60)))
    surrounded.expect("asked", later, "")
    say_settings(surrounded.site, BOOT_TIME=told_time(int(opened_s - 60)))
    surrounded.expect("asked", "problem", "has stopped asking the service")
    os.utime(conf_folder(surrounded.site) / "job_submit.lua", (opened_s + 60, opened_s + 60))
    surrounded.expect("asked", later, "")


def test_inactive_timers_are_a_warning_and_failed_runs_a_problem(surrounded: Surrounded) -> None:
    say_units(surrounded.site, rightsizer_ingest_timer="inactive", rightsizer_train_timer="inactive")
    surrounded.expect(
        "timers", "warning", r"ingest.timer, rightsizer-train.timer", "enable --now rightsizer-ingest.timer"
    )
    say_units(surrounded.site, rightsizer_ingest_timer="inactive", rightsizer_ingest_watch_service="active")
    surrounded.expect("timers", "ok", "scheduled")
    say_units(surrounded.site, rightsizer_train_service="failed")
    surrounded.expect("timers", "problem", "train.service failed", "journalctl -u rightsizer-train.service")
    (surrounded.site.folder / "tools" / "systemctl").write_text("#!/bin/sh\nexit 1\n")
    surrounded.expect("timers", "unknown", "systemd does not run here")


@pytest.mark.parametrize(
    ("timer", "failed", "read_after_s", "state"),
    [
        ("inactive", "ingest", 60, "ok"),
        ("inactive", "ingest", -60, "problem"),
        ("inactive", "ingest", None, "problem"),
        ("inactive", "train", 60, "problem"),
        # Its next run will show.
        ("active", "ingest", 60, "problem"),
    ],
)
def test_a_failed_ingest_is_no_problem_if_accounting_was_read_another_way_since(
    surrounded: Surrounded, timer: str, failed: str, read_after_s: int | None, state: str
) -> None:
    failed_s = int(time.time() - time.monotonic() / 2)  # systemd counts from the boot
    say_units(
        surrounded.site,
        ended_s=failed_s,
        **{
            "rightsizer_ingest_timer": timer,
            "rightsizer_ingest_watch_service": "active",
            f"rightsizer_{failed}_service": "failed",
        },
    )
    store = StoreSeen(
        read_until_s=None if read_after_s is None else failed_s + read_after_s,
        newest_end_s=None,
        journal_offsets={},
    )
    assert timers(replace(surrounded.look(), store=store))[0] == state


def test_unreadable_limits_are_reported_before_the_service_starts_without_them(
    surrounded: Surrounded,
) -> None:
    surrounded.expect("limits", "ok", "not needed")
    surrounded.site.configure(service={"limits_needed": True})
    executable(surrounded.site.folder / "tools" / "sacctmgr", "#!/bin/sh\necho 'no slurmdbd' >&2\nexit 1\n")
    executable(surrounded.site.folder / "tools" / "scontrol", "#!/bin/sh\n")
    surrounded.expect("limits", "warning", "site-not-known.*: sacctmgr failed: no slurmdbd;", "slurmdbd")
    executable(surrounded.site.folder / "tools" / "sacctmgr", "#!/bin/sh\n")
    surrounded.expect("limits", "ok", "can be read")


def test_files_that_others_may_read_or_write_are_reported(surrounded: Surrounded) -> None:
    folder = surrounded.site.folder
    models = Path(surrounded.site.config.models.directory)
    models.mkdir()
    (folder / "journal").mkdir()
    (folder / "store.db").touch()
    for path, mode in (
        (folder, 0o755),
        (models, 0o755),
        (folder / "journal", 0o750),
        (folder / "store.db", 0o640),
    ):
        path.chmod(mode)
    surrounded.expect("permissions", "warning", "read .*/models, which holds the names", "chmod o= .*/models")
    models.chmod(0o750)
    surrounded.expect("permissions", "ok", "")
    surrounded.site.config_file.chmod(0o644)
    surrounded.site.configure(accounting={"slurmdbd_url": "mysql+pymysql://reader:hunter2@db/slurm_acct_db"})
    surrounded.expect("permissions", "warning", "holds a database's password", "store.url_file")
    assert "hunter2" not in str(surrounded.findings())
    surrounded.site.configure(
        accounting={"slurmdbd_url": "mysql+pymysql://reader@db/slurm_acct_db?Password=hunter2"}
    )
    surrounded.expect("permissions", "warning", "holds a database's password", "store.url_file")
    surrounded.site.config_file.chmod(0o646)
    surrounded.expect("permissions", "problem", "every user may write .*rightsizer.toml", "chmod o-w")
    folder.chmod(0o700)
    surrounded.expect("permissions", "ok", "neither read nor write")


def test_a_socket_that_everybody_may_open_is_a_warning(surrounded: Surrounded) -> None:
    wide = PathSeen(path="/run/x", kind="socket", others_read=True, others_write=True)
    assert permissions(msgspec.structs.replace(surrounded.look(), paths=(wide,)))[0] == "warning"
