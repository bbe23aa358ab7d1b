"""Brakes from the feed to the next answer, through a real service; and what a person sees and does."""

import json
import signal
import time

import msgspec
import pytest

from accounting.decisions.token import find_token
from models.past.jobs import PastJob
from models.past.recent import Finished
from models.past.trials import Trial
from models.versions.feed import append_jobs
from slurm_plugin.brakes.evidence import Evidence
from slurm_plugin.brakes.pools import PORTION_S, Pool, Portion
from slurm_plugin.brakes.pulled import FILE, Pulled, PulledFile
from slurm_plugin.brakes.tallies import Counts
from slurm_plugin.brakes.watch import EVIDENCE, Kept
from slurm_plugin.policy.braked import ALL, family_brake, partition_brake
from slurm_plugin.policy.submission import Submission, job_request
from tests.builders import executable, submission
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.slurm_plugin.conftest import Run
from tests.slurm_plugin.service.asking import install, reply
from tests.waiting import wait_until

KILLED = Trial(shrunk=True, failed=True, wanted="out_of_memory")
FIT = submission(name="fit", cpus_per_task=8, mem_per_node_mib=8000, partition="main")
KILLED_WITH_FEWER_CPUS = Trial(shrunk=True, failed=True, killed_with_fewer_cpus=True)
SIM = submission(name="sim", cpus_per_task=8, mem_per_node_mib=8000, partition="main")


def is_cut(site: Site, job: Submission = FIT) -> bool:
    return bool(reply(site, job).grant)


def why(site: Site, job: Submission = FIT) -> str:
    token = find_token(reply(site, job).token)
    assert token is not None
    return token.reason


def end_jobs(site: Site, trial: Trial, numbers: range) -> None:
    """Put ended jobs into the feed that differ only in their trial, so that nothing else changes an answer."""
    now_s = time.time()
    ended = [
        Finished(
            told_s=now_s,
            request=job_request(FIT),
            job=PastJob(
                end_s=int(now_s) - 100,
                num_tasks=1,
                asked_cpus=8,
                asked_mem_mib=8000,
                asked_gpus=None,
                complete=True,
                mem_mib=100.0,
                mem_at_least=False,
                cores_per_task=0.5,
                wall_s=100,
                gpus=None,
                gpu_source="",
                script=job_request(FIT).script_signature,
                job_id=number,
            ),
            trial=trial,
        )
        for number in numbers
    ]
    append_jobs(site.models, ended, now_s)


@pytest.fixture
def enforcing(site: Site, trained_model: TrainedModel) -> Site:
    install(site, trained_model)
    site.configure(mode="enforce")
    return site


def stopped(site: Site) -> PulledFile:
    return PulledFile(site.folder / "brakes")


def test_a_family_whose_cut_jobs_are_killed_is_left_whole_until_a_person_releases_it(
    enforcing: Site, run: Run
) -> None:
    service = enforcing.serve()
    assert is_cut(enforcing)
    end_jobs(enforcing, KILLED, range(4))
    wait_until(lambda: not is_cut(enforcing))
    assert why(enforcing) == "braked"
    assert is_cut(enforcing, SIM), "others go on"
    # A brake applies at once, even if no disk takes it: its file is written afterwards.
    wait_until(lambda: bool(stopped(enforcing).read().pulled))
    [one] = stopped(enforcing).read().pulled
    assert (one.brake, one.counts.wanted) == (family_brake("alice", "fit"), one.counts.shrunk)
    service.send_signal(signal.SIGTERM)
    service.wait(PATIENCE_S)
    enforcing.serve()
    assert not is_cut(enforcing), "a restart lets nothing go"
    checked = run("config", "check", "--user", "alice", "--name", "fit", "--format", "json")
    held = {row["settings for this job"]: row["value"] for row in json.loads(checked.out)}
    assert (held["mode"], held["brake"]) == ("observe", "jobs of alice named fit")
    found = {row["check"]: row for row in json.loads(run("doctor", "--format", "json").out)}["brakes"]
    assert found["state"] == "warning"
    assert "cut jobs were killed for memory" in found["saw"]
    assert "rightsizer enable --family alice:fit" in found["fix"]
    assert "still not cut: jobs of alice named fit" in run("enable").err
    assert "brake released" in run("enable", "--family", "alice:fit").err
    wait_until(lambda: is_cut(enforcing))
    end_jobs(enforcing, Trial(shrunk=True), range(100, 103))
    end_jobs(enforcing, KILLED, range(200, 201))
    time.sleep(2.5)
    assert is_cut(enforcing), "it begins anew, and what was told before is not counted again"


def test_a_kill_counts_against_cut_cpus_only_if_memory_comes_with_them(enforcing: Site) -> None:
    service = enforcing.serve()
    end_jobs(enforcing, KILLED_WITH_FEWER_CPUS, range(8))
    time.sleep(2.5)
    assert is_cut(enforcing)
    service.send_signal(signal.SIGTERM)
    service.wait(PATIENCE_S)
    enforcing.configure(mode="enforce", policy={"def_mem_per_cpu_mib": 1000})
    enforcing.serve()
    end_jobs(enforcing, KILLED_WITH_FEWER_CPUS, range(10, 18))
    wait_until(lambda: not is_cut(enforcing))


def use_up(site: Site, since_s: float) -> None:
    """Leave counts by which everything is stopped once the portions that began at `since_s` are over."""
    killed = Portion(since_s, Counts(shrunk=1, failed=1, wanted=1))
    everything = Pool(portions=dict.fromkeys(("ann", "bob", "cid", "dan", "eli", "fay"), killed))
    (site.folder / "brakes").mkdir(exist_ok=True)
    kept = msgspec.json.encode(Kept(Evidence(of_all=everything)))
    (site.folder / "brakes" / EVIDENCE).write_bytes(kept)


def test_the_kill_switch_is_made_where_a_changed_configuration_says(enforcing: Site) -> None:
    # Leaves time to start and to read the configuration again.
    use_up(enforcing, time.time() - PORTION_S + 8)
    service = enforcing.serve()
    assert is_cut(enforcing, SIM)
    enforcing.configure(mode="observe", hook={"kill_switch": f"{enforcing.folder}/moved"})
    service.send_signal(signal.SIGHUP)
    wait_until(lambda: not is_cut(enforcing, SIM))
    wait_until(lambda: stopped(enforcing).read().brakes == {ALL})
    assert (enforcing.folder / "moved").exists()
    assert not (enforcing.folder / "disabled").exists()


def test_a_brake_on_everything_also_makes_the_kill_switch_of_the_hook(enforcing: Site, run: Run) -> None:
    enforcing.serve()
    assert is_cut(enforcing, SIM)
    enforcing.stop_all()
    assert not (enforcing.folder / "disabled").exists()
    use_up(enforcing, 0.0)
    enforcing.serve()
    wait_until((enforcing.folder / "disabled").exists)
    assert not is_cut(enforcing, SIM)
    # A brake counts first, and is written down after that.
    wait_until(lambda: stopped(enforcing).read().brakes == {ALL})
    ran = run("doctor", "--format", "json")
    states = {row["check"]: row["state"] for row in json.loads(ran.out)}
    assert (states["brakes"], states["kill-switch"], ran.code) == ("problem", "warning", 3)
    assert run("enable", "--all").code == 0
    assert not (enforcing.folder / "disabled").exists()
    wait_until(lambda: is_cut(enforcing, SIM))


def test_a_damaged_file_stops_everything_and_answers_go_on(enforcing: Site, run: Run) -> None:
    enforcing.serve()
    (enforcing.folder / "brakes").mkdir(exist_ok=True)
    (enforcing.folder / "brakes" / FILE).write_text('[{"brake"', encoding="utf-8")
    wait_until(lambda: not is_cut(enforcing))
    assert why(enforcing, SIM) == "braked"
    found = {row["check"]: row for row in json.loads(run("doctor", "--format", "json").out)}["brakes"]
    assert found["state"] == "problem"
    assert "is damaged" in found["saw"]
    assert "starts again without brakes" in run("enable").err
    assert run("enable", "--all").code == 0
    wait_until(lambda: is_cut(enforcing))


def test_damaged_evidence_starts_anew_from_the_feed(enforcing: Site) -> None:
    end_jobs(enforcing, KILLED, range(4))
    (enforcing.folder / "brakes").mkdir()
    (enforcing.folder / "brakes" / EVIDENCE).write_text("{", encoding="utf-8")
    service = enforcing.serve()
    wait_until(lambda: not is_cut(enforcing))
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=PATIENCE_S)
    assert log.count(b"what the brakes had counted is lost") == 1
    assert b"Traceback" not in log


def test_a_brake_applies_even_if_no_disk_takes_it(enforcing: Site) -> None:
    (enforcing.folder / "brakes").write_text("no folder")
    enforcing.serve()
    assert is_cut(enforcing)
    end_jobs(enforcing, KILLED, range(4))
    wait_until(lambda: not is_cut(enforcing))
    time.sleep(1.5)
    assert not is_cut(enforcing)
    (enforcing.folder / "brakes").unlink()
    wait_until(lambda: stopped(enforcing).read().brakes == {family_brake("alice", "fit")})


def test_a_person_can_stop_a_part_at_once(enforcing: Site, run: Run) -> None:
    enforcing.serve()
    assert is_cut(enforcing)
    assert "rightsizer enable --partition main" in run("disable", "--partition", "main").err
    wait_until(lambda: not is_cut(enforcing))
    assert not is_cut(enforcing, SIM)
    assert "may be cut again" in run("enable", "--partition", "main").err
    wait_until(lambda: is_cut(enforcing))
    assert "no brake was pulled" in run("enable", "--partition", "main").err
    assert "by hand" in run("disable", "--family", "alice:fit_12").err or stopped(enforcing).read().pulled


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        ("mian", "no partition mian, so this affects no current job; did you mean `main`?"),
        ("xyz", "; its partitions are main, hidden"),
        ("main", ""),
        ("hidden", ""),
    ],
)
def test_a_partition_unknown_to_slurmctld_is_stopped_with_a_warning(
    site: Site, run: Run, monkeypatch: pytest.MonkeyPatch, partition: str, said: str
) -> None:
    """Somebody who mistypes it in a hurry would otherwise believe that its jobs are left alone."""
    tools = site.folder / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    lines = "PartitionName=main AllowGroups=ALL\nPartitionName=hidden Hidden=YES"
    text = f'#!/bin/sh\n[ "$*" = "--all --oneliner show partition" ] && echo "{lines}"\n'
    executable(tools / "scontrol", text)
    told = run("disable", "--partition", partition)
    assert (told.code, said in told.err, "slurmctld" in told.err) == (0, True, bool(said))
    executable(tools / "scontrol", "#!/bin/sh\nexit 1\n")
    assert "slurmctld" not in run("disable", "--partition", partition).err


def test_a_brake_of_any_name_can_be_released_once(site: Site, run: Run) -> None:
    """Earlier releases pulled brakes on lists of partitions, too."""
    stopped(site).pull(Pulled(brake=partition_brake("main,gpu"), time_s=0.0, why="by hand: root"))
    assert "brake released" in run("enable", "--partition", "main,gpu").err
    again = run("enable", "--partition", "main,gpu")
    assert (again.code, "give the name of one partition" in again.err) == (2, True)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    "options", [("--family", "alice"), ("--family", "root:"), ("--family", "a:b", "--partition", "c")]
)
def test_parts_are_named_one_at_a_time_and_completely(options: tuple[str, ...], run: Run) -> None:
    assert run("disable", *options).code == 2
