"""The service: its answers, and that it goes on answering whatever is sent to it."""

import concurrent.futures
import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accounting.decisions import decode_decision
from accounting.errors import ServiceError
from accounting.request import Grant
from accounting.token import find_token
from models import registry
from models.demand import training
from models.families import script_signature
from slurm_plugin.cli.predict import input_of, read_script
from slurm_plugin.config import Inputs
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.answers import EXPECTED_S, LEAST_PAUSE_S, PAUSE_SHARE, Answers
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import chain_settings_of, decide, reply_to
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import MAX_REQUEST_BYTES, Reply, Request, decode_reply, encode_request
from slurm_plugin.service.server import SLOW_S, Handler, bind_socket
from tests.builders import past, submission
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.slurm_plugin.test_input_sizes import wait_long

KNOWN = submission(cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4)
NEW_MODEL_S = 2.0


def line_of(job: Submission, identity: str = "7") -> bytes:
    return encode_request(Request(v=1, id=identity, kind="submit", job=job))


def connect(site: Site) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(PATIENCE_S)
    client.connect(str(site.socket))
    return client


def ask(site: Site, line: bytes) -> bytes:
    """Send bytes and return what comes back up to a line end, or up to the end where the service hangs up."""
    with connect(site) as client:
        try:
            client.sendall(line)
            return client.makefile("rb").readline()
        except (BrokenPipeError, ConnectionResetError):
            return b""


def reply(site: Site, job: Submission = KNOWN) -> Reply:
    return decode_reply(ask(site, line_of(job)))


def model_of(site: Site) -> str:
    token = find_token(reply(site).token)
    assert token is not None
    return token.model


def install(site: Site, model: TrainedModel) -> None:
    shutil.copytree(model.directory, site.models, symlinks=True)


def handler_of(site: Site) -> Handler:
    config = site.config
    model = CurrentModel(Path(config.models.directory), chain_settings_of(config))
    model.refresh()
    return Answers(config, model, CurrentFacts(config), Journal(Path(config.service.journal))).handle


def asked(handle: Handler, line: bytes) -> bytes:
    """The reply to a line; nothing where it deserves none."""
    sent: list[bytes] = []
    return b"".join(sent) if handle(line, sent.append) else b""


def test_enforcing_grants_less_leaves_the_token_and_tells_the_user(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    answer = decode_reply(asked(handler_of(site), line_of(KNOWN, "abc")))
    assert answer.id == "abc"
    assert answer.grant.cpus_per_task == 1 or answer.grant.cpus_per_task == 2
    assert answer.grant.mem_per_node_mib is not None
    assert answer.grant.mem_per_node_mib < 2000
    assert answer.grant.gpus_per_node == 1
    assert answer.message.startswith("rightsizer: this job gets")
    token = find_token(answer.token)
    assert token is not None
    assert token.asked == {"tasks": 1, "cpus": 8, "mem": 8000, "gpus": 4}
    assert token.granted == {
        "cpus": answer.grant.cpus_per_task,
        "mem": answer.grant.mem_per_node_mib,
        "gpus": 1,
    }
    assert (token.model, token.signature) == (trained_model.version, script_signature(KNOWN.script))


@pytest.mark.parametrize(("mode", "told"), [("observe", False), ("advise", True)])
def test_other_modes_grant_nothing(mode: str, told: bool, site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.configure(mode=mode)
    answer = decode_reply(asked(handler_of(site), line_of(KNOWN)))
    assert (answer.grant, bool(answer.message)) == (Grant(), told)
    assert ";would=cpus:" in answer.token
    token = find_token(answer.token)
    assert token is not None
    assert (token.mode, token.granted) == (mode, {})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"comment": "rightsize=off"}, "opted-out"),
        ({"other": ("array",)}, "form-not-handled:array"),
        ({"batch": False, "mem_per_node_mib": None}, "not-a-batch-job"),
        ({"user": "stranger"}, "no-evidence"),
        ({"cpus_per_task": 1, "mem_per_node_mib": 100, "gpus_per_node": 1}, "fits"),
    ],
)
def test_a_job_that_is_left_alone_has_its_reason(
    changes: dict[str, Any], reason: str, site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    answer = decode_reply(asked(handler_of(site), line_of(msgspec.structs.replace(KNOWN, **changes))))
    token = find_token(answer.token)
    assert token is not None
    assert (answer.grant, answer.message, token.reason) == (Grant(), "", reason)


def test_without_a_model_every_job_keeps_its_request(site: Site) -> None:
    site.configure(mode="enforce")
    answer = decode_reply(asked(handler_of(site), line_of(KNOWN)))
    assert (answer.grant, answer.message) == (Grant(), "")
    assert ";why=no-model" in answer.token


def test_every_decision_is_journalled_as_it_was_answered(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    handle = handler_of(site)
    answers = [decode_reply(asked(handle, line_of(job))) for job in (KNOWN, submission(), KNOWN)]
    [file] = Path(site.config.service.journal).iterdir()
    decisions = [decode_decision(line) for line in file.read_bytes().splitlines()]
    tokens = [find_token(answer.token) for answer in answers]
    assert [made.id for made in decisions if made] == [token.decision_id for token in tokens if token]
    assert len({token.decision_id for token in tokens if token}) == 3
    assert decisions[0] is not None
    assert (decisions[0].grant, decisions[0].applied) == (answers[0].grant, True)


def test_a_disk_that_takes_no_journal_still_lets_jobs_through(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    config = site.config
    model = CurrentModel(site.models, chain_settings_of(config))
    model.refresh()
    journal = Journal(Path(config.service.journal))
    handle = Answers(config, model, CurrentFacts(config), journal).handle
    journal.close()
    assert decode_reply(asked(handle, line_of(KNOWN))).grant


def test_a_rehearsal_is_for_nobody_and_ends(
    site: Site, trained_model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, trained_model)
    config = site.config
    model = CurrentModel(site.models, chain_settings_of(config))
    model.refresh()
    answers = Answers(config, model, CurrentFacts(config), Journal(Path(config.service.journal)))
    assert answers.rehearse() is None, "nothing has been submitted"
    assert asked(answers.handle, line_of(KNOWN))
    (journal,) = Path(config.service.journal).iterdir()
    written = journal.read_bytes()
    now_s, pauses_s = time.time(), []
    for later_s in (0.01, EXPECTED_S / 2):
        monkeypatch.setattr(time, "time", lambda at_s=now_s + later_s: at_s)
        pauses_s.append(answers.rehearse())
    assert journal.read_bytes() == written
    assert pauses_s[0] == LEAST_PAUSE_S
    assert pauses_s[1] == pytest.approx(EXPECTED_S / 2 * PAUSE_SHARE, rel=0.01)
    monkeypatch.setattr(time, "time", lambda: now_s + EXPECTED_S + 1)
    assert answers.rehearse() is None, "no other one is to be expected"


def test_lines_that_are_no_request_get_no_answer(site: Site) -> None:
    handle = handler_of(site)
    for line in (b"", b"{}", b"\xff", line_of(KNOWN).replace(b'"v":1', b'"v":2')):
        assert asked(handle, line) == b""


def test_a_journal_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"service\.journal"):
        Journal(tmp_path / "file" / "journal")


def test_the_service_answers_and_stops_cleanly(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.configure(mode="enforce", service={"socket_mode": "0606"})
    service = site.serve()
    assert reply(site).grant
    assert site.socket.stat().st_mode & 0o777 == 0o606
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=PATIENCE_S)
    assert service.returncode == 0
    assert not site.socket.exists()
    assert b"Traceback" not in log


def test_a_connection_is_kept_for_line_after_line(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.serve()
    with connect(site) as client, client.makefile("rb") as replies:
        for number in range(3):
            line = line_of(KNOWN, str(number))
            client.sendall(line[:20])
            client.sendall(line[20:])
            assert decode_reply(replies.readline()).id == str(number)


def test_who_is_slow_about_a_line_is_hung_up_on(site: Site) -> None:
    site.serve()
    with connect(site) as client:
        client.sendall(b"{")
        began = time.monotonic()
        assert client.recv(1) == b""
        assert time.monotonic() - began >= SLOW_S


def test_the_service_survives_all_that_is_not_a_request(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    service = site.serve()
    good = line_of(KNOWN)
    for bad in (b"\n", b"rubbish\n", b"\x00\xff" * 1000 + b"\n", b"[" * 30000 + b"\n", b"{}\n" * 500):
        assert ask(site, bad) == b""
    began = time.monotonic()
    assert ask(site, b"x" * (MAX_REQUEST_BYTES + 1)) == b""
    assert time.monotonic() - began < SLOW_S / 2, "it waited for more of what is too long already"
    assert ask(site, b"x" * (20 * MAX_REQUEST_BYTES)) == b""
    assert ask(site, good[:-1] + b" " * MAX_REQUEST_BYTES + b"\n") == b""
    huge = msgspec.structs.replace(KNOWN, cpus_per_task=10**30, mem_per_node_mib=-1, num_tasks=-(10**30))
    ask(site, line_of(huge))
    closed = connect(site)
    closed.sendall(good * 20)
    closed.close()
    half = connect(site)
    half.sendall(good[: len(good) // 2])
    assert reply(site).id == "7"
    half.sendall(good[len(good) // 2 :] + good)
    lines = half.makefile("rb")
    assert [decode_reply(lines.readline()).id for _ in range(2)] == ["7", "7"]
    half.close()
    assert service.poll() is None


def test_a_client_that_says_nothing_is_dropped(site: Site) -> None:
    site.serve()
    with connect(site) as silent:
        began = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""
        assert time.monotonic() - began < 10


def test_many_clients_at_once_each_get_their_own_answer(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.serve()

    def identity(number: int) -> str:
        return decode_reply(ask(site, line_of(KNOWN, f"client-{number}"))).id

    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        assert list(pool.map(identity, range(300))) == [f"client-{number}" for number in range(300)]


def test_a_socket_that_is_taken_is_one_line_and_the_running_service_stays(site: Site) -> None:
    site.serve()
    second = site.start("serve")
    _, log = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 1
    # Before it there may be one that says what of Slurm's limits could not be read.
    assert "taken by a running service" in log.decode().splitlines()[-1]
    assert "Traceback" not in log.decode()
    assert reply(site).id == "7"


def test_a_socket_whose_service_is_stuck_is_taken_too(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stuck:
        stuck.bind(str(path))
        stuck.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
            waiting.setblocking(False)
            waiting.connect_ex(str(path))
            with pytest.raises(ServiceError, match="taken by a running service"):
                bind_socket(path, 0o600)
    assert path.is_socket()


def test_the_socket_of_a_killed_service_is_replaced(site: Site) -> None:
    first = site.serve()
    first.kill()
    first.wait()
    assert site.socket.exists()
    site.serve()
    assert reply(site).id == "7"


def test_a_file_at_the_sockets_path_is_left_alone(site: Site) -> None:
    site.socket.write_text("precious")
    service = site.start("serve")
    _, log = service.communicate(timeout=PATIENCE_S)
    assert service.returncode == 1
    assert b"exists and is no socket" in log
    assert b"Traceback" not in log
    assert site.socket.read_text() == "precious"


@pytest.mark.parametrize("name", ["x" * 120, "file/socket"])
def test_a_path_where_no_socket_can_be_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"set service\.socket"):
        bind_socket(tmp_path / name, 0o600)


def test_a_new_model_is_used_within_two_seconds_and_a_damaged_one_never(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    service = site.serve()
    assert model_of(site) == trained_model.version
    attempts = past(30, seed=2)
    trained = training.train(attempts, 50)
    new = training.save(trained, site.models, 2e9)
    registry.promote(site.models, new)
    promoted = time.monotonic()
    while model_of(site) != new:
        assert time.monotonic() - promoted < NEW_MODEL_S
        time.sleep(0.02)
    damaged = training.save(trained, site.models, 2.1e9)
    (site.models / damaged / "history.json").write_bytes(b"{}")
    registry.promote(site.models, damaged)
    time.sleep(1.2)
    assert model_of(site) == new
    registry.promote(site.models, trained_model.version)
    promoted = time.monotonic()
    while model_of(site) != trained_model.version:
        assert time.monotonic() - promoted < NEW_MODEL_S
        time.sleep(0.02)
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=PATIENCE_S)
    assert log.decode().count("is refused") == 1


def test_what_answers_a_submission_imports_nothing_heavy() -> None:
    heavy = ["pandas", "sqlalchemy", "alembic", "sklearn", "xgboost", "onnxmltools", "onnx", "rich"]
    code = (
        f"import sys, slurm_plugin.service.server; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_predict_answers_as_the_service_does(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    config = site.configure(mode="enforce")
    script = site.folder / "fit"
    script.write_text("#!/bin/sh\n#SBATCH -c 8 --mem=8000\n#SBATCH --gres=gpu:4\nsrun ./fit --all\n")
    model = CurrentModel(site.models, chain_settings_of(config))
    model.refresh()
    as_hooked = msgspec.structs.replace(KNOWN, script=script.read_text())
    served = reply_to("7", decide(as_hooked, model.predictor, config, "d", 0.0)).grant
    predicted = subprocess.run(
        site.command("predict", str(script), "--user", "alice", "--format", "json"),
        env={**os.environ, "RIGHTSIZER_CONFIG": str(site.config_file), "SLURM_CONF": "/nowhere"},
        capture_output=True,
        check=True,
    )
    said = [line for line in predicted.stderr.decode().splitlines() if "without Slurm's limits" in line]
    assert len(said) == 1
    granted = {row["resource"]: row["granted"] for row in json.loads(predicted.stdout)}
    assert served
    assert granted["CPUs"] == served.cpus_per_task
    assert granted["memory (MiB)"] == served.mem_per_node_mib
    assert granted["GPUs"] == served.gpus_per_node


def with_input(site: Site, mib: float, name: str = "a.bin") -> Submission:
    """KNOWN, with a script that names a file of so many MiB below the site's roots."""
    file = site.folder / name
    file.write_bytes(b"x" * round(mib * 2**20))
    script = f"#!/bin/sh\nsrun ./fit --in={file}\n"
    return msgspec.structs.replace(KNOWN, script=script, uid=os.getuid())


def journalled(site: Site) -> list[float | None]:
    [file] = Path(site.config.service.journal).glob("decisions-*.jsonl")
    decisions = map(decode_decision, file.read_bytes().splitlines())
    return [decision.request.input_mib for decision in decisions if decision]


def test_the_size_of_the_input_is_journalled_and_in_no_reply(
    site: Site, trained_model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_long(monkeypatch)
    install(site, trained_model)
    job = with_input(site, 1.25)
    site.configure(inputs={"roots": [str(site.folder)]})
    handle = handler_of(site)
    replies = [asked(handle, line_of(job)) for _ in range(3)]
    with_input(site, 3.5)  # the same script, while its input has grown
    replies.append(asked(handle, line_of(job)))
    assert journalled(site) == [1.25, 1.25, 1.25, 3.5]
    for one in replies:
        assert b"1.25" not in one
        assert b"input" not in one
    site.configure(inputs={"roots": []})
    asked(handler_of(site), line_of(job))
    assert journalled(site)[-1] is None


def test_a_hanging_file_server_delays_no_reply(
    site: Site, trained_model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, trained_model)
    job = with_input(site, 1.0)
    site.configure(inputs={"roots": [str(site.folder)]})
    hangs, looked = threading.Event(), threading.Event()

    def hang(*_of: object) -> None:
        looked.set()
        hangs.wait(30)

    monkeypatch.setattr(os, "open", _only_below(site.folder / "a.bin", hang))
    handle = handler_of(site)
    begun_s = time.perf_counter()
    replies = [decode_reply(asked(handle, line_of(job))) for _ in range(50)]
    took_s = time.perf_counter() - begun_s
    assert looked.wait(5)
    hangs.set()
    assert all(find_token(one.token) for one in replies)
    assert took_s < 15
    assert journalled(site) == [None] * 50


def _only_below(file: Path, hang: Callable[..., None]) -> Callable[..., int]:
    """os.open, which hangs first where it is asked for a file by its name in an open folder."""
    real = os.open

    def opened(path: str | Path, *rest: Any, dir_fd: int | None = None) -> int:
        if dir_fd is not None and path == file.name:
            hang()
        return real(path, *rest, dir_fd=dir_fd)

    return opened


def test_predict_sees_the_input_that_the_service_sees(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    file = site.folder / "a.bin"
    file.write_bytes(b"x" * 2**20)
    config = site.configure(inputs={"roots": [str(site.folder)]})
    script = site.folder / "fit"
    script.write_text("#!/bin/sh\n#SBATCH -c 8 --mem=8000\nsrun fit --in=a.bin\n")
    user = pwd.getpwuid(os.getuid()).pw_name
    found = input_of(read_script(script, user, (f"--chdir={site.folder}",)), config)
    assert found == 1.0
    assert input_of(read_script(script, "no-such-user", ()), config) is None
    assert input_of(read_script(script, user, ()), msgspec.structs.replace(config, inputs=Inputs())) is None
