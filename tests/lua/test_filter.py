"""The clients' filter in real Lua interpreters: golden frames, and no word or change if anything is wrong."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PATIENCE_S
from tests.lua.conftest import HERE, REPOSITORY, WIRE, Fields, Service, reply_with

WORD = "rightsizer-cli=0123456789ab"
# The longest deadline possible: a busy machine may need it even for an answer that is ready.
DEADLINE_MS = 1000
# On a busy machine the longest deadline that a site may set sometimes passes before anything is sent.
TRIES = 3
ORDINARY: Fields = {"cpus-per-task": "8", "mem": "8000"}
GRANT = (
    '{"v":1,"id":"{id}","grant":{"cpus_per_task":2,"mem_per_node_mib":512},'
    f'"token":"{WORD}","message":"less"}}'
)
LOWERED = {"cpus-per-task": "2", "mem": "512M", "comment": WORD}


def install(folder: Path, settings: str | None = None) -> Path:
    """Copy the filter into `folder` as an admin would."""
    shutil.copy(REPOSITORY / "lua" / "cli_filter.lua", folder)
    shutil.copytree(REPOSITORY / "lua" / "rightsizer", folder / "rightsizer")
    own = f'socket = "{folder}/s", deadline_ms = {DEADLINE_MS}, kill_switch = "{folder}/off", salloc = true'
    text = own if settings is None else settings
    (folder / "rightsizer_clients.lua").write_text(f"return {{ {text} }}\n")
    return folder / "cli_filter.lua"


class Client:
    """The driver: a Lua process that has loaded cli_filter.lua and plays one client after another."""

    def __init__(
        self,
        lua: str,
        script: Path,
        hidden: str = "",
        environment: dict[str, str] | None = None,
        word: str = "",
        folder: str = "/",
    ) -> None:
        command = [lua, str(HERE / "client_driver.lua"), str(HERE), str(script), hidden, word]
        outside = {name: text for name, text in os.environ.items() if not name.startswith(("SLURM", "LUA"))}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**outside, **(environment or {})},
        )
        self.others: Any = self._answer()

    def run(self, options: Fields, kind: str = "srun", **more: Any) -> Fields:
        """Start a client with these options; return what the filter returned, wrote and showed, and its reason."""
        assert self._process.stdin is not None
        line = json.dumps({"type": kind, "options": options, "argv": ["./fit"], **more})
        print(line, file=self._process.stdin, flush=True)
        result: Fields = self._answer()
        assert (result["rc"], result["raised"]) == (0, False)
        return result

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the Lua process ended"
        return json.loads(line)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def client(lua: str, folder: Path) -> Iterator[Client]:
    with Client(lua, install(folder)) as client:
        yield client


def left_alone(result: Fields, reason: str | None = None) -> bool:
    """Whether nothing was changed and nobody was told."""
    assert (result["writes"], result["shown"]) == ({}, [])
    assert reason is None or [line.rpartition(": ")[2] for line in result["reasons"]] == [reason]
    return True


@pytest.mark.parametrize("frame", WIRE["cli_requests"], ids=lambda frame: frame["name"])
def test_each_golden_request_is_what_the_filter_sends(frame: Fields, client: Client, folder: Path) -> None:
    with Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service:
        for _ in range(TRIES):
            assert left_alone(client.run(frame["options"], frame["type"], argv=frame["argv"]))
            if service.requests:
                break
    [line] = service.requests
    request = json.loads(line)
    assert (request["v"], request["kind"], request["job"]) == (1, "cli", frame["job"])


@pytest.mark.parametrize("frame", WIRE["cli_replies"], ids=lambda frame: frame["name"])
def test_each_golden_reply_is_carried_out_whole_or_not_at_all(
    frame: Fields, client: Client, folder: Path
) -> None:
    with Service(folder / "s", reply_with(frame["reply"])):
        result = client.run(frame["options"])
    if "reason" in frame:
        assert left_alone(result, frame["reason"])
    else:
        assert result["writes"] == frame["writes"]


def test_the_user_is_told_and_the_other_functions_exist(client: Client, folder: Path) -> None:
    assert client.others == [0, 0]
    with Service(folder / "s", reply_with(GRANT)):
        result = client.run(ORDINARY)
    assert (result["writes"], result["shown"]) == (LOWERED, ["less"])


@pytest.mark.parametrize("kind", ["sbatch", "scrontab", "other"])
def test_the_service_is_not_asked_about_other_commands(kind: str, client: Client, folder: Path) -> None:
    with Service(folder / "s", reply_with(GRANT)) as service:
        assert left_alone(client.run(ORDINARY, kind))
    assert service.requests == []


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "SLURM_JOBID"])
def test_the_service_is_not_asked_about_a_step(variable: str, lua: str, folder: Path) -> None:
    with (
        Client(lua, install(folder), environment={variable: "7"}) as client,
        Service(folder / "s", reply_with(GRANT)) as service,
    ):
        assert left_alone(client.run(ORDINARY))
    assert service.requests == []


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"options": {**ORDINARY, "jobid": "7"}}, "inside_an_allocation"),
        ({"options": {**ORDINARY, "comment": "night Rightsize=OFF"}}, "opted_out"),
        ({"options": {**ORDINARY, "clusters": "east,west"}}, "another_cluster"),
        ({"options": ORDINARY, "offset": 1}, "het_job"),
        ({"options": ORDINARY, "json": "nothing"}, "options_unreadable"),
        ({"options": ORDINARY, "json": "[1]"}, "options_unreadable"),
    ],
)
def test_the_service_is_not_asked_about_what_is_not_understood(
    more: Fields, reason: str, client: Client, folder: Path
) -> None:
    with Service(folder / "s", reply_with(GRANT)) as service:
        result = client.run(**more)
        if more.get("json") != "[1]":
            assert left_alone(result, reason)
            assert service.requests == []
        assert left_alone(result)


@pytest.mark.parametrize("argv", [["/opt/fit"], ["fit"], ["./fit", "/all"]])
def test_a_direct_job_is_named_by_its_command(argv: list[str], client: Client, folder: Path) -> None:
    with Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service:
        client.run({}, argv=argv)
    job = json.loads(service.requests[0])["job"]
    assert (job["name"], job["script"]) == ("fit", " ".join(argv))


def test_an_option_that_is_not_text_keeps_its_dimension(client: Client, folder: Path) -> None:
    with Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service:
        client.run({}, json='{"mem":null,"depth":null,"argv":["./fit"]}')
    assert json.loads(service.requests[0])["job"]["other"] == ["depth", "mem_unreadable"]


def test_a_file_of_hosts_counts_the_nodes(lua: str, folder: Path) -> None:
    with (
        Client(lua, install(folder), environment={"SLURM_HOSTFILE": "hosts"}) as client,
        Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service,
    ):
        client.run({"gpus": "4"})
        client.run({"gpus": "4", "nodes": "2"})
    assert [json.loads(line)["job"]["other"] for line in service.requests] == [["node_range"], []]


@pytest.mark.parametrize("variable", ["SLURM_MEM_PER_NODE", "SLURM_GPUS", "SRUN_CPUS_PER_TASK"])
def test_variables_that_the_job_sees_too_keep_its_request(lua: str, folder: Path, variable: str) -> None:
    """A task was told of 16000 MiB, and had 1056 (22.05, 24.11)."""
    with (
        Client(lua, install(folder), environment={variable: "2"}) as client,
        Service(folder / "s", reply_with('{"v":1,"id":"{id}"}')) as service,
    ):
        client.run({"mem": "8000M"})
    assert json.loads(service.requests[0])["job"]["other"] == ["exported"]


def test_a_heterogeneous_job_is_recognised_by_its_command_line(lua: str, folder: Path) -> None:
    with (
        Client(lua, install(folder), word=":") as client,
        Service(folder / "s", reply_with(GRANT)) as service,
    ):
        assert left_alone(client.run(ORDINARY), "het_job")
    assert service.requests == []


def test_the_service_is_asked_about_an_salloc_only_if_the_site_wants_it(lua: str, folder: Path) -> None:
    with (
        Client(lua, install(folder, f'socket = "{folder}/s"')) as client,
        Service(folder / "s", reply_with(GRANT)) as service,
    ):
        assert left_alone(client.run(ORDINARY, "salloc"), "salloc_left_alone")
    assert service.requests == []


def test_an_empty_file_counts_as_the_kill_switch(client: Client, folder: Path) -> None:
    (folder / "off").touch()
    with Service(folder / "s", reply_with(GRANT)) as service:
        assert left_alone(client.run(ORDINARY), "kill_switch")
    assert service.requests == []


def test_a_comment_may_be_as_long_as_slurm_takes_but_not_longer(client: Client, folder: Path) -> None:
    most = "x" * (1024 - len(f" {WORD}"))
    with Service(folder / "s", reply_with(GRANT)):
        assert client.run({**ORDINARY, "comment": most})["writes"]["comment"] == f"{most} {WORD}"
        assert left_alone(client.run({**ORDINARY, "comment": f"{most}x"}), "comment_too_long")


def test_an_answered_client_keeps_no_connection_while_its_job_runs(client: Client, folder: Path) -> None:
    with Service(folder / "s", reply_with(GRANT), keeps=True) as service:
        assert [client.run(ORDINARY)["writes"] for _ in range(2)] == [LOWERED] * 2
    assert service.connections == 2


@pytest.mark.parametrize("refused", ["mem", "cpus-per-task", "comment"])
def test_a_write_that_slurm_refuses_takes_the_others_back(refused: str, client: Client, folder: Path) -> None:
    with Service(folder / "s", reply_with(GRANT)):
        result = client.run({**ORDINARY, "comment": "mine"}, refused={refused: True})
    assert left_alone(result, "write_failed")


@pytest.mark.parametrize("rewritten", ["mem", "cpus-per-task", "comment"])
def test_a_write_that_slurm_alters_is_taken_back_with_the_others(
    rewritten: str, client: Client, folder: Path
) -> None:
    with Service(folder / "s", reply_with(GRANT)):
        result = client.run({**ORDINARY, "comment": "mine"}, rewritten={rewritten: "7"})
    assert left_alone(result, "write_failed")


@pytest.mark.parametrize(
    ("settings", "hidden", "reason"),
    [
        ("", "", "no_settings"),
        ("socket = 5", "", "no_settings"),
        (None, "cjson,dkjson", "no_json_library"),
        (None, "socket", "no_socket_library"),
        (None, "", "connect_failed"),
    ],
)
def test_a_missing_part_costs_no_client_anything(
    settings: str | None, hidden: str, reason: str, lua: str, folder: Path
) -> None:
    with Client(lua, install(folder, settings), hidden) as client:
        assert left_alone(client.run(ORDINARY), reason)


def test_a_module_in_the_working_directory_of_a_user_is_not_loaded(lua: str, folder: Path) -> None:
    trap = folder / "trap"
    trap.mkdir()
    for name in ("cjson", "rightsizer_clients"):
        (trap / f"{name}.lua").write_text(f"io.open('{folder}/caught', 'w'):close() return {{}}")
    script = install(folder)
    with Client(lua, script, folder=str(trap)) as client, Service(folder / "s", reply_with(GRANT)):
        assert client.run(ORDINARY)["writes"] == LOWERED
    (folder / "rightsizer_clients.lua").unlink()
    with Client(lua, script, folder=str(trap)) as client:
        assert left_alone(client.run(ORDINARY), "no_settings")
    assert not (folder / "caught").exists()


def test_a_library_for_another_lua_costs_no_client_anything(lua: str, folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "cjson.so").write_bytes(b"not for this Lua")
    environment = {"LUA_CPATH": f"{folder}/other/?.so;;"}
    with Client(lua, install(folder), hidden="dkjson", environment=environment) as client:
        assert left_alone(client.run(ORDINARY), "no_json_library")


def test_the_filter_without_its_modules_lets_every_client_through(lua: str, folder: Path) -> None:
    script = install(folder)
    shutil.rmtree(folder / "rightsizer")
    with Client(lua, script) as client:
        assert left_alone(client.run(ORDINARY))


def test_a_silent_service_costs_no_more_than_the_deadline(client: Client, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "s"))
        silent.listen(8)
        result = client.run(ORDINARY)
    assert left_alone(result, "deadline")
    # The rest is what a busy machine takes.
    assert DEADLINE_MS * 0.8 < result["took_ms"] < 10 * DEADLINE_MS


def test_the_hook_removes_the_word_in_the_comment_of_a_direct_job(lua: str, folder: Path) -> None:
    from tests.lua.conftest import Slurmctld
    from tests.lua.conftest import install as install_hook

    script = install_hook(folder)
    reply = '{"v":1,"id":"{id}","token":"rightsizer/1;id=1"}'
    with Slurmctld(lua, script) as slurmctld, Service(folder / "s", reply_with(reply)):
        direct = {"script": None, "comment": f"mine {WORD}"}
        assert slurmctld.submit(direct)["writes"] == {"comment": "mine", "admin_comment": "rightsizer/1;id=1"}
        alone = slurmctld.submit({"script": None, "comment": WORD})["writes"]
        assert alone == {"comment": False, "admin_comment": "rightsizer/1;id=1"}
        for other in ({"comment": f"mine {WORD}"}, {"script": None, "comment": f"{WORD} mine"}):
            assert slurmctld.submit(other)["writes"] == {"admin_comment": "rightsizer/1;id=1"}
