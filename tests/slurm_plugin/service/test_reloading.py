"""SIGHUP: a running service continues with a new configuration, or with the old one if the new one is wrong."""

from __future__ import annotations

import grp
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from accounting.decisions.decision import Decision
from slurm_plugin.brakes.pulled import Pulled, pulled_file
from slurm_plugin.config.settings import Config, Service
from slurm_plugin.policy.braked import ALL
from slurm_plugin.service.protocol import decode_reply
from slurm_plugin.service.reloading import FIXED, changed
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.slurm_plugin.service import test_clients
from tests.slurm_plugin.service.asking import KNOWN, ask, connect, install, line_of, reply
from tests.waiting import wait_until

READ_ANEW = "was read anew"
REFUSED = "the old one stays in use"


@dataclass
class Served:
    """A running service, and its log so far."""

    process: subprocess.Popen[bytes]
    log: str = ""

    def hang_up(self, said: str) -> None:
        """Send SIGHUP and wait until the log has these words once more."""
        times = self.log.count(said)
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self._read().count(said) > times, f"never said: {said}; but: {self.log}")

    def _read(self) -> str:
        assert self.process.stderr is not None
        while select.select([self.process.stderr], [], [], 0)[0] and (
            some := os.read(self.process.stderr.fileno(), 65536)
        ):
            self.log += some.decode()
        return self.log

    def stop(self) -> str:
        """End the service, and return all of its log."""
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=PATIENCE_S)
        self.log += rest.decode()
        assert (self.process.returncode, "Traceback" in self.log) == (0, False), self.log
        return self.log


def test_a_new_mode_and_a_new_margin_apply_without_a_restart(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    served = Served(site.serve())
    assert not reply(site).grant.mem_per_node_mib, "observe is the default"
    with connect(site.socket) as kept:
        site.configure(mode="enforce")
        served.hang_up(READ_ANEW)
        granted_mib = reply(site).grant.mem_per_node_mib
        assert granted_mib
        site.configure(policy={"memory_margin": 1.0})
        served.hang_up(READ_ANEW)
        # With room for twice as much; for that the model is loaded again.
        wait_until(
            lambda: (reply(site).grant.mem_per_node_mib or 0) > 1.5 * granted_mib, "the margin does not come"
        )
        path = site.socket
        site.configure(service={"socket": f"{site.folder}/elsewhere"})
        served.hang_up(READ_ANEW)
        for _ in range(50):
            served.process.send_signal(signal.SIGHUP)
        assert ask(path, line_of(KNOWN)), "however many come at once, and it stays where it is"
        kept.setblocking(False)
        with pytest.raises(BlockingIOError):
            kept.recv(1)
    assert "service.socket has changed, which counts from the next start" in served.stop()


def blocks_hangups(process: subprocess.Popen[bytes]) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(blocked.split()[1], 16) & 1 << signal.SIGHUP - 1)


def test_a_sighup_during_the_imports_is_kept_and_ends_nothing(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    process = site.start("serve")
    while not blocks_hangups(process):
        assert not site.socket.exists(), "it is up, and a signal before that would have ended it"
        time.sleep(0.005)
    Served(process).hang_up(READ_ANEW)
    assert reply(site).token


def test_a_wrong_configuration_is_refused_and_the_old_one_stays(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    path = Path(site.configure(mode="enforce").service.socket)
    served = Served(site.serve())
    wrong = {
        'mode = "advise"\n[policy]\nmemory_margn = 1\n': "policy.memory_margn",
        'mode = "advise"\n[[rules]]\nname = "x"\ngroup = ["no-such-group"]\n': "no-such-group",
    }
    for text, said in wrong.items():
        site.config_file.write_text(text)
        served.hang_up(REFUSED)
        assert said in served.log
        assert decode_reply(ask(path, line_of(KNOWN))).grant.mem_per_node_mib, "it goes on as it was"
    served.stop()


def test_every_fixed_key_exists_in_the_configuration() -> None:
    whole = Config()
    assert all(hasattr(getattr(whole, section), key) for section, key in FIXED)
    assert changed(whole, Config(service=Service(socket="/x"), mode="enforce")) == ["service.socket"]
    assert changed(whole, whole) == []


def decided(site: Site, path: Path) -> Decision:
    """Ask as a client; return what was journalled of that."""
    assert ask(path, test_clients.line_of())
    return test_clients.journalled(site)[-1]


def test_the_service_for_clients_reloads_too(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    path, other = site.folder / "clients", site.folder / "other.off"
    site.configure(client={"socket": str(path), "kill_switch": str(site.folder / "clients.off")})
    served = Served(site.start("serve", "--clients"))
    wait_until(path.is_socket, "the service does not come up")
    site.configure(
        policy={"memory_margin": 1.0}, rules=[{"name": "own", "group": [grp.getgrgid(os.getgid()).gr_name]}]
    )
    served.hang_up(READ_ANEW)
    assert decided(site, path).rule == "own", "the members of its group are known"
    wait_until(
        lambda: (under := decided(site, path).settings) and under.memory_margin == 1.0,
        "the margin does not come",
    )
    other.touch()
    assert ask(path, test_clients.line_of())
    site.configure(client={"kill_switch": str(other)})
    served.hang_up(READ_ANEW)
    assert ask(path, test_clients.line_of()) == b"", "the new switch counts"
    other.unlink()
    assert ask(path, test_clients.line_of())
    served.stop()


def test_the_service_for_clients_follows_models_and_brakes(site: Site, trained_model: TrainedModel) -> None:
    path = site.folder / "clients"
    brakes = pulled_file(site.configure(mode="enforce", client={"socket": str(path)}).brakes)
    served = Served(site.start("serve", "--clients"))
    wait_until(path.is_socket, "the service does not come up")
    assert decided(site, path).reason == "no-model"
    install(site, trained_model)
    wait_until(lambda: decided(site, path).model == trained_model.version, "the model does not come")
    brakes.pull(Pulled(brake=ALL, time_s=0.0, why=""))
    wait_until(lambda: decided(site, path).mode == "observe", "the brake does not come")
    assert brakes.let_go(ALL)
    wait_until(lambda: decided(site, path).mode == "enforce", "the brake stays")
    served.stop()
