"""What the doctor says of the advisor and its changes to the queue."""

import os
import time
from pathlib import Path

import msgspec

from slurm_plugin.advisor.state_file import NAME
from slurm_plugin.doctor.look_advisor import STATE
from slurm_plugin.doctor.store_checks import UNREAD_BYTES
from slurm_plugin.slurm import factor_log
from slurm_plugin.slurm.factor_log import FactorLog
from slurm_plugin.slurm.factor_state import Entry, FactorState
from slurm_plugin.slurm.lease import Lease
from tests.slurm_plugin.doctor.installation import HOUR_S, Installation


def test_the_doctor_looks_at_the_file_that_the_advisor_writes() -> None:
    assert STATE == NAME


def advised(
    whole: Installation, *, factors: int, stamped_ago_s: float = 0.0, cycle_ago_s: float = 10.0
) -> Path:
    """Simulate an advisor that has set factors, and has completed a cycle."""
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


def test_an_advisor_that_still_runs_is_fine(whole: Installation) -> None:
    whole.expect("advisor", "ok", "not in use")
    advised(whole, factors=3)
    whole.expect("advisor", "ok", "10 s ago, 3 SiteFactors are set")
    # One that has nothing to undo, and whose periods are long.
    whole.site.configure(advisor={"period_s": 600, "lease_s": 1200})
    advised(whole, factors=0, stamped_ago_s=700, cycle_ago_s=2000)
    whole.expect("advisor", "ok", "33 minutes ago, 0 SiteFactors are set")


def test_factors_that_have_outlived_their_lease_are_a_problem(whole: Installation) -> None:
    advised(whole, factors=3, stamped_ago_s=700)
    whole.expect("advisor", "problem", "3 SiteFactors .* lease has expired", "rightsizer advise --undo")


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
