"""Rows of slurmdbd's tables become what sacct would print of them."""

from typing import Any, cast

import pytest
from sqlalchemy import RowMapping

from accounting.dumps.slurmdbd_rows import COLUMNS, Names, printed
from tests.builders import T0

UNSET = 2**32 - 2
NAMES = Names(
    tres={1: "cpu", 2: "mem", 4: "node", 6: "fs/disk", 1001: "gres/gpu"}, qos={1: "normal"}, users={7: "ann"}
)
COMPLETED, CANCELLED, NODE_FAIL = 3, 4, 7
JOB: dict[str, Any] = {
    "job_db_inx": 1,
    "id_job": 17,
    "id_array_job": 0,
    "id_array_task": UNSET,
    "het_job_id": 0,
    "het_job_offset": UNSET,
    "id_user": 4_000_000,
    "id_assoc": 7,
    "account": "lab",
    "partition": "main",
    "id_qos": 1,
    "state": COMPLETED,
    "time_submit": T0 - 10,
    "time_start": T0,
    "time_end": T0 + 100,
    "time_suspended": 0,
    "timelimit": 60,
    "nodes_alloc": 1,
    "tres_req": "1=8,2=8000,4=2",
    "tres_alloc": "1=4,2=4000,4=1,1001=2",
    "job_name": "fit",
    "derived_es": "",
    "admin_comment": "",
    "kill_requid": UNSET + 1,
}
STEP: dict[str, Any] = {
    "job_db_inx": 1,
    "id_step": 0,
    "step_het_comp": UNSET,
    "state": COMPLETED,
    "time_start": T0 + 1,
    "time_end": T0 + 90,
    "time_suspended": 0,
    "nodes_alloc": 1,
    "task_cnt": 4,
    "tres_alloc": "1=4,2=4000",
    "tres_usage_in_max": "1=61500,2=1048576",
    "tres_usage_in_tot": "1=100000,2=4194304",
    "tres_usage_out_tot": "6=2097152",
    "consumed_energy": 5,
    "user_sec": 1,
    "user_usec": 800_000,
    "sys_sec": 2,
    "sys_usec": 250_000,
    "step_name": "fit",
    "kill_requid": UNSET + 1,
}


def shown(job: dict[str, Any], *steps: dict[str, Any]) -> list[dict[str, str]]:
    rows = printed(
        [cast("RowMapping", JOB | job)], [cast("RowMapping", STEP | step) for step in steps], NAMES, "alpha"
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({}, {"ReqTRES": "cpu=8,mem=8000,node=2", "NNodes": "1", "Submit": str(T0 - 10), "Start": str(T0)}),
        ({}, {"JobID": "17", "User": "ann", "QOS": "normal", "ElapsedRaw": "100", "TimelimitRaw": "60"}),
        ({"id_array_job": 12, "id_array_task": 0}, {"JobIDRaw": "17", "JobID": "12_0"}),
        ({"id_array_job": 12}, {"JobID": "17"}),
        ({"het_job_id": 16, "het_job_offset": 1}, {"JobID": "16+1"}),
        ({"id_assoc": 8}, {"User": "4000000"}),
        ({"id_qos": 9}, {"QOS": "Unknown"}),
        ({"timelimit": UNSET}, {"TimelimitRaw": ""}),
        ({"timelimit": UNSET + 1}, {"TimelimitRaw": ""}),
        ({"time_suspended": 30}, {"ElapsedRaw": "70"}),
        ({"time_start": 0, "nodes_alloc": 0, "tres_alloc": ""}, {"ElapsedRaw": "0", "Start": "None", "NNodes": "2"}),
        ({"nodes_alloc": 0}, {"NNodes": "1"}),
        ({"state": CANCELLED, "kill_requid": 0}, {"State": "CANCELLED by 0"}),
        ({"state": CANCELLED, "kill_requid": None}, {"State": "CANCELLED"}),
        ({"state": CANCELLED, "kill_requid": UNSET}, {"State": "CANCELLED"}),
        ({"kill_requid": 0}, {"State": "COMPLETED"}),
        ({"derived_es": "mine", "admin_comment": "rs1 x"}, {"Comment": "mine", "AdminComment": "rs1 x"}),
        ({"job_name": b"\xff\x00"}, {"JobName": "\\xff\\x00"}),
    ],
)  # fmt: skip
def test_a_job_is_shown_as_sacct_shows_it(job: dict[str, Any], expected: dict[str, str]) -> None:
    (row,) = shown(job)
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("number", "component", "name"),
    [(0, UNSET, "0"), (-5, UNSET, "batch"), (-4, UNSET, "extern"), (-6, UNSET, "interactive"), (3, 0, "3+0")],
)
def test_a_step_has_the_name_that_sacct_gives_it(number: int, component: int, name: str) -> None:
    assert shown({}, {"id_step": number, "step_het_comp": component})[1]["JobIDRaw"] == f"17.{name}"


def test_a_steps_use_is_read_in_the_units_of_the_database() -> None:
    job, step = shown({}, {})
    assert (job["AllocTRES"], step["AllocTRES"]) == ("cpu=4,mem=4000,node=1,gres/gpu=2", "cpu=4,mem=4000")
    assert (step["MaxRSS"], step["TRESUsageInMax"]) == ("1048576", "cpu=61,mem=1048576")
    assert (step["TRESUsageInTot"], step["TotalCPU"]) == ("cpu=100,mem=4194304", "4.050")
    assert step["TRESUsageOutTot"] == "fs/disk=2097152"
    assert (step["NTasks"], step["ConsumedEnergyRaw"]) == ("4", "5")


def test_a_step_that_ended_with_its_node_ended_as_its_job_did() -> None:
    _, step = shown({"state": NODE_FAIL}, {"time_end": 0, "state": 1})
    assert (step["State"], step["End"]) == ("NODE_FAIL", str(T0 + 100))


def test_steps_follow_their_own_job_and_one_that_never_began_is_left_out() -> None:
    assert len(shown({}, {"id_step": -3}, {"job_db_inx": 2})) == 1
