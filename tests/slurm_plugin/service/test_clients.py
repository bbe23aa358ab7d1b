"""The clients' socket: each user may ask about their own jobs, and nobody gets anything useful about others."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.decision import Decision, decode_decision
from accounting.decisions.token import carried_id, carried_word, find_token
from accounting.request import Grant
from models.past.families import family_keys, script_signature
from slurm_plugin.config.settings import Config, Rule
from slurm_plugin.policy.client import as_known, claims_another
from slurm_plugin.policy.facts import MemoryTerms, Minimum, Partition, SiteFacts
from slurm_plugin.policy.submission import ClientSubmission, job_request, kept_dimensions
from slurm_plugin.service.allowance import AT_ONCE, BURST
from slurm_plugin.service.clients import make_client_handler
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.decide import BY_CLIENT, NO_FACTS, decide
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import (
    MAX_REQUEST_BYTES,
    VERSION,
    ClientRequest,
    Reply,
    Request,
    decode_client_request,
    decode_reply,
    decode_request,
    encode_request,
)
from tests.builders import SCRIPT, submission
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.full_disk import fill
from tests.slurm_plugin.service.asking import ask, connect, install, json_line, model_in_use
from tests.slurm_plugin.service.test_input_sizes import wait_long
from tests.slurm_plugin.service.test_protocol import named

ME = pwd.getpwuid(os.getuid()).pw_name
ASKED = ClientSubmission(
    batch=False, other=(), name="fit", script=SCRIPT, cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4
)
ENFORCING = Config(mode="enforce")


def line_of(job: ClientSubmission = ASKED) -> bytes:
    return encode_request(ClientRequest(v=VERSION, id="7", kind="cli", job=job))


@pytest.mark.parametrize("frame", named("cli_requests"))
def test_each_golden_request_of_a_client_is_understood(frame: dict[str, Any]) -> None:
    line = json_line(frame["job"], "cli")
    request = decode_client_request(line)
    assert isinstance(request, ClientRequest)
    plain = json.loads(msgspec.json.encode(request.job))
    assert {name: plain[name] for name in frame["job"]} == frame["job"]
    assert isinstance(decode_request(line), str), "the hook's socket takes it"


def test_a_request_of_the_hooks_kind_is_not_accepted_from_a_client() -> None:
    line = encode_request(Request(v=VERSION, id="7", kind="submit", job=submission()))
    assert decode_client_request(line) == "unknown kind 'submit'"


@given(st.binary(max_size=200))
def test_no_bytes_make_the_decoder_fail(line: bytes) -> None:
    assert isinstance(decode_client_request(line), str)


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({}, False),
        ({"user": "alice", "uid": 1000}, False),
        ({"user": "bob"}, True),
        ({"uid": 0}, True),
        ({"uid": 1001, "user": "alice"}, True),
    ],
)
def test_a_claim_of_a_client_counts_only_if_it_is_true(changes: dict[str, Any], is_refused: bool) -> None:
    assert claims_another(msgspec.structs.replace(ASKED, **changes), 1000, "alice") is is_refused


def test_a_client_may_have_fewer_cpus_and_gpus_where_the_hook_may_not_grant_them() -> None:
    assert kept_dimensions(ASKED) == {}
    by_hook = submission(batch=False, cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4)
    assert set(kept_dimensions(by_hook)) == {"cores", "gpus"}


def limited(**max_per_cpu_mib: int) -> SiteFacts:
    """Return the facts of a site with these limits by partition; the default partition is main."""
    partitions = {
        name: Partition(memory=MemoryTerms(max_per_cpu_mib=limit_mib), is_default=name == "main")
        for name, limit_mib in max_per_cpu_mib.items()
    }
    return SiteFacts(partitions=partitions, memory=MemoryTerms())


@pytest.mark.parametrize(
    ("rule", "facts", "other"),
    [
        (Rule(name="r", partition=("main",)), NO_FACTS, ()),
        (Rule(name="r", account=("phys",)), NO_FACTS, ("default_account",)),
        (Rule(name="r", qos=("long",)), NO_FACTS, ("default_qos",)),
        (Rule(name="r"), SiteFacts(qos_minimums={"big": Minimum(cpus=4)}), ("default_qos",)),
        (Rule(name="r"), limited(main=2000), ("max_mem_per_cpu",)),
        (Rule(name="r"), limited(main=8000, small=2000), ()),
    ],
)
def test_a_value_that_slurmctld_fills_in_later_is_a_reason_to_keep_the_request(
    rule: Rule, facts: SiteFacts, other: tuple[str, ...]
) -> None:
    known = as_known(ASKED, 1000, "alice", Config(rules=(rule,)), facts)
    assert (known.user, known.uid, known.other) == ("alice", 1000, other)


def test_the_limits_of_the_named_partition_count() -> None:
    named = msgspec.structs.replace(ASKED, partition="main,small")
    assert as_known(named, 1, "alice", Config(), limited(main=8000, small=2000)).other == ("max_mem_per_cpu",)


@pytest.mark.parametrize("memory", [{}, {"mem_per_cpu_mib": 1000}])
def test_a_job_without_memory_per_node_is_not_raised(memory: dict[str, int]) -> None:
    job = msgspec.structs.replace(ASKED, mem_per_node_mib=None, **memory)
    assert as_known(job, 1, "alice", Config(), limited(main=2000)).other == ()


def test_no_client_can_pass_its_job_off_as_a_batch_job() -> None:
    job = msgspec.structs.replace(ASKED, batch=True)
    assert as_known(job, 1, "alice", Config(), NO_FACTS).batch is False


def test_the_hook_leaves_a_job_sized_by_its_client_alone_and_names_that_decision() -> None:
    word = carried_word("0123456789ab")
    direct = submission(batch=False, comment=f"mine {word}", mem_per_node_mib=512)
    made = decide(direct, None, ENFORCING, "d2", 1.0).decision
    assert (made.reason, made.via, made.applied) == (BY_CLIENT, "0123456789ab", False)
    batch = msgspec.structs.replace(direct, batch=True)
    assert decide(batch, None, ENFORCING, "d2", 1.0).decision.via == ""


@pytest.mark.parametrize(
    "comment", ["rightsizer-cli=0123456789ab x", "rightsizer-cli=0123", "xrightsizer-cli=0123456789ab", ""]
)
def test_only_the_last_word_of_a_comment_names_a_decision(comment: str) -> None:
    assert carried_id(comment) == ""


def handler_of(site: Site) -> Any:
    config = site.config
    journal = Journal(Path(config.service.journal), "decisions-clients-here")
    return make_client_handler(config, model_in_use(config), CurrentFacts(config), journal)


def journalled(site: Site) -> list[Decision]:
    lines = [
        line
        for file in sorted(Path(site.config.service.journal).glob("decisions-clients-*"))
        for line in file.read_bytes().splitlines()
    ]
    return [made for made in map(decode_decision, lines) if made]


def test_a_client_is_granted_less_and_its_word_finds_the_original_request(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    answer = decode_reply(handler_of(site)(line_of(), 1000, "alice"))
    assert (answer.grant.cpus_per_task or 8) < 8
    assert answer.grant.gpus_per_node == 1
    assert "To keep your request: --comment=rightsize=off" in answer.message
    [made] = journalled(site)
    assert carried_id(answer.token) == made.id
    assert (made.request.user, made.request.cpus_per_task, made.applied) == ("alice", 8, True)
    assert made.request.script_signature == script_signature(SCRIPT)
    assert find_token(answer.token) is None


def test_a_command_whose_work_comes_from_its_input_is_no_known_work() -> None:
    direct = ClientSubmission(batch=False, other=(), name="bash", script="bash -l")
    assert family_keys(job_request(direct)) == ()
    named = msgspec.structs.replace(direct, user="alice", name="fit")
    assert family_keys(job_request(named)) == (("user+name", "alice", "fit"),)
    assert family_keys(job_request(msgspec.structs.replace(direct, script="bash run.sh")))


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_other_modes_grant_nothing_and_still_record(
    mode: str, site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    site.configure(mode=mode)
    answer = decode_reply(handler_of(site)(line_of(), 1000, "alice"))
    assert (answer.grant, bool(answer.message)) == (Grant(), mode == "advise")
    assert carried_id(answer.token) == journalled(site)[0].id


def test_a_job_that_opted_out_does_not_even_get_a_word(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    out = msgspec.structs.replace(ASKED, comment="rightsize=off")
    answer = handler_of(site)(line_of(out), 1000, "alice")
    assert decode_reply(answer) == Reply(v=VERSION, id="7")


def test_nothing_is_said_of_the_history_of_another_user(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    handle = handler_of(site)
    assert decode_reply(handle(line_of(), 1001, "bob")).grant == Grant()
    assert handle(line_of(msgspec.structs.replace(ASKED, user="alice")), 1001, "bob") is None
    assert [made.request.user for made in journalled(site)] == ["bob"]


def test_the_input_of_the_command_of_a_client_counts_too(
    site: Site, trained_model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_long(monkeypatch)
    install(site, trained_model)
    site.configure(mode="enforce", inputs={"roots": [str(site.folder)]})
    file = site.folder / "a.bin"
    file.write_bytes(b"x" * 2**19)
    uid = os.getuid()
    for words in (f"./fit --in={file}", "./fit --in=a.bin"):
        job = msgspec.structs.replace(ASKED, script=words, uid=uid)
        assert handler_of(site)(line_of(job), uid, "alice")
    assert [made.request.input_mib for made in journalled(site)] == [0.5, None]


def test_a_decision_that_cannot_be_journalled_is_not_granted(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    assert handler_of(site)(line_of(), 1000, "alice")
    fill(Path(site.config.service.journal), "decisions-clients-here-*.jsonl")
    assert handler_of(site)(line_of(), 1000, "alice") is None


@pytest.fixture
def serving(site: Site, trained_model: TrainedModel) -> Iterator[Path]:
    """Yield the socket of the real service, in a folder that other users may enter."""
    install(site, trained_model)
    site.folder.chmod(0o755)
    path = site.folder / "clients"
    site.configure(
        mode="enforce", client={"socket": str(path), "kill_switch": str(site.folder / "clients.off")}
    )
    process = site.start("serve", "--clients")
    until = time.monotonic() + PATIENCE_S
    while not path.is_socket():
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < until, "the service does not come up"
        time.sleep(0.05)
    yield path
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, path.exists(), b"Traceback" in log) == (0, False, False), log.decode()


ASK_AS_NOBODY = """
import os, socket, sys
user = int(sys.argv[2])
os.setgroups([]); os.setgid(user); os.setuid(user)
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(sys.stdin.buffer.read())
sys.stdout.buffer.write(client.makefile("rb").readline())
"""


def ask_as(path: Path, user: str | int, line: bytes) -> subprocess.CompletedProcess[bytes]:
    uid = user if isinstance(user, int) else pwd.getpwnam(user).pw_uid
    return subprocess.run(
        ["/usr/bin/python3", "-c", ASK_AS_NOBODY, str(path), str(uid)],
        input=line,
        capture_output=True,
        check=False,
    )


def test_the_kernel_says_whose_request_it_is(serving: Path, site: Site) -> None:
    assert serving.stat().st_mode & 0o777 == 0o666
    assert carried_id(decode_reply(ask(serving, line_of())).token)
    assert ask(serving, line_of(msgspec.structs.replace(ASKED, user="somebody"))) == b""
    assert [made.request.user for made in journalled(site)] == [ME]
    if os.getuid() != 0:
        pytest.skip("only root can act as another user")
    done = ask_as(serving, "nobody", line_of())
    assert carried_id(decode_reply(done.stdout).token), done.stderr
    assert journalled(site)[-1].request.user == "nobody"
    for claim in ({"user": "root"}, {"uid": 0}, {"user": "alice", "uid": 65534}):
        assert ask_as(serving, "nobody", line_of(msgspec.structs.replace(ASKED, **claim))).stdout == b""
    assert ask_as(serving, 424242, line_of()).stdout == b"", "whoever has no name is nobody's family"
    assert len(journalled(site)) == 2


def test_users_cannot_open_the_socket_of_the_hook(site: Site) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can act as another user")
    site.folder.chmod(0o755)
    site.serve()
    done = ask_as(site.socket, "nobody", line_of())
    assert b"PermissionError" in done.stderr


def test_each_socket_takes_only_its_own_kind_of_request(serving: Path, site: Site) -> None:
    hook_line = encode_request(Request(v=VERSION, id="7", kind="submit", job=submission()))
    assert ask(serving, hook_line) == b""
    site.serve()
    with connect(site.socket) as client:
        client.sendall(line_of())
        assert client.makefile("rb").readline() == b""


def test_either_kill_switch_makes_the_service_silent(serving: Path, site: Site) -> None:
    for switch in (Path(site.config.hook.kill_switch), Path(site.config.client.kill_switch)):
        switch.touch()
        assert ask(serving, line_of()) == b""
        switch.unlink()
    assert ask(serving, line_of())


def test_a_line_that_is_not_a_request_gets_no_answer_and_the_next_one_does(serving: Path) -> None:
    for bad in (b"\n", b"rubbish\n", b"\x00\xff" * 1000 + b"\n", b"[" * 30000 + b"\n"):
        assert ask(serving, bad) == b""
    assert ask(serving, b"x" * (2 * MAX_REQUEST_BYTES)) == b""
    assert ask(serving, line_of()[:-1] + b" " * MAX_REQUEST_BYTES + b"\n") == b""
    assert decode_reply(ask(serving, line_of())).id == "7"


def test_a_user_who_holds_connections_gets_no_more_and_keeps_nobody_else_out(serving: Path) -> None:
    held = [connect(serving) for _ in range(AT_ONCE)]
    time.sleep(0.2)
    assert ask(serving, line_of()) == b""
    if os.getuid() == 0:
        assert ask_as(serving, "nobody", line_of()).stdout
    held[0].sendall(line_of())
    assert held[0].makefile("rb").readline()
    for client in held:
        client.close()


def test_a_user_who_asks_too_often_is_not_answered_for_a_while(serving: Path) -> None:
    # A slow machine takes so long to ask that more is allowed meanwhile.
    refused = next(number for number in range(10 * BURST) if not ask(serving, line_of()))
    assert refused >= BURST - 10


def test_long_requests_are_answered_more_rarely(serving: Path) -> None:
    long = line_of()[:-1] + b" " * (MAX_REQUEST_BYTES // 2) + b"\n"
    assert decode_reply(ask(serving, long)).id == "7"
    assert not all(ask(serving, long) for _ in range(BURST // 2))


@pytest.mark.usefixtures("site")
def test_without_a_socket_for_clients_the_command_says_what_to_set() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slurm_plugin.cli", "serve", "--clients"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "client.socket" in done.stderr
    assert "Traceback" not in done.stderr
