"""The main job on a real Slurm: sbatch unchanged, a smaller allocation. Slurm's figures count, not our own fields."""

import contextlib
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accounting.decisions.token import Token, find_token
from slurm_plugin.policy.facts import Minimum, SiteFacts
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.cluster import Options
from slurm_plugin.slurm.facts import gather
from slurm_plugin.slurm.nodes import parse_nodes
from tests.cluster.conftest import Shell
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.conftest import IN_USE_S
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HISTORY_JOBS = 6
USES_200_MIB_AND_A_CORE = """\
python3 - <<'PYTHON'
import time
held = b"1" * (200 * 1024 * 1024)
end = time.monotonic() + 3
while time.monotonic() < end:
    pass
PYTHON
"""
WAITS = "srun sleep 3\n"
FAMILIES = {
    "single": ("-c 8 --mem=8000", USES_200_MIB_AND_A_CORE),
    "percpu": ("-c 8 --mem-per-cpu=1000", USES_200_MIB_AND_A_CORE),
    "onegpu": ("-c 2 --mem=4000 --gres=gpu:4", "simulate-gpu-use 1\nsleep 3\n"),
    "twotasks": ("-n 2 -c 8 --mem=8000", WAITS),
}


class Site:
    """A sandbox with a history of jobs that requested too much, a trained model, and the scripts behind it."""

    def __init__(self, shell: Shell, scripts: Path) -> None:
        self.shell = shell
        self.directory = shell.sandbox.directory
        self.scripts = scripts

    def write_script(self, name: str, options: str, body: str) -> Path:
        script = self.scripts / f"{name}.sh"
        script.write_text(f"#!/bin/bash\n#SBATCH --job-name={name} {options}\n{body}", encoding="utf-8")
        return script

    def submit(self, name: str, *options: str) -> int:
        script = str(self.scripts / f"{name}.sh")
        return int(
            self.shell.run("sbatch", "--parsable", "--output=/dev/null", *options, script).partition(";")[0]
        )

    def run(self, name: str, *options: str) -> int:
        job = self.submit(name, *options)
        assert self.shell.wait_ended(job) == "COMPLETED"
        return job

    def shown(self, job: int, field: str) -> str:
        """Return one field of the job from slurmctld; slurmdbd hears of a submission only later."""
        found = re.search(rf"\b{field}=(\S*)", self.shell.run("scontrol", "show", "job", str(job)))
        return found[1] if found else ""

    def requested(self, job: int) -> dict[str, str]:
        pairs = (self.shown(job, "ReqTRES") or self.shown(job, "TRES")).split(",")
        return dict(pair.split("=", 1) for pair in pairs if pair)

    def token(self, job: int) -> Token:
        token = find_token(self.shown(job, "AdminComment"))
        assert token is not None, f"job {job} has no token"
        return token

    def set_mode(self, mode: str) -> None:
        self.shell.run("rightsizer", "sandbox", "mode", "--dir", str(self.directory), mode)


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path], shell: Shell) -> Site:
    folder = make_folder()
    asked = Options(directory=folder / "site", nodes=4, slurm_prefix=chosen_prefix(), mode="observe")
    sandbox = cluster.start(asked)
    site = Site(type(shell)(sandbox), folder)
    for name, (options, body) in FAMILIES.items():
        site.write_script(name, options, body)
    jobs = {name: [site.submit(name) for _ in range(HISTORY_JOBS)] for name in FAMILIES}
    for several in jobs.values():
        for job in several:
            assert site.shell.wait_ended(job) == "COMPLETED"
    site.shell.run("rightsizer", "ingest")
    site.shell.run("rightsizer", "train", "--promote", "always")
    log = sandbox.layout.log / f"{daemons.SERVE}.out"
    wait_until(lambda: "in use" in log.read_text(encoding="utf-8"))
    return site


@pytest.fixture
def enforcing(site: Site) -> Iterator[Site]:
    site.set_mode("enforce")
    yield site
    site.set_mode("observe")


def test_observe_changes_nothing_and_leaves_a_token(site: Site) -> None:
    job = site.run("single")
    allocated = site.shell.allocated(job)
    assert (allocated["cpu"], allocated["mem"]) == ("8", "8000M")
    token = site.token(job)
    assert (token.mode, token.reason, token.granted) == ("observe", "resized", {})


def test_a_family_with_history_gets_a_smaller_allocation_and_completes(enforcing: Site) -> None:
    job = enforcing.run("single")
    allocated = enforcing.shell.allocated(job)
    assert int(allocated["cpu"]) < 8
    assert 200 < int(allocated["mem"].removesuffix("M")) < 2000
    token = find_token(enforcing.shell.accounted(job, "AdminComment"))
    assert token is not None
    assert token.asked == {"tasks": 1, "cpus": 8, "mem": 8000}
    assert token.granted == {"cpus": int(allocated["cpu"]), "mem": int(allocated["mem"].removesuffix("M"))}


def test_a_request_for_memory_per_cpu_stays_per_cpu(enforcing: Site) -> None:
    job = enforcing.submit("percpu")
    shown = enforcing.shell.run("scontrol", "show", "job", str(job))
    assert "MinMemoryCPU=" in shown
    assert enforcing.shell.wait_ended(job) == "COMPLETED"
    allocated = enforcing.shell.allocated(job)
    assert int(allocated["cpu"]) < 8
    assert 200 < int(allocated["mem"].removesuffix("M")) < 2000
    assert set(enforcing.token(job).granted) <= {"cpus", "mem-per-cpu"}


def test_unused_gpus_are_given_back(enforcing: Site) -> None:
    job = enforcing.run("onegpu")
    assert enforcing.shell.allocated(job)["gres/gpu"] == "1"
    assert (enforcing.token(job).asked["gpus"], enforcing.token(job).granted["gpus"]) == (4, 1)


def test_two_tasks_keep_two_cpus(enforcing: Site) -> None:
    job = enforcing.run("twotasks")
    cpus = int(enforcing.shell.allocated(job)["cpu"])
    assert cpus == 2 * enforcing.token(job).granted["cpus"]
    assert 2 <= cpus < 16
    enforcing.shell.wait_step(job, "0", "NTasks,State", "2|COMPLETED")


def test_a_new_family_gets_exactly_what_it_asked_for(enforcing: Site) -> None:
    enforcing.write_script("newcomer", "-c 4 --mem=3000", "sleep 1\necho a new kind of work\n")
    job = enforcing.run("newcomer")
    allocated = enforcing.shell.allocated(job)
    assert (allocated["cpu"], allocated["mem"]) == ("4", "3000M")
    assert enforcing.token(job).reason == "no-evidence"


def test_an_opted_out_job_gets_exactly_what_it_asked_for(enforcing: Site) -> None:
    job = enforcing.run("single", "--comment=nightly rightsize=off")
    allocated = enforcing.shell.allocated(job)
    assert (allocated["cpu"], allocated["mem"]) == ("8", "8000M")
    assert enforcing.token(job).reason == "opted-out"


@pytest.mark.parametrize(("option", "form"), [("--exclusive", "exclusive"), ("--mem=0", "mem_all")])
def test_other_forms_are_left_as_they_are_with_the_reason_recorded(
    enforcing: Site, option: str, form: str
) -> None:
    # Held: for a running job 22.05 shows the allocation, which for a whole node is more than the request.
    job = enforcing.submit("single", option, "--hold")
    assert enforcing.token(job).reason == f"form-not-handled:{form}"
    assert enforcing.requested(job)["cpu"] == "8"
    enforcing.shell.run("scancel", str(job))


def test_advise_mode_tells_the_user_and_changes_nothing(site: Site) -> None:
    site.set_mode("advise")
    try:
        job, line = submit_and_listen(site, "single")
    finally:
        site.set_mode("observe")
    assert "would be enough for this job" in line
    assert site.requested(job)["mem"] == "8000M"
    site.shell.run("scancel", str(job))


def test_enforce_mode_tells_the_user_what_changed_and_how_to_opt_out(enforcing: Site) -> None:
    job, line = submit_and_listen(enforcing, "single")
    assert "you asked for 8" in line
    assert "--comment=rightsize=off" in line
    enforcing.shell.run("scancel", str(job))


def test_the_minimum_of_a_qos_is_read_from_slurm(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in site.shell.sandbox.environment().items():
        monkeypatch.setenv(name, value)
    site.shell.run("sacctmgr", "--immediate", "add", "qos", "large", "MinTRESPerJob=cpu=4,gres/gpu=2")
    site.shell.run("sacctmgr", "--immediate", "add", "qos", "billed", "MinTRESPerJob=billing=6")
    assert gather(SiteFacts()).facts.qos_minimums == {
        "large": Minimum(cpus=4, gpus=2),
        "billed": Minimum(is_billed=True),
    }


def submit_and_listen(site: Site, name: str) -> tuple[int, str]:
    """Submit and return what sbatch wrote to stderr, where slurmctld's messages appear."""
    errors = site.scripts / "stderr"
    script = site.scripts / f"{name}.sh"
    command = f"sbatch --parsable --hold --output=/dev/null '{script}' 2>'{errors}'"
    job = int(site.shell.run("sh", "-c", command).partition(";")[0])
    return job, errors.read_text(encoding="utf-8")


def test_a_disabled_hook_leaves_the_very_next_job_alone(enforcing: Site) -> None:
    enforcing.shell.run("rightsizer", "disable")
    try:
        job = enforcing.submit("single", "--hold")
        assert enforcing.requested(job)["mem"] == "8000M"
        assert enforcing.shown(job, "AdminComment") == ""
    finally:
        enforcing.shell.run("rightsizer", "enable")
    enforcing.shell.run("scancel", str(job))
    job = enforcing.submit("single", "--hold")
    assert enforcing.requested(job)["mem"] != "8000M"
    enforcing.shell.run("scancel", str(job))


def test_a_new_model_is_in_use_soon_after_training(enforcing: Site) -> None:
    version = enforcing.shell.run("rightsizer", "train", "--promote", "always").strip()

    def is_in_use() -> bool:
        job = enforcing.submit("single", "--hold")
        model = enforcing.token(job).model
        enforcing.shell.run("scancel", str(job))
        return model == version

    wait_until(is_in_use, patience_s=IN_USE_S)


def test_ingesting_twice_adds_nothing_the_second_time(site: Site) -> None:
    site.shell.wait_step(site.run("single"), "batch", "State", "COMPLETED")
    first = json.loads(site.shell.run("rightsizer", "ingest", "--format", "json"))
    second = json.loads(site.shell.run("rightsizer", "ingest", "--format", "json"))
    assert next(row["new"] for row in first if row["what"] == "attempts") >= 1
    assert [(row["new"], row["changed"]) for row in second] == [(0, 0)] * len(second)


def test_jobs_that_ran_are_replayed_on_the_real_nodes_of_the_cluster(site: Site) -> None:
    # The past of its family had ended when it was submitted.
    site.run("single")
    site.shell.run("rightsizer", "ingest")
    shown = site.shell.run("scontrol", "--oneliner", "show", "node")
    fields = re.findall(r"CPUTot=(\d+).*?RealMemory=(\d+)", shown)
    gpus = re.findall(r"Gres=gpu:(\d+)", shown)
    has = [(int(cpus), int(mem), int(gpu)) for (cpus, mem), gpu in zip(fields, gpus, strict=True)]
    assert len(has) == 4
    found = parse_nodes(shown)
    assert [(one.cpus, one.mem_mib, one.gpus) for one in found.nodes for _ in range(one.count)] == has
    recorded, asked, ours = json.loads(site.shell.run("rightsizer", "replay", "--format", "json"))
    assert [recorded["sizing"], asked["sizing"], ours["sizing"]] == ["recorded", "as asked", "rightsizer"]
    assert recorded["jobs"] == asked["jobs"] == ours["jobs"] >= HISTORY_JOBS * len(FAMILIES)
    assert recorded["completed"] == asked["completed"] == ours["completed"]
    assert ours["resized"] > asked["resized"] == 0


def test_explain_says_what_became_of_a_job(enforcing: Site) -> None:
    job = enforcing.run("single")
    enforcing.shell.run("rightsizer", "ingest")
    rows = json.loads(enforcing.shell.run("rightsizer", "explain", str(job), "--format", "json"))
    memory = next(row for row in rows if row["resource"] == "memory (MiB)")
    assert memory["asked"] == 8000
    assert f"{memory['allocated']}M" == enforcing.shell.allocated(job)["mem"]
    assert 150 < memory["used"] <= memory["allocated"]


def test_a_grant_that_the_hook_refuses_is_recorded_and_explained(enforcing: Site) -> None:
    # A limit newer than what the service has read: the hook sees it at once. The job is held because Slurm would refuse
    # one that cannot start under the limit.
    enforcing.shell.run("scontrol", "update", "PartitionName=main", "MaxMemPerCPU=20")
    try:
        job = enforcing.submit("single", "--hold")
    finally:
        enforcing.shell.run("scontrol", "update", "PartitionName=main", "MaxMemPerCPU=0")
    assert enforcing.requested(job)["mem"] == "8000M"
    token = enforcing.token(job)
    assert (token.refused, token.granted) == ("memory_per_cpu_limit", {})
    assert (token.asked, token.reason) == ({"tasks": 1, "cpus": 8, "mem": 8000}, "resized")
    enforcing.shell.run("scontrol", "release", str(job))
    assert enforcing.shell.wait_ended(job) == "COMPLETED"
    allocated = enforcing.shell.allocated(job)
    assert (allocated["cpu"], allocated["mem"]) == ("8", "8000M")
    enforcing.shell.run("rightsizer", "ingest")
    errors = enforcing.scripts / "explained"
    enforcing.shell.run("sh", "-c", f"rightsizer explain {job} 2>'{errors}'")
    story = errors.read_text(encoding="utf-8")
    assert f"decision {token.decision_id} (refused:memory_per_cpu_limit) was not applied" in story
    assert "MaxMemPerCPU" in story


def rubbish(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b'{"v":1,"id":"somebody else","grant":{"cpus_per_task":64}}\n')


def silence(connection: socket.socket) -> None:
    connection.settimeout(5)
    with contextlib.suppress(OSError):
        while connection.recv(65536):
            pass


def nothing_but_a_hangup(connection: socket.socket) -> None:
    connection.recv(10)


@contextlib.contextmanager
def impostor(path: Path, behave: Callable[[socket.socket], None]) -> Iterator[None]:
    """Answer on the service's socket in place of the service."""
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(8)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    behave(connection)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def without_service(site: Site, number: int) -> Iterator[None]:
    """End the service by a signal, and start it again after the block."""
    record = teardown.running_record(site.shell.sandbox.layout, daemons.SERVE)
    assert record is not None
    os.kill(record.identity.pid, number)
    cluster.stop_service(site.directory)
    try:
        yield
    finally:
        cluster.start_service(site.directory)


def assert_left_alone(site: Site) -> None:
    job = site.run("single")
    allocated = site.shell.allocated(job)
    assert (allocated["cpu"], allocated["mem"]) == ("8", "8000M")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_sbatch_succeeds_unchanged_without_the_service(enforcing: Site, number: int) -> None:
    with without_service(enforcing, number):
        assert_left_alone(enforcing)


@pytest.mark.parametrize("behave", [rubbish, silence, nothing_but_a_hangup])
def test_sbatch_succeeds_unchanged_with_a_lying_or_hung_service(
    enforcing: Site, behave: Callable[[socket.socket], None]
) -> None:
    with (
        without_service(enforcing, signal.SIGTERM),
        impostor(enforcing.shell.sandbox.layout.service_socket, behave),
    ):
        assert_left_alone(enforcing)


def test_sbatch_succeeds_unchanged_with_a_stopped_service_process(enforcing: Site) -> None:
    record = teardown.running_record(enforcing.shell.sandbox.layout, daemons.SERVE)
    assert record is not None
    os.kill(record.identity.pid, signal.SIGSTOP)
    try:
        assert_left_alone(enforcing)
    finally:
        os.kill(record.identity.pid, signal.SIGCONT)
