"""The jobs whose accounting is checked: all submitted together, then driven as users, nodes and clocks drive jobs."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster.accounting.forgery import ADMIN_COMMENT, ODD_NAMES, forged_texts
from tests.cluster.accounting.site import Site
from tests.cluster.advised_site import until
from tests.waiting import wait_until

# Longer than any of these jobs may run.
FOR_EVER_S = "1700"
# How long a job holds what Slurm should see: it samples once a second, less often if the machine is busy.
SEEN_S = "8"
ARRAY_FAILS = 2
TIMED_OUT = ("timeout", "timeout-by-end-time")
CANCELLED = ("cancelled", "cancelled-pending", "array-cancelled", "array-never-started")
APART_S = 2
# A limit that no job reaches, in minutes.
FAR_MIN = 30
REQUEUED = ("requeue", "requeuehold", "node-fail")
VICTIM_MIB = 70
RUNNING_OR_SUSPENDED = 2
# Enough for the one job with a limit of a minute to be killed: slurmctld looks every half minute.
PATIENCE_S = 600.0
# So long after the last job's end a step that slurmctld does not know of may still be on its way to slurmdbd.
STEPS_PATIENCE_S = 10.0


def submit_all(site: Site) -> None:
    """Submit everything; forgeries need the id of their victim, which comes first."""
    submit_killed(site)
    submit_attempts(site)
    submit_steps(site)
    submit_shapes(site)
    submit_ends(site)
    submit_texts(site)


def submit_killed(site: Site) -> None:
    """Submit jobs that are killed for time and, if memory is limited, for memory."""
    site.submit("timeout", "--time=1", "--mem=50", script=site.worker("20:" + FOR_EVER_S))
    # Its own limit is far: on a busy machine it takes more than a minute until all jobs to be driven run.
    site.submit(
        "timeout-by-end-time", f"--time={FAR_MIN}", "--mem=50", script=site.worker("20:" + FOR_EVER_S)
    )
    if site.sandbox.manifest.enforcement.memory:
        site.submit("oom-quick", "--mem=100", script=site.worker("400:60"))
        site.submit("oom-slow", "--mem=100", script=site.worker("grow:400"))
        site.submit("oom-step", "--mem=100", script=f"srun {site.worker('400:60')}; exit 3")
        site.submit("oom-step-survived", "--mem=100", script=f"srun {site.worker('400:60')}; true")


def submit_attempts(site: Site) -> None:
    """Submit jobs that hold 60 MiB in a step at their first attempt, until they are requeued, and then 20 MiB."""
    again = (
        f'case "${{SLURM_RESTART_COUNT:-0}}" in 0) srun {site.worker("60:" + FOR_EVER_S)};; '
        f"*) srun {site.worker('20:' + SEEN_S)};; esac"
    )
    last = site.sandbox.manifest.nodes[-1]
    for name in REQUEUED:
        where = ("--nodelist=" + last,) if name == "node-fail" else ("--exclude=" + last,)
        site.submit(name, "--requeue", "--mem=150", f"--time={FAR_MIN}", *where, script=again)


def submit_steps(site: Site) -> None:
    """Submit jobs with steps one after another, at the same time, and too short to be sampled."""
    here = "--exclude=" + site.sandbox.manifest.nodes[-1]
    one, other = "80:" + SEEN_S, "40:" + SEEN_S
    site.submit("in-turn", here, "--mem=200", script=f"srun {site.worker(one)}; srun {site.worker(other)}")
    alone = "srun --ntasks=1 --mem=120 --overlap"
    one, other = site.worker("meet:2", one), site.worker("meet:2", other)
    # Batch scripts of 25.05 and 25.11.0 run with SIGCHLD blocked: then dash's `wait` never ends, but bash's does.
    both = f"bash -c {shlex.quote(f'{alone} {one} & {alone} {other} & wait')}"
    site.submit("at-once", here, "--mem=300", "--ntasks=2", script=both)
    site.submit(
        "at-once-in-turn",
        here,
        "--mem=300",
        "--ntasks=2",
        script=f"{both}; sleep 1; srun -n1 {site.worker('90:' + SEEN_S)}",
    )
    site.submit("in-batch", here, "--mem=200", script=site.worker("30:" + SEEN_S, "70:" + SEEN_S))
    site.submit("sub-second", here, "--mem=50")
    site.submit("sub-second-step", here, "--mem=200", script=f"srun {site.worker('100:0.1')}")
    site.submit("gpus", here, "--mem=50", "--gres=gpu:2")
    site.submit("busy", here, "--mem=50", script=f"srun {site.worker('cpu:4')}")


def submit_shapes(site: Site) -> None:
    """Submit jobs with many tasks, nodes or components, and arrays."""
    here = "--exclude=" + site.sandbox.manifest.nodes[-1]
    sized = "sh -c 'exec {} $(({} + {} * SLURM_PROCID)):" + SEEN_S + "'"
    site.submit(
        "tasks", here, "--mem=300", "--ntasks=3", script="srun " + sized.format(site.worker("meet:3"), 20, 40)
    )
    site.submit(
        "two-nodes",
        here,
        "-N2",
        "--mem=200",
        "--ntasks=2",
        script="srun " + sized.format(site.worker("meet:2"), 40, 50),
    )
    site.submit(
        "two-nodes-four-tasks",
        here,
        "-N2",
        "--ntasks=4",
        "--ntasks-per-node=2",
        "--mem=300",
        script="srun " + sized.format(site.worker("meet:4"), 20, 20),
    )
    index = "$SLURM_ARRAY_TASK_ID"
    task = f"$((10 + 20 * {index})):{SEEN_S} exit:$(({index} == {ARRAY_FAILS} ? 9 : 0))"
    site.submit("array", here, "--array=0-3%2", "--mem=120", script=site.worker(task))
    site.submit("array-cancelled", here, "--array=0-3%1", "--mem=50", script=site.worker("20:" + FOR_EVER_S))
    submit_het(site, here)


def submit_het(site: Site, here: str) -> None:
    """Submit a job of two components: one task of 30 MiB, and two of 60 MiB each."""
    script = site.folder / "het.sh"
    parts = [f"--het-group={group} {site.worker(f'{mib}:{SEEN_S}')}" for group, mib in ((0, 30), (1, 60))]
    script.write_text(f"#!/bin/sh\nsrun {parts[0]} : {parts[1]}\n", encoding="utf-8")
    first = [f"--output={site.folder}/out-het-%j", "--job-name=het", here, "--mem=100", "--ntasks=1"]
    second = ["--job-name=het-1", here, "--mem=150", "--ntasks=2"]
    answer = site.run("sbatch", "--parsable", *first, ":", *second, str(script))
    site.jobs["het"] = int(answer.partition(";")[0])
    site.jobs["het-1"] = site.jobs["het"] + 1


def submit_ends(site: Site) -> None:
    """Submit jobs that fail, kill themselves, or are cancelled while running or before they start."""
    here = "--exclude=" + site.sandbox.manifest.nodes[-1]
    site.submit("exit-code", here, "--mem=50", script=site.worker("20:2 exit:7"))
    site.submit("killed-by-itself", here, "--mem=50", script="sleep 2; kill -KILL $$")
    site.submit("cancelled", here, "--mem=80", script=site.worker("40:" + FOR_EVER_S))
    site.submit(RUNS_ON, here, "--mem=20", f"--time={FAR_MIN}", script=until(end_file(site)))
    # Eligible, but will never start: it wants all nodes, whole, after everything else.
    never = ("--nodes=3", "--exclusive", "--nice=100000")
    site.submit("cancelled-pending", *never)
    # Its name makes ingest ask for it separately, and sacct takes no id of tasks that never started.
    site.submit("array-never-started", *never, "--array=0-2", b"--job-name=never\nstarted")


def submit_texts(site: Site) -> None:
    """Submit jobs with odd names and comments, and jobs whose names and comments pretend to be rows of sacct.

    The forgers belong to another user, if the tests can act as one; the victim's name is ordinary, and its admin
    comment a token of ours.
    """
    here = "--exclude=" + site.sandbox.manifest.nodes[-1]
    site.submit("victim", here, "--mem=150", script=f"srun {site.worker(f'{VICTIM_MIB}:{SEEN_S}')}")
    site.run("scontrol", "update", f"jobid={site.jobs['victim']}", f"AdminComment={ADMIN_COMMENT}")
    for number, name in enumerate(ODD_NAMES):
        site.submit(f"odd-{number}", here, "--mem=20", b"--job-name=" + name)
        site.submit(f"odd-comment-{number}", here, "--mem=20", b"--comment=" + name)
    step_name = b"srun --mem=10 --job-name=\"$(printf 'x\\n" + forged_step(site) + b"')\" true"
    site.submit("odd-step", here, "--mem=20", script=step_name.decode())
    site.submit("odd-array", here, "--array=0-1", "--mem=20", b"--job-name=odd\narray\x1f")
    for number, what in enumerate(forged_texts(("1", "1"), ("1", "1"))):
        for kind in ("name", "comment"):
            submit_forger(site, here, f"forged-{kind}-{number}", kind, what)


def forged_step(site: Site) -> bytes:
    """Return a forged row as an argument of `printf`."""
    text = forged_texts(key_of(site, "victim"), ("1", "1"))["a step of the victim"].partition(b"\n")[2]
    return text.replace(b"\x1f", b"\\037")


def submit_forger(site: Site, here: str, job: str, kind: str, what: str) -> None:
    """Submit a job on hold, rename it once its id and submit time are known, and release it."""
    site.submit(job, here, "--mem=20", "--hold", user=site.stranger)
    text = forged_texts(key_of(site, "victim"), key_of(site, job))[what]
    change = {"name": b"JobName=", "comment": b"Comment="}[kind] + text
    site.run("scontrol", "update", f"jobid={site.jobs[job]}", change, user=site.stranger)
    site.run("scontrol", "release", str(site.jobs[job]), user=site.stranger)


def key_of(site: Site, job: str) -> tuple[str, str]:
    """Return a job's id and submit time, as sacct prints them to ingest."""
    argv = ("squeue", "--noheader", "--states=all", f"--jobs={site.jobs[job]}", "--Format=SubmitTime")
    return str(site.jobs[job]), site.run(*argv, more={"SLURM_TIME_FORMAT": "%s"}).strip()


def drive(site: Site) -> None:
    """Do to the jobs what users, administrators and nodes do: end, requeue, cancel. One runs on until `let_end`."""
    first = f"{site.jobs['array-cancelled']}_0"
    wait_until(lambda: all(runs(site, name) for name in DRIVEN), "the jobs to be driven run")
    wait_until(lambda: site.states().get(first) == "RUNNING", "the array's first task runs")
    time.sleep(float(SEEN_S))
    site.run("scontrol", "update", f"jobid={site.jobs['timeout-by-end-time']}", "EndTime=now+1")
    site.run("scancel", *(str(site.jobs[name]) for name in CANCELLED))
    site.run("scontrol", "requeue", str(site.jobs["requeue"]))
    site.run("scontrol", "requeuehold", str(site.jobs["requeuehold"]))
    node = site.sandbox.manifest.nodes[-1]
    site.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    wait_until(lambda: all(pends(site, name) for name in REQUEUED), "the requeued jobs wait again")
    wait_until(lambda: is_resumed(site, node), "the node is there again")
    # A slurmd told to end a job ends any run of it, and refuses one that starts in the same second.
    wait_until(lambda: not any(site.at_work(name) for name in REQUEUED), "the first runs are over")
    time.sleep(APART_S)
    for name in REQUEUED:
        job = str(site.jobs[name])
        site.run("scontrol", "update", f"jobid={job}", "StartTime=now")
        site.run("scontrol", "release", job)


def end_file(site: Site) -> Path:
    """Return the file for which the job that keeps running waits."""
    return site.folder / "end"


def let_end(site: Site) -> None:
    """Let the job end that has kept running."""
    end_file(site).touch()


def is_resumed(site: Site, node: str) -> bool:
    """Whether a node is idle; a node that is not is told to resume.

    A node that is up returns by itself at some moment, and may then be drained if something of a job that slurmctld has
    given up still runs on it. 24.11 and 26.05 call it mixed, although nothing runs on it, until a job starts or ends
    anywhere.
    """
    if site.run("sinfo", "-hn", node, "-o", "%T").strip() in ("idle", "mixed"):
        return True
    site.answer("scontrol", "update", f"nodename={node}", "state=resume")
    return False


DRIVEN = (*REQUEUED, "cancelled", "timeout-by-end-time")
RUNS_ON = "runs-on"
# If memory is not limited no job is killed for it.
EARLY = ("sub-second", "cancelled", "oom-quick")


def runs(site: Site, name: str) -> bool:
    """Whether a worker of the job is at work, and holds what Slurm should see."""
    return any(fact.holds for fact in site.facts(name))


def pends(site: Site, name: str) -> bool:
    """Whether a job is pending."""
    return site.states().get(str(site.jobs[name])) == "PENDING"


def wait_ended(site: Site) -> None:
    """Wait until all jobs and steps have ended, for slurmdbd too; AssertionError names the jobs that have not."""
    deadline = time.monotonic() + PATIENCE_S
    while left := unended(site):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s ended: {left}\n{why(site)}"
        time.sleep(0.2)
    deadline = time.monotonic() + STEPS_PATIENCE_S
    while site.database("SELECT id_step FROM {steps} WHERE time_end = 0") and time.monotonic() < deadline:
        time.sleep(0.2)


def has_ended(site: Site, name: str) -> bool:
    """Whether slurmdbd knows the end of a job."""
    rows = site.database("SELECT id_job, time_end, `partition`, state FROM {jobs}")
    return any(row["id_job"] == site.jobs[name] and is_ended(row) for row in rows)


def is_ended(row: Mapping[str, Any]) -> bool:
    """Whether a row of slurmdbd is that of an end, with everything that 22.05 adds only later for a short job."""
    return bool(row["time_end"] and row["partition"] and is_end(row["state"]))


def why(site: Site) -> str:
    """Return what slurmctld says of pending and running jobs, and of the nodes."""
    return site.run("squeue", "--format=%i %j %T %r %S %Q") + site.run("sinfo", "-N", "--long")


def unended(site: Site) -> list[object]:
    """Return the jobs that slurmctld still handles, or else those whose end slurmdbd does not know."""
    if states := site.states():
        return [states]
    if queue := re.findall(r"DBD Agent queue size:\s*([1-9]\d*)", site.run("sdiag")):
        return [f"{queue[0]} messages to slurmdbd"]
    rows = site.database("SELECT id_job, time_end, `partition`, state FROM {jobs}")
    return [row for row in rows if not is_ended(row)]


def is_end(state: int) -> bool:
    """Whether slurmdbd's number of a state means an end; 1024 is an attempt that was requeued."""
    return state & 0xFF > RUNNING_OR_SUSPENDED or bool(state & 1024)
