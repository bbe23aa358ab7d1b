"""Models are swapped while clients ask as fast as they can: every request is answered, and by a complete model."""

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from accounting.decisions.token import find_token
from accounting.request import Grant
from models.training import training
from models.versions import registry
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.protocol import Request, decode_reply, encode_request
from tests.builders import attempt, submission
from tests.conftest import IN_USE_S, PATIENCE_S, RECENT_JOBS, Site
from tests.slurm_plugin.service.asking import asked, connect, handler_of

CLIENTS, SWAPS = 4, 24
# Enough jobs that answers do not come from memory alone: each model decides each of them anew.
JOBS = [submission(cpus_per_task=8, mem_per_node_mib=8000 + number) for number in range(50)]
Answered = tuple[str, Grant]


def line_of(job: Submission) -> bytes:
    return encode_request(Request(v=1, id="7", kind="submit", job=job))


def answered(line: bytes) -> Answered:
    """Return the model that a reply names, and what it grants; no model if there was no reply."""
    reply = decode_reply(line) if line else None
    token = find_token(reply.token) if reply else None
    return (token.model, reply.grant) if reply and token else ("", Grant())


@dataclass
class Asked:
    """What the clients got: for each request which of JOBS it was, the answer, and when it was asked."""

    answers: list[tuple[int, Answered, float]] = field(default_factory=list)

    def ask_on(self, site: Site, done: threading.Event) -> None:
        with connect(site.socket) as client, client.makefile("rb") as replies:
            while not done.is_set():
                number = len(self.answers) % len(JOBS)
                asked_s = time.monotonic()
                client.sendall(line_of(JOBS[number]))
                reply = replies.readline()
                self.answers.append((number, answered(reply), asked_s))

    def was_told(self, version: str, since_s: float) -> bool:
        """Whether the last answer is this model's. A thread may be late to note one of the model before."""
        return any(model == version and asked_s >= since_s for _, (model, _), asked_s in self.answers[-1:])


@contextmanager
def clients(site: Site) -> Iterator[Asked]:
    under, done = Asked(), threading.Event()
    threads = [threading.Thread(target=under.ask_on, args=(site, done)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield under
    finally:
        done.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads), "a request was never answered"


def trained(site: Site, mem_mib: float, now_s: float) -> str:
    """Train on jobs that used about `mem_mib`, and return the version."""
    attempts = [
        attempt(
            job_id=number, submit_s=1000 * number, start_s=1000 * number + 10, mem_mib=mem_mib + number % 7
        )
        for number in range(1, 60)
    ]
    return training.save(training.train(attempts, RECENT_JOBS), site.models, now_s)


def test_every_request_is_answered_by_a_complete_model_during_promotions(site: Site) -> None:
    site.configure(mode="enforce")
    versions = [trained(site, mem_mib, now_s) for mem_mib, now_s in ((2000.0, 1e9), (150.0, 2e9))]
    grants: dict[str, list[Answered]] = {}
    for version in versions:
        registry.promote(site.models, version)
        grants[version] = [answered(asked(handler_of(site), line_of(job))) for job in JOBS]
        assert {model for model, _ in grants[version]} == {version}
    assert grants[versions[0]] != grants[versions[1]]
    damaged = versions[0] + "-damaged"
    shutil.copytree(site.models / versions[0], site.models / damaged)
    (site.models / damaged / "golden.json").write_bytes(b"[]")
    service = site.serve()
    waited_s = []
    with clients(site) as under:
        for swap in range(SWAPS):
            version = versions[swap % 2]
            if swap % 4 == 3:
                registry.promote(site.models, damaged)
                time.sleep(0.3)
            registry.promote(site.models, version)
            began_s = time.monotonic()
            while not under.was_told(version, began_s):
                assert time.monotonic() - began_s < PATIENCE_S
                time.sleep(0.005)
            waited_s.append(time.monotonic() - began_s)
    assert max(waited_s) <= IN_USE_S
    assert len(under.answers) > CLIENTS * SWAPS
    wrong = [
        (number, answer)
        for number, answer, _ in under.answers
        if answer not in (grants[v][number] for v in versions)
    ]
    assert not wrong, f"{len(wrong)} of {len(under.answers)}, such as {wrong[0]}"
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=PATIENCE_S)
    assert log.count(b"event=model-in-use ") == SWAPS + 1
    assert b"Traceback" not in log
