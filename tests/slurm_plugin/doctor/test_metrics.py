"""The doctor's results as metrics, and the alerts on them."""

import math
import re
import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurm_plugin.brakes.evidence import Evidence
from slurm_plugin.brakes.pools import Pool, Portion
from slurm_plugin.brakes.pulled import FILE, Pulled, PulledFile
from slurm_plugin.brakes.tallies import Counts, Tally
from slurm_plugin.brakes.watch import EVIDENCE, Kept
from slurm_plugin.doctor.checks import CHECKS
from slurm_plugin.policy.braked import family_brake
from tests.slurm_plugin.conftest import Ran, assert_one_line
from tests.slurm_plugin.doctor.installation import HOUR_S, PSI, Installation, feature, week

RULES = Path(__file__).parents[3] / "etc" / "prometheus" / "rightsizer.rules.yml"
ALERTS = Path(__file__).parent / "alerts.yml"


def metrics_of(file: Path) -> dict[tuple[str, str], float]:
    """Return samples by name and the value of their label; check that each has a help text and is a gauge."""
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
    # No half-written file is left next to it.
    assert [one.name for one in whole.site.folder.glob("*prom*")] == [file.name]
    return metrics_of(file)


def test_the_metrics_agree_with_the_table(whole: Installation) -> None:
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


def test_brakes_and_their_counts_are_metrics(whole: Installation) -> None:
    folder = Path(whole.site.config.brakes.directory)
    for name in ("fit", "sim"):
        brake = family_brake("ann", name)
        PulledFile(folder).pull(Pulled(brake=brake, time_s=time.time(), why="by hand"))
    counts = Counts(shrunk=9, failed=2, wanted=1, whole=5, whole_failed=1)
    pool = Pool(tally=Tally(counts=counts), portions={"ann": Portion(0.0, counts)})
    (folder / EVIDENCE).write_bytes(msgspec.json.encode(Kept(Evidence(of_all=pool))))
    found = wrote(whole, 0)
    assert [found["rightsizer_brakes_pulled", level] for level in ("family", "partition", "all")] == [2, 0, 0]
    assert found["rightsizer_judged_jobs", "shrunk"] == 18
    assert found["rightsizer_check", "brakes"] == 1
    (folder / EVIDENCE).write_text("{")
    (folder / FILE).write_text("{")
    found = wrote(whole, 3)
    assert found["rightsizer_brakes_pulled", "all"] == 1
    assert ("rightsizer_judged_jobs", "shrunk") not in found


def test_an_unknown_value_is_not_a_metric(whole: Installation) -> None:
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
    assert len(expressions) == 7
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
