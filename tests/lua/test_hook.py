"""What the hook asks and does under each Lua interpreter: golden frames, odd users, careless admins."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from models.past.families import script_signature
from slurm_plugin.policy.script_floors import read_floors
from slurm_plugin.sbatch.script import read_submission
from slurm_plugin.sbatch.wire_text import SCRIPT_BYTES, as_sent, clean
from slurm_plugin.service.protocol import Request, decode_request
from tests.builders import submission
from tests.lua.conftest import (
    HERE,
    ORDINARY,
    REPOSITORY,
    WIRE,
    Fields,
    Service,
    Slurmctld,
    install,
    reply_with,
    unchanged,
)
from tests.lua.fuzz_run import fuzz

# --- golden frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", ["", "cjson"], ids=["cjson", "dkjson"])
def test_the_hook_sends_the_golden_requests(lua: str, folder: Path, hidden: str) -> None:
    script = install(folder)
    # Users without a name come first: the hook remembers the name of each uid.
    cases = sorted(WIRE["requests"], key=lambda case: case["job_desc"].get("user_name", "") is not None)
    with (
        Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service,
        Slurmctld(lua, script, hidden) as ctld,
    ):
        for case in cases:
            result = ctld.submit(case["job_desc"])
            assert (result["rc"], result["writes"], result["lines"]) == (0, {}, []), case["name"]
            request = json.loads(service.requests[-1])
            assert request["job"] == case["job"], case["name"]
            assert {key: request[key] for key in ("v", "kind")} == {"v": 1, "kind": "submit"}
            assert not any(isinstance(value, float) for value in request["job"].values()), case["name"]
    ids = [json.loads(line)["id"] for line in service.requests]
    assert len(set(ids)) == len(ids) == len(WIRE["requests"])
    assert all(len(name) == 16 and not set(name) - set("0123456789abcdef") for name in ids)


@pytest.mark.parametrize("hidden", ["", "cjson"], ids=["cjson", "dkjson"])
def test_golden_replies_have_the_golden_effect(lua: str, folder: Path, hidden: str) -> None:
    accepted = [case for case in WIRE["replies"] if case["accept"]]
    script = install(folder)
    with Service(folder / "s", reply_with("")) as service, Slurmctld(lua, script, hidden) as ctld:
        for case in accepted:
            pad_bytes = case.get("pad_bytes", 0)
            service.answer = reply_with(case["reply"], pad_bytes)
            result = ctld.submit(case["job_desc"])
            writes = json.loads(json.dumps(case["writes"]).replace("{pad}", "x" * pad_bytes))
            assert (result["rc"], result["writes"], result["lines"]) == (0, writes, []), case["name"]
            assert result["shown"] == ([case["user_message"]] if "user_message" in case else []), case["name"]


@pytest.mark.parametrize("hidden", ["", "cjson"], ids=["cjson", "dkjson"])
def test_golden_replies_are_refused_for_the_golden_reason(lua: str, folder: Path, hidden: str) -> None:
    script = install(folder)
    refused = [case for case in WIRE["replies"] if not case["accept"]]
    with Service(folder / "s", reply_with("")) as service:
        for case in refused:
            pad_bytes = case.get("pad_bytes", 0)
            service.answer = reply_with(case["reply"], pad_bytes, newline=case.get("newline", True))
            # A new process for each: three refusals in a row would open the breaker.
            with Slurmctld(lua, script, hidden) as ctld:
                result = ctld.submit(case["job_desc"])
                assert unchanged(result, case["reason"], case["writes"]), case["name"]


def test_the_working_directory_is_sent_only_if_the_site_wants_it(lua: str, folder: Path) -> None:
    folders: list[Any] = [
        "/home/ann",
        "",
        None,
        "/" + "x" * 1023,
        "/" + "x" * 1024,
        {"hex": b"/a\xff\n".hex()},
    ]
    told: dict[bool, list[str | None]] = {}
    for wanted in (False, True):
        script = install(
            folder, f'return {{ socket = "{folder}/s", deadline_ms = 1000, inputs = {str(wanted).lower()} }}'
        )
        with (
            Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service,
            Slurmctld(lua, script) as ctld,
        ):
            for work_dir in folders:
                assert ctld.submit({"work_dir": work_dir})["lines"] == []
        told[wanted] = [json.loads(line)["job"].get("work_dir") for line in service.requests]
        shutil.rmtree(folder / "rightsizer")
        (folder / "s").unlink(missing_ok=True)
    assert told == {
        False: [None] * len(folders),
        True: ["/home/ann", None, None, "/" + "x" * 1023, None, "/a?\n"],
    }


# --- what users may write -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        {"hex": bytes(range(256)).hex()},
        {"hex": b"\xff\xfe\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80ok\xc3\xa9".hex()},
        {"hex": b'";}\n{\\"v":1}\r\n\'$(reboot)`'.hex()},
        {"fill": "\x01", "times": 4_000_000},
        {"fill": "\xe9\U0001f600", "times": 500_000},
        {"fill": "/", "times": 100_000},
    ],
    ids=["every_byte", "invalid_utf8", "quotes", "4MB_of_controls", "long_utf8", "slashes"],
)
def test_hostile_text_is_sent_and_changes_nothing_else(lua: str, folder: Path, text: Fields) -> None:
    script = install(folder)
    job = ORDINARY | dict.fromkeys(("name", "comment", "account", "partition", "qos", "script"), text)
    with Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service, Slurmctld(lua, script) as ctld:
        result = ctld.submit(job)
    assert (result["rc"], result["writes"], result["lines"]) == (0, {}, [])
    (line,) = service.requests
    assert len(line) <= 65536
    assert line.count(b"\n") == 1
    request = json.loads(line.decode("utf-8"))
    assert set(request) == {"v", "id", "kind", "job"}
    assert all(len(request["job"][name].encode()) <= 1024 for name in ("name", "comment", "qos"))
    assert 0 < len(request["job"]["script"].encode()) <= 2 * SCRIPT_BYTES + 1


LONG_SCRIPTS = {
    "whole": b"#!/bin/sh\n" + b"echo a\n" * 2338 + b"a",
    "one_byte_more": b"#!/bin/sh\n" + b"echo a\n" * 2339,
    "steps_at_the_end": b"#!/bin/sh\n" + b"# remark\n" * 5000 + b"srun -n 1 -c 6 --mem=7G ./fit\n",
    "a_character_cut_at_the_front": b"#!/bin/sh\n" + "x é\U0001f600".encode() * 5000,
    "and_at_the_end": b"#!/bin/sh\n\n\n" + "\U0001f600".encode() * 5000 + b"abc",
    "no_utf8": b"#!/bin/sh\n" + b"\xff\xe9\n" * 9000,
}


@pytest.mark.parametrize("script", LONG_SCRIPTS.values(), ids=LONG_SCRIPTS)
def test_a_long_script_is_sent_by_its_beginning_and_end(lua: str, folder: Path, script: bytes) -> None:
    installed = install(folder)
    with (
        Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service,
        Slurmctld(lua, installed) as ctld,
    ):
        ctld.submit(ORDINARY | {"script": {"hex": script.hex()}})
    (line,) = service.requests
    request = decode_request(line)
    assert isinstance(request, Request)
    sent = request.job.script
    assert sent == as_sent(submission(), script).script
    beginning = script[:SCRIPT_BYTES].decode(errors="ignore")
    assert sent.startswith(beginning) or b"\xff" in script
    assert script_signature(sent) == script_signature(clean(script, SCRIPT_BYTES))
    assert sent.endswith(script[-3000:].decode(errors="ignore")) or b"\xff" in script
    assert read_floors(sent, 1) == read_floors(clean(script, len(script)), 1)


def test_invalid_bytes_become_question_marks(lua: str, folder: Path) -> None:
    script = install(folder)
    with Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service, Slurmctld(lua, script) as ctld:
        ctld.submit({"name": {"hex": b"a\xffb\xc3\xa9\xc3".hex()}, "comment": {"fill": "\xe9", "times": 513}})
        ctld.submit({"comment": {"hex": (b"x" + "é".encode() * 512).hex()}})
    first, second = (json.loads(line)["job"] for line in service.requests)
    assert (first["name"], first["comment"]) == ("a?bé?", "é" * 512)
    assert second["comment"] == "x" + "é" * 511


# --- what an admin may get wrong ------------------------------------------------------------------------


def test_a_missing_module_folder_leaves_the_job_alone(lua: str, folder: Path) -> None:
    script = install(folder)
    shutil.rmtree(folder / "rightsizer")
    with Slurmctld(lua, script) as ctld:
        assert ctld.start["loaded"]
        assert len(ctld.start["lines"]) == 1
        result = ctld.submit(ORDINARY)
    assert (result["rc"], result["writes"], result["lines"]) == (0, {}, [])


@pytest.mark.parametrize(
    ("site", "said"),
    [
        ("return {", "rightsizer_site.lua has a mistake: "),
        ("error('x')", "rightsizer_site.lua has a mistake: "),
        ("return 7", "the site file does not return a table"),
        ("return {}", "socket must be the path of the service's socket"),
        ("return { socket = 7 }", "socket must be the path of the service's socket"),
        ('return { socket = "/s", deadline_ms = 0 }', "deadline_ms must lie between 1 and 1000"),
        ('return { socket = "/s", deadline_ms = 0/0 }', "deadline_ms must lie between 1 and 1000"),
        ('return { socket = "/s", kill_switch = 7 }', "kill_switch must be a path"),
    ],
)
def test_an_unusable_site_file_leaves_the_job_alone(lua: str, folder: Path, site: str, said: str) -> None:
    with Slurmctld(lua, install(folder, site)) as ctld:
        assert ctld.start["loaded"]
        [line] = ctld.start["lines"]
        assert said in str(line)
        if "mistake" in said:
            assert "rightsizer_site.lua:1:" in str(line), "where it is"
        result = ctld.submit(ORDINARY)
    assert (result["rc"], result["writes"], result["lines"]) == (0, {}, [])


def test_a_missing_site_file_leaves_the_job_alone(lua: str, folder: Path) -> None:
    script = install(folder)
    (folder / "rightsizer_site.lua").unlink()
    with Slurmctld(lua, script) as ctld:
        [line] = ctld.start["lines"]
    assert "no readable rightsizer_site.lua" in str(line)


@pytest.mark.parametrize(
    ("hidden", "reason"),
    [
        ("socket.unix", "no_socket_library"),
        ("socket", "no_socket_library"),
        ("cjson,dkjson", "no_json_library"),
    ],
)
def test_a_missing_library_leaves_the_job_alone(lua: str, folder: Path, hidden: str, reason: str) -> None:
    with Slurmctld(lua, install(folder), hidden) as ctld:
        assert ctld.start["lines"] == []
        assert unchanged(ctld.submit(ORDINARY), reason)


def test_the_kill_switch_keeps_the_service_from_being_asked(lua: str, folder: Path) -> None:
    script = install(folder)
    grant = reply_with('{"v":1,"id":"{id}","grant":{"mem_per_node_mib":512}}')
    with Service(folder / "s", grant) as service, Slurmctld(lua, script) as ctld:
        (folder / "off").touch()
        result = ctld.submit(ORDINARY)
        assert (result["rc"], result["writes"], result["lines"]) == (0, {}, [])
        assert service.requests == []
        (folder / "off").unlink()
        assert ctld.submit(ORDINARY)["writes"] == {"min_mem_per_node": 512}


def test_a_job_modification_is_left_alone(lua: str, folder: Path) -> None:
    with Slurmctld(lua, install(folder)) as ctld:
        assert ctld.start["modify"] == 0


def test_the_hook_works_through_links_and_from_a_script_of_the_site(lua: str, folder: Path) -> None:
    grant = reply_with('{"v":1,"id":"{id}","grant":{"mem_per_node_mib":512}}')
    linked = folder / "linked"
    linked.mkdir()
    (linked / "job_submit.lua").symlink_to(REPOSITORY / "lua" / "job_submit.lua")
    (linked / "rightsizer").symlink_to(REPOSITORY / "lua" / "rightsizer")
    (linked / "rightsizer_site.lua").write_text(f'return {{ socket = "{folder}/s", deadline_ms = 1000 }}')
    own = folder / "own.lua"
    own.write_text(
        f'package.path = "{REPOSITORY}/lua/?.lua;{linked}/?.lua;" .. package.path\n'
        "function slurm_job_submit(job_desc, part_list, submit_uid)\n"
        '   assert(require("rightsizer.hook").submit(job_desc, part_list, submit_uid) == true)\n'
        "   return slurm.SUCCESS\nend\n"
        "function slurm_job_modify() return slurm.SUCCESS end\n"
    )
    with Service(folder / "s", grant):
        for script in (linked / "job_submit.lua", own):
            with Slurmctld(lua, script) as ctld:
                result = ctld.submit(ORDINARY)
            assert (result["rc"], result["writes"]) == (0, {"min_mem_per_node": 512})


def test_a_script_of_the_site_accepts_jobs_without_our_modules(lua: str, folder: Path) -> None:
    """The call is the one shown at the top of our script: an error in it would refuse the job on 26.05."""
    shown = (REPOSITORY / "lua" / "job_submit.lua").read_text()
    [call] = re.findall(r"^--    (.*rightsizer\.hook.*submit\(job_desc.*)$", shown, re.MULTILINE)
    own = folder / "own.lua"
    own.write_text(
        f"function slurm_job_submit(job_desc, part_list, submit_uid)\n   {call}\n   return slurm.SUCCESS\nend\n"
        "function slurm_job_modify() return slurm.SUCCESS end\n"
    )
    with Slurmctld(lua, own) as ctld:
        result = ctld.submit(ORDINARY)
    assert (result["rc"], result["writes"]) == (0, {})


@pytest.mark.parametrize(
    ("hint", "fields"),
    [
        ("compute_bound", {"threads_per_core": 1}),
        ("memory_bound", {"cores_per_socket": 1, "threads_per_core": 1}),
        # sbatch sets INFINITE16: as many tasks on a core as fit.
        ("multithread", {"ntasks_per_core": 0xFFFF}),
        ("nomultithread", {"threads_per_core": 1}),
    ],
)
def test_a_hint_keeps_what_predict_says_that_it_keeps(
    lua: str, folder: Path, hint: str, fields: Fields
) -> None:
    """`fields` are what sbatch makes of the hint, by verify_hint in Slurm's proc_args.c."""
    with (
        Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service,
        Slurmctld(lua, install(folder)) as ctld,
    ):
        ctld.submit(fields)
    told = json.loads(service.requests[-1])["job"].get("other", [])
    assert told == list(read_submission("#!/bin/sh\n", "fit.sh", "ann", [f"--hint={hint}"]).other)


# --- fuzz and unit specs --------------------------------------------------------------------------------


def test_random_jobs_and_random_replies_keep_all_rules(lua: str) -> None:
    done = fuzz(lua, cases=4000, seed=20261120)
    assert done.returncode == 0, done.stdout


def test_random_jobs_at_a_socket_keep_all_rules(lua: str, folder: Path) -> None:
    with Service(folder / "s", reply_with('{"v":1,"id":"{id}","grant":{}}')) as service:
        done = fuzz(lua, cases=200, seed=20261120, socket=str(folder / "s"))
    assert (done.returncode, "unchanged 200" in done.stdout) == (0, True), done.stdout
    assert len(service.requests) == 200


@pytest.mark.parametrize("spec", ["parts.lua", "breaker.lua"])
def test_every_check_of_the_pure_parts_passes(lua: str, spec: str) -> None:
    done = subprocess.run(
        [lua, spec, ".", str(REPOSITORY / "lua")],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
