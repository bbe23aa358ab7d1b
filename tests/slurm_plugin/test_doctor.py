"""`rightsizer doctor`: every check in every state, on a real registry, store, journal and socket."""

import csv
import io
import json
import math
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from accounting.ingest import SACCT
from accounting.store import schema
from accounting.store.database import open_store
from accounting.store.records import write_attempts, write_rows
from models import registry
from models.card import Card, card_files, card_of
from models.demand import training
from models.drift import FeatureDrift, WeekCalibration, Word
from models.promotion import CURRENT, Verdict
from slurm_plugin.advisor.state_file import NAME
from slurm_plugin.doctor.checks import CHECKS, judge
from slurm_plugin.doctor.finding import span
from slurm_plugin.doctor.look import look
from slurm_plugin.doctor.look_advisor import STATE
from slurm_plugin.doctor.model_checks import MODEL_AGE_S
from slurm_plugin.doctor.seen import Answer, Complaint, JournalSeen, Seen, SocketSeen, StoreSeen, SwitchSeen
from slurm_plugin.doctor.store_checks import INGEST_LAG_S, NEWEST_JOB_AGE_S, UNREAD_BYTES
from slurm_plugin.slurm import factor_log
from slurm_plugin.slurm.factor_log import FactorLog
from slurm_plugin.slurm.factor_state import Entry, FactorState, Lease
from tests.builders import T0, attempt
from tests.conftest import Site, TrainedModel
from tests.slurm_plugin.conftest import Ran, Run, assert_one_line

RULES = Path(__file__).parents[2] / "etc" / "prometheus" / "rightsizer.rules.yml"
ALERTS = Path(__file__).parent / "alerts.yml"
HOUR_S = 3600
PASSED = Verdict(passed=True, opponent=CURRENT, judged=80, split_s=T0, reasons=("no worse",))
REFUSED = Verdict(passed=False, opponent=CURRENT, judged=80, split_s=T0, reasons=("memory: fails 9 of 60",))
EXCEEDED = {"stable": 5, "shifted": 11, "drifted": 50, "too few to tell": 0}
PSI = {"stable": 0.05, "shifted": 0.2, "drifted": 0.7, "too few to tell": 0.9}

Rows = dict[str, dict[str, str]]


def week(word: Word, from_s: int = T0) -> WeekCalibration:
    jobs = 50 if word == "too few to tell" else 500
    return WeekCalibration(from_s=from_s, jobs=jobs, exceeded=EXCEEDED[word], nominal=0.01, word=word)


def feature(word: Word, name: str = "hour") -> FeatureDrift:
    return FeatureDrift(feature=name, psi=PSI[word] + 0.01, by_chance=0.01, before=900, latest=200, word=word)


@dataclass(frozen=True)
class Installation:
    """A site with everything in order, and ways to change that."""

    site: Site
    run: Run
    trained: training.Trained

    def train(
        self,
        *,
        verdict: Verdict | None = PASSED,
        drift: tuple[FeatureDrift, ...] = (feature("stable"),),
        weeks: tuple[WeekCalibration, ...] = (week("stable"),),
        ago_s: float = 60,
        promote: bool = True,
    ) -> str:
        """Save a model with a card that says so of its memory."""
        real = card_of(self.trained, verdict, 0.01)
        health = msgspec.structs.replace(real.growth[0], dimension="memory", weeks=weeks)
        card: Card = msgspec.structs.replace(real, growth=(health,), drift={"memory": drift})
        return self.save(self.trained, ago_s, card_files(card), promote=promote)

    def save(
        self, trained: training.Trained, ago_s: float, card: dict[str, bytes] | None, *, promote: bool
    ) -> str:
        version = training.save(trained, self.site.models, time.time() - ago_s, card)
        if promote:
            registry.promote(self.site.models, version)
        return version

    def store(self, *, read_ago_s: float | None = 60, ended_ago_s: float | None = 600) -> None:
        """Begin a store anew, read until then, with a job that ended then."""
        (self.site.folder / "store.db").unlink(missing_ok=True)
        engine, now_s = open_store(self.site.config.store.url, create=True), int(time.time())
        with engine.begin() as connection:
            if read_ago_s is not None:
                mark = {"source": SACCT, "read_until_s": int(now_s - read_ago_s)}
                write_rows(connection, schema.windows, [mark])
            if ended_ago_s is not None:
                start_s = int(now_s - ended_ago_s) - 100
                write_attempts(connection, [attempt(submit_s=start_s - 10, start_s=start_s, elapsed_s=100)])
        engine.dispose()

    def found(self, *arguments: str) -> tuple[Rows, int]:
        """Return what the doctor finds, by check, and its exit code."""
        ran = self.run("doctor", "--format", "json", *arguments)
        rows: Rows = {row["check"]: row for row in json.loads(ran.out)}
        assert list(rows) == list(CHECKS)
        # Whoever reads of a problem reads what to do, and whoever reads of none is left alone.
        assert all(
            bool(row["fix"]) == (row["state"] in ("warning", "problem"))
            for row in rows.values()
            if row["state"] != "unknown"
        )
        assert (ran.code == 3) == any(row["state"] == "problem" for row in rows.values())
        return rows, ran.code

    def expect(self, check: str, state: str, said: str, fix: str = "") -> None:
        """The doctor finds this, and nothing else that is a problem or a warning."""
        rows, code = self.found()
        assert rows[check]["state"] == state, rows[check]
        assert re.search(said, rows[check]["saw"]), rows[check]
        assert re.search(fix, rows[check]["fix"]), rows[check]
        others = {name: row for name, row in rows.items() if name != check}
        assert [row for row in others.values() if row["state"] in ("warning", "problem")] == []
        assert code == (3 if state == "problem" else 0)


@pytest.fixture
def whole(site: Site, run: Run, trained_model: TrainedModel) -> Iterator[Installation]:
    installation = Installation(site, run, trained_model.trained)
    installation.store()
    installation.train()
    (site.folder / "journal").mkdir()
    with listening(site.socket):
        yield installation


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(8)
    return server


def states(rows: Rows) -> dict[str, str]:
    return {name: row["state"] for name, row in rows.items()}


def test_a_whole_installation_has_nothing_wrong(whole: Installation) -> None:
    whole.site.socket.unlink()
    whole.site.serve()
    rows, code = whole.found()
    assert (states(rows), code) == (dict.fromkeys(CHECKS, "ok"), 0)
    assert str(whole.site.config_file) in rows["configuration"]["saw"]


def test_where_nothing_is_yet_everything_says_what_to_do(
    site: Site, run: Run, trained_model: TrainedModel
) -> None:
    rows, code = Installation(site, run, trained_model.trained).found()
    assert code == 3
    assert states(rows) == {
        **dict.fromkeys(CHECKS, "unknown"),
        "configuration": "ok",
        "kill-switch": "ok",
        "journal": "warning",
        "advisor": "ok",
        **dict.fromkeys(("service", "model", "store"), "problem"),
    }
    assert rows["model"]["fix"] == "run `rightsizer train` first"
    assert rows["store"]["fix"] == "run `rightsizer ingest` first"
    # It looks, and makes nothing.
    assert {file.name for file in site.folder.iterdir()} == {"rightsizer.toml"}


def test_a_configuration_that_does_not_load_is_a_problem(whole: Installation) -> None:
    whole.site.config_file.write_text("[policy]\nmemory_margn = 1\n")
    rows, code = whole.found()
    assert (rows["configuration"]["state"], code) == ("problem", 3)
    assert "policy.memory_margn" in rows["configuration"]["saw"]
    assert rows["configuration"]["fix"] == "did you mean `policy.memory_margin`?"
    assert {row["state"] for name, row in rows.items() if name != "configuration"} == {"unknown"}


def test_a_thrown_kill_switch_is_a_warning(whole: Installation) -> None:
    whole.run("disable")
    whole.expect("kill-switch", "warning", "every job is left alone: .*/disabled", "rightsizer enable")


def test_a_service_that_was_killed_leaves_a_dead_socket(whole: Installation) -> None:
    whole.site.socket.unlink()
    process = whole.site.serve()
    process.kill()
    process.wait()
    whole.expect("service", "problem", "socket is dead", "restart rightsizer")


def test_what_is_no_socket_is_a_problem(whole: Installation) -> None:
    whole.site.socket.unlink()
    whole.expect("service", "problem", "is not there", "start `rightsizer serve`")
    whole.site.socket.write_text("")
    whole.expect("service", "problem", "is no socket", "move .*/socket away and start")


def test_a_service_that_takes_no_more_connections_is_a_problem(whole: Installation) -> None:
    whole.site.socket.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stuck:
        stuck.bind(str(whole.site.socket))
        stuck.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(str(whole.site.socket))
        whole.expect("service", "problem", "is full", "restart rightsizer")
        for client in waiting:
            client.close()


def test_the_clients_service_is_looked_at_where_there_is_one(whole: Installation) -> None:
    clients = whole.site.folder / "clients"
    whole.site.configure(client={"socket": str(clients), "kill_switch": f"{whole.site.folder}/no-clients"})
    whole.expect("service", "problem", "clients is not there", "restart rightsizer-clients")
    with listening(clients):
        whole.expect("service", "ok", "socket answers")
        (whole.site.folder / "no-clients").touch()
        whole.expect("kill-switch", "warning", "/no-clients exists")


def test_a_damaged_model_is_a_problem(whole: Installation) -> None:
    version = registry.current_version(whole.site.models)
    assert version is not None
    with (whole.site.models / version / "history.json").open("ab") as history:
        history.write(b" ")
    whole.expect("model", "problem", "differs from its digest", "rightsizer train")
    rows, _ = whole.found()
    assert (rows["model-age"]["state"], rows["poisoning"]["state"]) == ("unknown", "unknown")


def test_an_old_model_is_a_warning(whole: Installation) -> None:
    shutil.rmtree(whole.site.models)
    whole.train(ago_s=MODEL_AGE_S + HOUR_S)
    whole.expect("model-age", "warning", "was trained 14 days ago", "rightsizer-train.timer")


def test_a_refused_training_is_a_warning(whole: Installation) -> None:
    version = whole.train(verdict=REFUSED, ago_s=30, promote=False)
    whole.expect(
        "gate", "warning", f"refused .*{version}: memory: fails 9 of 60", f"rightsizer models {version}"
    )
    registry.promote(whole.site.models, version)
    whole.expect("gate", "ok", r"made current all the same by .* \(by hand\)")


def test_a_gate_that_was_not_asked_is_said(whole: Installation) -> None:
    version = whole.train(verdict=None, ago_s=30)
    whole.expect("gate", "ok", f"not asked of the newest model, {version}")


@pytest.mark.parametrize(
    ("word", "state"),
    [("stable", "ok"), ("shifted", "warning"), ("drifted", "warning"), ("too few to tell", "unknown")],
)
def test_drift_is_what_the_newest_card_says(whole: Installation, word: Word, state: str) -> None:
    version = whole.train(drift=(feature("stable", "day"), feature(word)), ago_s=30)
    if word == "too few to tell":
        version = whole.train(drift=(feature(word),), ago_s=20)
    said = {"shifted": "memory: hour 0.20", "drifted": "memory: hour 0.70", "stable": "none"}.get(
        word, "too few"
    )
    whole.expect("drift", state, said)
    if state != "unknown":
        whole.expect("drift", state, f"at the training of {version}, jobs until")


@pytest.mark.parametrize(
    ("word", "state"),
    [("stable", "ok"), ("shifted", "warning"), ("drifted", "problem"), ("too few to tell", "unknown")],
)
def test_calibration_is_the_last_weeks_that_can_tell(whole: Installation, word: Word, state: str) -> None:
    before: Word = "too few to tell" if state == "unknown" else "drifted" if word == "stable" else "stable"
    later = week("too few to tell", T0 + 2)
    whole.train(weeks=(week(before), week(word, T0 + 1), later), ago_s=30)
    share = {"stable": "1.0% of 500", "shifted": "2.2%", "drifted": "10.0%"}.get(word, "too few")
    whole.expect("calibration", state, share)


def test_a_model_without_a_card_is_unknown(whole: Installation) -> None:
    whole.save(whole.trained, 30, None, promote=True)
    for check in ("gate", "drift", "calibration"):
        whole.expect(check, "unknown", "was made without a card", "rightsizer train")


def test_a_card_of_another_version_is_unknown(whole: Installation) -> None:
    whole.save(whole.trained, 30, {"card.json": b'{"verdict": null}'}, promote=True)
    whole.expect("drift", "unknown", "another version's", "rightsizer train")


def test_users_set_apart_are_named(whole: Installation) -> None:
    fitted = dict(whole.trained.fitted)
    known = msgspec.structs.replace(fitted["memory"].known, apart=("ann", "bob"))
    fitted["memory"] = msgspec.structs.replace(fitted["memory"], known=known)
    trained = msgspec.structs.replace(whole.trained, fitted=fitted)
    card = card_files(card_of(whole.trained, PASSED, 0.01))
    whole.save(trained, 30, card, promote=True)
    whole.expect("poisoning", "ok", "set apart, .*: memory: ann, bob$")


def test_the_doctor_looks_at_the_file_that_the_advisor_writes() -> None:
    assert STATE == NAME


def advised(
    whole: Installation, *, factors: int, stamped_ago_s: float = 0.0, cycle_ago_s: float = 10.0
) -> Path:
    """Let an advisor have set factors, and have gone through a cycle."""
    folder = Path(whole.site.config.advisor.directory)
    now = factor_log.now()
    stamped = msgspec.structs.replace(now, since_boot_s=now.since_boot_s - stamped_ago_s)
    state = FactorState(
        cluster="alpha",
        entries=tuple(Entry(number, 0, (16,)) for number in range(factors)),
        lease=Lease(stamped, 600.0),
    )
    FactorLog(folder, "alpha").change(lambda _: state)
    (folder / STATE).write_text("{}", encoding="utf-8")
    then_s = time.time() - cycle_ago_s
    os.utime(folder / STATE, (then_s, then_s))
    return folder


def test_an_advisor_that_goes_on_is_well(whole: Installation) -> None:
    whole.expect("advisor", "ok", "not in use")
    advised(whole, factors=3)
    whole.expect("advisor", "ok", "10 s ago, 3 SiteFactors are in force")


def test_factors_that_have_outlived_their_lease_are_a_problem(whole: Installation) -> None:
    advised(whole, factors=3, stamped_ago_s=700)
    whole.expect("advisor", "problem", "3 SiteFactors .* outlived its lease", "rightsizer advise --undo")


def test_an_advisor_that_fell_silent_is_a_warning_but_not_for_ever(whole: Installation) -> None:
    advised(whole, factors=0, cycle_ago_s=2 * HOUR_S)
    whole.expect("advisor", "warning", "last cycle was 2 hours ago", "systemctl status rightsizer-advise")
    advised(whole, factors=0, cycle_ago_s=50 * HOUR_S)
    whole.expect("advisor", "ok", "2 days ago")


def test_a_damaged_state_of_the_advisor_is_a_problem(whole: Installation) -> None:
    (advised(whole, factors=1) / factor_log.STATE).write_text("{", encoding="utf-8")
    whole.expect("advisor", "problem", "is damaged", "remove the file")


def test_cycles_that_are_not_ingested_are_a_warning(whole: Installation) -> None:
    folder = advised(whole, factors=0)
    with (folder / "cycles-20260101.jsonl").open("wb") as file:
        file.truncate(UNREAD_BYTES + 1)
    whole.expect("advisor-journal", "warning", "64.0 MiB of cycles", "rightsizer ingest")


def test_a_store_that_cannot_be_read_is_a_problem(whole: Installation) -> None:
    (whole.site.folder / "store.db").write_text("no database " * 500)
    whole.expect("store", "problem", "not a database")
    rows, _ = whole.found()
    assert [rows[name]["state"] for name in ("ingest", "newest-job", "journal")] == [
        "unknown",
        "unknown",
        "ok",
    ]


def test_a_store_of_an_older_version_is_left_as_it_is(whole: Installation) -> None:
    engine = open_store(whole.site.config.store.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0002'")
    engine.dispose()
    for _ in range(2):
        whole.expect("store", "problem", "schema of an older version", "rightsizer ingest")


@pytest.mark.parametrize(
    ("store", "check", "state", "said"),
    [
        ({"read_ago_s": INGEST_LAG_S + HOUR_S}, "ingest", "warning", "read until 3 hours ago"),
        ({"read_ago_s": -HOUR_S}, "ingest", "warning", "read until in 60 minutes"),
        ({"read_ago_s": None}, "ingest", "unknown", "never read"),
        ({"ended_ago_s": NEWEST_JOB_AGE_S + HOUR_S}, "newest-job", "warning", "ended 4 days ago"),
        ({"ended_ago_s": None}, "newest-job", "warning", "has no job"),
    ],
    ids=str,
)
def test_a_store_that_is_behind(
    whole: Installation, store: dict[str, float | None], check: str, state: str, said: str
) -> None:
    whole.store(**store)
    whole.expect(check, state, said)


def test_a_journal_that_nobody_ingests_is_a_warning(whole: Installation) -> None:
    journal = whole.site.folder / "journal" / "decisions-20260101.jsonl"
    with journal.open("wb") as file:
        file.truncate(UNREAD_BYTES + 1)  # a hole, which takes no room
    whole.expect("journal", "warning", r"64\.0 MiB of .* are not ingested", "rightsizer ingest")
    engine = open_store(whole.site.config.store.url)
    with engine.begin() as connection:
        write_rows(connection, schema.journals, [{"file": journal.name, "read_bytes": UNREAD_BYTES}])
    engine.dispose()
    whole.expect("journal", "ok", r"^0\.0 MiB")


def test_a_missing_journal_is_a_warning(whole: Installation) -> None:
    (whole.site.folder / "journal").rmdir()
    whole.expect("journal", "warning", "there is no ", "start the service")


def seen_of(whole: Installation, **changes: object) -> Seen:
    """What is seen of a whole installation, changed where a test that may be root's cannot change it for real."""
    seen = look(whole.site.config, "read from a test", time.time())
    return msgspec.structs.replace(seen, **changes)


FORBIDDEN = Complaint(
    "cannot look at /var/lib/rightsizer: Permission denied", "run this as the service's user"
)
NOT_OURS: Answer = "is not ours to ask"


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
def test_what_others_may_not_look_at_is_for_the_services_user(
    whole: Installation, change: dict[str, object], check: str, state: str
) -> None:
    (found,) = (one for one in judge(seen_of(whole, **change)) if one.check == check)
    assert (found.state, "as the service's user" in found.fix) == (state, True)


def test_spans_are_said_in_the_largest_unit_that_has_two() -> None:
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


def metrics_of(file: Path) -> dict[tuple[str, str], float]:
    """Samples by name and the value of their label; each has its help and is a gauge."""
    found = {}
    for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
        assert family.documentation.endswith(".") or "0.25" in family.documentation
        assert family.type == "gauge"
        for sample in family.samples:
            found[sample.name, "".join(sample.labels.values())] = sample.value
    return found


def wrote(whole: Installation, code: int) -> dict[tuple[str, str], float]:
    file = whole.site.folder / "rightsizer.prom"
    ran: Ran = whole.run("doctor", "--metrics", str(file))
    assert ran.code == code
    # Nothing half-written is beside it.
    assert [one.name for one in whole.site.folder.glob("*prom*")] == [file.name]
    return metrics_of(file)


def test_metrics_say_the_same(whole: Installation) -> None:
    drift, weeks = (feature("drifted"), feature("stable", "day")), (week("shifted"),)
    shutil.rmtree(whole.site.models)
    whole.train(drift=drift, weeks=weeks, ago_s=7200)
    whole.store(read_ago_s=4 * HOUR_S, ended_ago_s=5 * HOUR_S)
    (whole.site.folder / "journal" / "decisions-20260101.jsonl").write_bytes(b"x" * 77)
    found = wrote(whole, 0)
    checks = {label: value for (name, label), value in found.items() if name == "rightsizer_check"}
    assert checks == {
        **dict.fromkeys(CHECKS, 0.0),
        "drift": 1.0,
        "calibration": 1.0,
        "ingest": 1.0,
    }
    assert found["rightsizer_feature_drift", "memory"] == pytest.approx(PSI["drifted"])
    assert found["rightsizer_week_beyond_model_ratio", "memory"] == 11 / 500
    assert found["rightsizer_week_allowed_ratio", "memory"] == 0.01
    assert found["rightsizer_users_apart", "memory"] == 0
    assert found["rightsizer_journal_unread_bytes", ""] == 77
    for name, age_s in (("model_age", 7200), ("ingest_lag", 4 * HOUR_S), ("newest_job_age", 5 * HOUR_S)):
        assert found[f"rightsizer_{name}_seconds", ""] == pytest.approx(age_s, abs=60)
    assert found["rightsizer_doctor_time_seconds", ""] == pytest.approx(time.time(), abs=60)


def test_what_is_not_known_is_no_figure(whole: Installation) -> None:
    wrote(whole, 0)
    whole.site.config_file.write_text("nonsense")
    found = wrote(whole, 3)
    assert found["rightsizer_check", "configuration"] == 2
    assert math.isnan(found["rightsizer_check", "model"])
    assert {name for name, _ in found} == {"rightsizer_check", "rightsizer_doctor_time_seconds"}


def test_metrics_that_cannot_be_written_are_an_expected_failure(whole: Installation) -> None:
    missing = whole.site.folder / "nowhere" / "x.prom"
    assert_one_line(whole.run("doctor", "--metrics", str(missing)), 1, "cannot write metrics to .*nowhere")


def test_every_alert_is_on_a_metric_that_the_doctor_writes(whole: Installation) -> None:
    expressions = re.findall(r"^ +expr: (.*)$", RULES.read_text(encoding="utf-8"), re.MULTILINE)
    asked = {name for one in expressions for name in re.findall(r"rightsizer_\w+", one)}
    assert len(expressions) == 5
    assert asked <= {name for name, _ in wrote(whole, 0)}
    checks = {check for one in expressions for check in re.findall(r'check!?="(.*?)"', one)}
    assert checks == {"calibration"} <= set(CHECKS)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here (Debian: prometheus)")
@pytest.mark.parametrize(
    "arguments", [["check", "rules", str(RULES)], ["test", "rules", str(ALERTS)]], ids=" ".join
)
def test_prometheus_alerts_as_the_rules_say(arguments: list[str]) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_store_without_jobs_or_marks_has_no_ages(whole: Installation) -> None:
    empty = StoreSeen(read_until_s=None, newest_end_s=None, journal_offsets={})
    judged = {one.check: one.state for one in judge(seen_of(whole, store=empty))}
    assert (judged["ingest"], judged["newest-job"]) == ("unknown", "warning")
