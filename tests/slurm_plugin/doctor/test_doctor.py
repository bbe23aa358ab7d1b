"""`rightsizer doctor`: every check in every state, on a real registry, store, journal and socket."""

import csv
import io
import socket
import time
from pathlib import Path

import msgspec
import pytest

from slurm_plugin.doctor import look_sockets
from slurm_plugin.doctor.checks import CHECKS, judge
from slurm_plugin.doctor.finding import span
from slurm_plugin.doctor.look import look
from slurm_plugin.doctor.seen import Answer, Complaint, JournalSeen, Seen, SocketSeen, StoreSeen, SwitchSeen
from tests.conftest import Site, TrainedModel
from tests.slurm_plugin.conftest import Run
from tests.slurm_plugin.doctor.installation import Installation, Rows, listening


def states(rows: Rows) -> dict[str, str]:
    return {name: row["state"] for name, row in rows.items()}


def test_a_complete_installation_has_no_problem(whole: Installation) -> None:
    whole.site.socket.unlink()
    whole.site.serve()
    rows, code = whole.found()
    assert (states(rows), code) == (dict.fromkeys(CHECKS, "ok"), 0)
    assert str(whole.site.config_file) in rows["configuration"]["saw"]


def test_a_service_older_than_the_installed_version_is_reported(
    whole: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.site.socket.unlink()
    whole.site.serve()
    installed = whole.site.folder / "installed.py"
    installed.write_text("")
    monkeypatch.setattr(look_sockets, "INSTALLED", installed)
    service = whole.found()[0]["service"]
    assert (service["state"], "still runs the older version" in service["saw"]) == ("warning", True)
    assert "systemctl restart rightsizer" in service["fix"]
    whole.site.stop_all()
    whole.site.serve()
    assert whole.found()[0]["service"]["state"] == "ok"


def test_an_empty_site_is_told_what_to_do_for_every_check(
    site: Site, run: Run, trained_model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    rows, code = Installation(site, run, trained_model.trained).found()
    assert code == 3
    assert states(rows) == {
        **dict.fromkeys(CHECKS, "unknown"),
        "configuration": "ok",
        "kill-switch": "ok",
        "brakes": "ok",
        "journal": "warning",
        "journal-chain": "ok",
        "advisor": "ok",
        "recovery": "ok",
        "limits": "ok",
        "permissions": "ok",
        "owners": "ok",
        "space": "ok",
        **dict.fromkeys(("service", "model", "store"), "problem"),
    }
    assert rows["model"]["fix"] == "run `rightsizer train` first"
    assert rows["store"]["fix"] == "run `rightsizer ingest` first"
    # The doctor only looks, and makes nothing.
    assert {file.name for file in site.folder.iterdir()} == {"rightsizer.toml"}


@pytest.mark.parametrize(
    ("section", "key", "value", "fix"),
    [
        ("accounting", "pseudonym_key", "/nowhere/key", "config pseudonym-key FILE"),
        ("energy", "time_zone", "Europe/Berln", "timedatectl list-timezones"),
    ],
)
def test_a_setting_that_cannot_be_used_is_a_problem_as_for_config_check(
    whole: Installation, section: str, key: str, value: str, fix: str
) -> None:
    whole.site.configure(**{section: {key: value}})
    whole.expect("configuration", "problem", value, fix)
    assert whole.run("config", "check").code == 2


def test_a_configuration_that_does_not_load_is_a_problem(whole: Installation) -> None:
    whole.site.config_file.write_text("[policy]\nmemory_margn = 1\n")
    rows, code = whole.found()
    assert (rows["configuration"]["state"], code) == ("problem", 3)
    assert "policy.memory_margn" in rows["configuration"]["saw"]
    assert rows["configuration"]["fix"] == "did you mean `policy.memory_margin`?"
    assert {row["state"] for name, row in rows.items() if name != "configuration"} == {"unknown"}


def test_an_active_kill_switch_is_a_warning(whole: Installation) -> None:
    whole.run("disable")
    whole.expect("kill-switch", "warning", "every job is left unchanged: .*/disabled", "rightsizer enable")


def test_brakes_that_no_disk_takes_are_a_problem(whole: Installation) -> None:
    folder = Path(whole.site.config.brakes.directory)
    folder.touch()
    whole.expect("brakes", "problem", "brakes: brakes are lost", "chown")
    folder.unlink()
    whole.expect("brakes", "ok", "no brake is pulled")


def test_the_switch_for_clients_alone_leaves_the_hook_asking(whole: Installation) -> None:
    off, clients = whole.site.folder / "clients.off", whole.site.folder / "clients"
    whole.site.configure(client={"socket": str(clients), "kill_switch": str(off)})
    off.touch()
    with listening(clients):
        whole.expect(
            "kill-switch",
            "warning",
            "^no srun or salloc asks the service: .*clients.off",
            "rightsizer enable",
        )
        assert "a kill switch is set" not in whole.found()[0]["asked"]["saw"]
        whole.run("disable")
        whole.expect(
            "kill-switch", "warning", "every job is left unchanged: .*disabled, .*clients.off exists"
        )


def test_a_killed_service_leaves_a_dead_socket(whole: Installation) -> None:
    whole.site.socket.unlink()
    process = whole.site.serve()
    process.kill()
    process.wait()
    whole.expect("service", "problem", "socket has no listener", "restart rightsizer")


def test_a_socket_path_with_something_else_is_a_problem(whole: Installation) -> None:
    whole.site.socket.unlink()
    whole.expect("service", "problem", "does not exist", "start `rightsizer serve`")
    whole.site.socket.write_text("")
    whole.expect("service", "problem", "is not a socket", "move .*/socket away and start")


def test_a_service_that_accepts_no_more_connections_is_a_problem(whole: Installation) -> None:
    whole.site.socket.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stuck:
        stuck.bind(str(whole.site.socket))
        stuck.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(str(whole.site.socket))
        whole.expect("service", "problem", "has a full queue", "restart rightsizer")
        for client in waiting:
            client.close()


def test_the_service_for_clients_is_checked_if_there_is_one(whole: Installation) -> None:
    clients = whole.site.folder / "clients"
    whole.site.configure(client={"socket": str(clients), "kill_switch": f"{whole.site.folder}/no-clients"})
    whole.expect("service", "problem", "clients does not exist", "restart rightsizer-clients")
    with listening(clients):
        whole.expect("service", "ok", "socket answers")
        (whole.site.folder / "no-clients").touch()
        whole.expect("kill-switch", "warning", "/no-clients exists")


def seen_of(whole: Installation, **changes: object) -> Seen:
    """Return what is seen of a complete installation, with changes that a test run by root cannot make for real."""
    seen = look(whole.site.config, "read from a test", time.time())
    return msgspec.structs.replace(seen, **changes)


FORBIDDEN = Complaint("cannot read /var/lib/rightsizer: Permission denied", "run this as the service's user")
NOT_OURS: Answer = "does not admit this user"


@pytest.mark.parametrize(
    ("change", "check", "state"),
    [
        ({"switches": (SwitchSeen("/x", thrown=None),)}, "kill-switch", "unknown"),
        ({"sockets": (SocketSeen("/x", NOT_OURS, "serve", "rightsizer"),)}, "service", "unknown"),
        ({"journal": JournalSeen(folder="/x", is_there=True, is_ours=False, sizes={})}, "journal", "problem"),
        ({"journal": FORBIDDEN}, "journal", "unknown"),
        ({"model": FORBIDDEN}, "model", "problem"),
        ({"training": FORBIDDEN}, "gate", "unknown"),
    ],
    ids=str,
)
def test_a_check_without_the_needed_permission_refers_to_the_user_of_the_service(
    whole: Installation, change: dict[str, object], check: str, state: str
) -> None:
    (found,) = (one for one in judge(seen_of(whole, **change)) if one.check == check)
    assert (found.state, "as the service's user" in found.fix) == (state, True)


def test_spans_are_given_in_the_largest_unit_of_which_there_are_two() -> None:
    assert [span(one) for one in (0, 119, 120, 7199, 7200, 2 * 86400)] == [
        "0 s",
        "119 s",
        "2 minutes",
        "120 minutes",
        "2 hours",
        "2 days",
    ]


def test_rows_are_data_and_the_verdict_is_not(whole: Installation) -> None:
    whole.site.socket.unlink()
    ran = whole.run("doctor", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [row["check"] for row in rows] == list(CHECKS)
    assert (ran.code, ran.err) == (3, f"1 of {len(CHECKS)} checks found a problem\n")
    assert "service" in whole.run("doctor").out


def test_a_store_without_jobs_or_marks_has_no_ages(whole: Installation) -> None:
    empty = StoreSeen(read_until_s=None, newest_end_s=None, journal_offsets={})
    judged = {one.check: one.state for one in judge(seen_of(whole, store=empty))}
    assert (judged["ingest"], judged["newest-job"]) == ("unknown", "warning")
