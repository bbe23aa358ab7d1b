"""Asks the service, through its socket or without one."""

import json
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from accounting.decisions.token import find_token
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.answers import Answers
from slurm_plugin.service.connections import Handler
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import chain_settings_of
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import VERSION, Reply, Request, decode_reply, encode_request
from tests.builders import submission
from tests.conftest import PATIENCE_S, Site, TrainedModel

KNOWN = submission(cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4)


def line_of(job: Submission, identity: str = "7") -> bytes:
    return encode_request(Request(v=VERSION, id=identity, kind="submit", job=job))


def json_line(job: Mapping[str, object], kind: str = "submit") -> bytes:
    """Return the line of a request as any program may write it, whatever is in its job."""
    return json.dumps({"v": VERSION, "id": "7", "kind": kind, "job": job}, ensure_ascii=False).encode()


def connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(PATIENCE_S)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


def ask(path: Path, line: bytes) -> bytes:
    """Send bytes and return what comes back up to a line end, or until the service hangs up."""
    with connect(path) as client:
        try:
            client.sendall(line)
            return client.makefile("rb").readline()
        except (BrokenPipeError, ConnectionResetError):
            return b""


def reply(site: Site, job: Submission = KNOWN) -> Reply:
    return decode_reply(ask(site.socket, line_of(job)))


def model_of(site: Site) -> str:
    token = find_token(reply(site).token)
    assert token is not None
    return token.model


def install(site: Site, model: TrainedModel) -> None:
    shutil.copytree(model.directory, site.models, symlinks=True)


def model_in_use(config: Config) -> CurrentModel:
    """Return the model of a site's registry, loaded like the service loads it."""
    model = CurrentModel(Path(config.models.directory), chain_settings_of(config))
    model.refresh()
    return model


def handler_of(site: Site, facts: CurrentFacts | None = None) -> Handler:
    config = site.config
    journal = Journal(Path(config.service.journal))
    return Answers(config, model_in_use(config), facts or CurrentFacts(config), journal).handle


def asked(handle: Handler, line: bytes) -> bytes:
    """Return the reply to a line; nothing if it gets none."""
    sent: list[bytes] = []
    return b"".join(sent) if handle(line, sent.append) else b""
