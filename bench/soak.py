"""A soak: submissions to a real slurmctld as fast as it takes them, for minutes, with a fault every five seconds.

    python -m bench.soak [--minutes 30] [--submitters 4] [--every 5] [--seed 1] [--deadline-ms 25] [--empty-hook]

`ingest --watch`, `recover --watch` and `advise --watch` run next to the service. The one node is full, and pending
jobs are cancelled every two seconds; submitters pause while that or slurmdbd cannot keep up, because pending jobs,
and what slurmctld has not yet sent to slurmdbd, stay in memory. In the end slurmdbd must know every accepted job,
with the resources that were requested or that the service grants, and no process may hold more in the last third
than in the middle one: the first ten minutes are for warming up. Slurm's daemons have one glibc arena: with 16,
slurmctld grows to 240 MiB, of which it uses 25, and that would hide what it does not give back. Faults that end the
service come only in the first fifth. Exits with 1 if a job is lost, a process grows, or a submission gets no
answer, except around a reconfigure, where an empty hook gets none either (--empty-hook: 6 of 147,627).
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import re
import statistics
import sys
import tempfile
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from accounting.errors import SlurmError
from bench.arguments import parser_of
from bench.replay import Load, Munge, accepted_job, exchange, refusal, signed
from bench.soak_site import ASKED, RECONFIGURE, Faults, SoakSite, blame, since_s
from bench.trend import Sample, longest_lived, look, trends
from slurm_plugin.cli.orderly_end import orderly_end
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.sandbox import cluster, daemons

DIFFERENT = 200
CANCEL_EVERY_S = 2.0
SAMPLE_EVERY_S = 2.0
TOLD_EVERY_S = 60.0
RESTARTING_SHARE = 0.2
HEAD_START_S = 2.0
MOST_UNSENT, MOST_WAITING = 2000, 1000
BRAKE_S = 0.05
DRAIN_PATIENCE_S = 300.0
TRES = re.compile(r"(cpu=\d+),(mem=\w+)")


class Unanswered(NamedTuple):
    """A submission without an answer: when (unix) it was sent and given up, and what came instead."""

    sent_s: float
    ended_s: float
    why: str


@dataclass(frozen=True)
class Submissions:
    """The submitters' results: how many they sent, which jobs were accepted and how fast, and what else came back."""

    sent: int
    jobs: tuple[int, ...]
    latencies_s: tuple[float, ...]
    refused: Mapping[str, int]
    unanswered: tuple[Unanswered, ...]


def submit(load: Load, brake: Path) -> Submissions:
    """Submit without a pause until the time is over, whatever happens; not while the brake's file exists."""
    munge = Munge(load.munge_socket)
    jobs, latencies_s = array("L"), array("d")
    unanswered: list[Unanswered] = []
    sent = 0
    refused: Counter[str] = Counter()
    time.sleep(max(0.0, load.start_s - time.time()))
    while load.until_s is None or time.time() < load.until_s:
        if brake.exists():
            time.sleep(BRAKE_S)
            continue
        packet = signed(load.messages[sent % len(load.messages)], munge)
        sent += 1
        at_s, sent_s = time.time(), time.perf_counter()
        try:
            answer = exchange(packet, load.port)
            why = "the end of the connection"
        except OSError as error:
            answer, why = b"", repr(error)
        job = accepted_job(answer)
        if job is not None:
            jobs.append(job)
            latencies_s.append(time.perf_counter() - sent_s)
        elif answer:
            refused[f"error {refusal(answer)}"] += 1
        else:
            unanswered.append(Unanswered(at_s, time.time(), why))
    return Submissions(sent, tuple(jobs), tuple(latencies_s), dict(refused), tuple(unanswered))


def together(several: Sequence[Submissions]) -> Submissions:
    """Combine submitters' results."""
    return Submissions(
        sent=sum(one.sent for one in several),
        jobs=tuple(job for one in several for job in one.jobs),
        latencies_s=tuple(latency_s for one in several for latency_s in one.latencies_s),
        refused=sum((Counter(one.refused) for one in several), Counter()),
        unanswered=tuple(each for one in several for each in one.unanswered),
    )


class Watch:
    """Samples processes from time to time, by name."""

    def __init__(self, site: SoakSite, programs: dict[str, int]) -> None:
        self._site, self._programs = site, programs
        self.samples: dict[str, list[Sample]] = {}

    def run(self, stop: threading.Event) -> None:
        """Run until stopped."""
        told_s = began_s = time.monotonic()
        while not stop.wait(SAMPLE_EVERY_S):
            now_s = time.monotonic()
            pids = {name: self._site.pid(name) for name in (daemons.SERVE, daemons.SLURMCTLD)}
            for name, pid in (pids | self._programs).items():
                sample = None if pid is None else look(pid, now_s)
                if sample is not None:
                    self.samples.setdefault(name, []).append(sample)
            if now_s - told_s >= TOLD_EVERY_S:
                told_s = now_s
                held = {name: f"{several[-1].rss_kib // 1024} MiB" for name, several in self.samples.items()}
                note(f"{now_s - began_s:.0f} s: {held}")


def cancel_until(site: SoakSite, stop: threading.Event) -> None:
    """Empty the queue again and again until stopped."""
    while not stop.wait(CANCEL_EVERY_S):
        site.cancel_waiting()


def brake_until(site: SoakSite, brake: Path, stop: threading.Event) -> None:
    """Hold submitters back while slurmdbd or the cancelling cannot keep up, until stopped."""
    while not stop.wait(1.0):
        # A slurmctld that rereads its configuration may not answer: then the brake stays as it is.
        with contextlib.suppress(SlurmError):
            unsent, waiting = site.unsent(), site.waiting()
            if unsent > MOST_UNSENT or waiting > MOST_WAITING:
                brake.touch()
            elif unsent < MOST_UNSENT // 2:
                brake.unlink(missing_ok=True)
    brake.unlink(missing_ok=True)


@contextlib.contextmanager
def running(threads: Sequence[threading.Thread], stop: threading.Event) -> Iterator[None]:
    """Run threads within the block; they are told to stop at its end, and joined."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def soak(site: SoakSite, arguments: argparse.Namespace) -> tuple[Submissions, Faults, Watch]:
    """Submit and inject faults for as long as requested."""
    site.fill_node()
    messages = site.capture(DIFFERENT)
    site.cancel_waiting()
    site.start_service()
    lasts_s = arguments.minutes * 60
    faults = Faults(site, arguments.every, RESTARTING_SHARE * lasts_s, arguments.seed)
    stop, brake = threading.Event(), site.layout.run / "brake"
    with site.programs() as programs:
        watch = Watch(site, {name: process.pid for name, process in programs.items()})
        threads = [
            threading.Thread(target=faults.run, args=(stop,)),
            threading.Thread(target=watch.run, args=(stop,)),
            threading.Thread(target=cancel_until, args=(site, stop)),
            threading.Thread(target=brake_until, args=(site, brake, stop)),
        ]
        start_s = time.time() + HEAD_START_S
        load = Load(site.port, site.munge_socket, messages, 0, 0.0, start_s, start_s + lasts_s)
        context = multiprocessing.get_context("spawn")
        with (
            ProcessPoolExecutor(arguments.submitters, mp_context=context) as pool,
            running(threads, stop),
        ):
            futures = [pool.submit(submit, load, brake) for _ in range(arguments.submitters)]
            seen = together([future.result() for future in futures])
        ended = [name for name, process in programs.items() if process.poll() is not None]
    if ended:
        faults.failed.append(f"ended by themselves: {', '.join(ended)}")
    return seen, faults, watch


def accounted(site: SoakSite, since_s: float, accepted: Sequence[int]) -> dict[int, list[str]]:
    """Return slurmdbd's CPUs and memory of all jobs by number, once it has all accepted jobs.

    slurmctld reports what it cancels some seconds later; a job not known after DRAIN_PATIENCE_S is lost. A
    slurmctld that rereads its configuration may reuse the numbers of jobs that are gone.
    """
    deadline_s = time.monotonic() + DRAIN_PATIENCE_S
    while True:
        site.cancel_waiting()
        if site.waiting() == 0 and site.unsent() == 0:
            known = jobs_known(site, since_s)
            if not lost(accepted, known) or time.monotonic() > deadline_s:
                return known
        elif time.monotonic() > deadline_s:
            return jobs_known(site, since_s)
        time.sleep(2.0)


def jobs_known(site: SoakSite, since_s: float) -> dict[int, list[str]]:
    """Return slurmdbd's CPUs and memory of all jobs by number."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since_s))
    argv = ("sacct", "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2")
    said = site.sandbox.command(*argv, f"--starttime={since}", "--format=JobIDRaw,ReqTRES", patience_s=300.0)
    jobs: dict[int, list[str]] = {}
    for line in said.splitlines():
        job, _, tres = line.partition("|")
        found = TRES.search(tres)
        jobs.setdefault(int(job), []).append(",".join(found.groups()) if found else "")
    return jobs


def lost(accepted: Sequence[int], known: Mapping[int, Sequence[str]]) -> int:
    """Return how many accepted jobs slurmdbd does not know; a number may have been used more than once."""
    return sum(max(0, count - len(known.get(job, ()))) for job, count in Counter(accepted).items())


def submission_rows(
    seen: Submissions, known: Mapping[int, Sequence[str]], cut: str, lasts_s: float, reconfigured: int
) -> list[dict[str, object]]:
    """Return the results of all submissions; the last figures are those that must be 0.

    `reconfigured` of the submissions without an answer met a reconfigure.
    """
    accepted = Counter(seen.jobs)
    tres = Counter(one for job in accepted for one in known.get(job, ()))
    cuts_ms = [latency_s * 1000 for latency_s in seen.latencies_s]
    quantiles = statistics.quantiles(cuts_ms, n=100, method="inclusive")
    figures: dict[str, object] = {
        "submissions sent": seen.sent,
        "accepted": len(seen.jobs),
        "accepted a second": round(len(seen.jobs) / lasts_s, 1),
        "correctly cut": tres[cut],
        "unchanged": tres[ASKED],
        "p50 (ms)": round(quantiles[49], 2),
        "p99 (ms)": round(quantiles[98], 2),
        "longest (ms)": round(max(cuts_ms), 1),
        "numbers that slurmctld gave twice": len(seen.jobs) - len(accepted),
        "no answer around a reconfigure": reconfigured,
        "refused": ", ".join(f"{count} by {what}" for what, count in seen.refused.items()),
        "no answer": len(seen.unanswered) - reconfigured,
        "lost": lost(seen.jobs, known),
        "neither unchanged nor correctly cut": tres.total() - tres[cut] - tres[ASKED],
    }
    return [{"what": what, "figure": figure} for what, figure in figures.items()]


def unanswered_row(site: SoakSite, faults: Faults, one: Unanswered) -> dict[str, object]:
    """Return everything known about a submission without an answer."""
    return {
        "why": one.why,
        "after (ms)": round((one.ended_s - one.sent_s) * 1000),
        "put down to": blame(faults.began_s, one.sent_s, one.ended_s),
        "its end after a reconfigure (s)": round(since_s(faults.began_s, RECONFIGURE, one.ended_s), 2),
        "errors of slurmctld": "; ".join(site.errors(one.sent_s - 1, one.ended_s + 1)),
    }


def process_rows(watch: Watch) -> list[dict[str, object]]:
    """Return the trend of what each process holds."""
    return [
        {
            "process": name,
            "seen for (s)": round(lived[-1].time_s - lived[0].time_s),
            "what": trend.what,
            "first third": round(trend.first, 1),
            "middle third": round(trend.middle, 1),
            "last third": round(trend.last, 1),
            "a minute": round(trend.per_minute, 2),
            "verdict": "flat" if trend.is_flat else "grows",
        }
        for name, lived in ((name, longest_lived(samples)) for name, samples in watch.samples.items())
        for trend in trends(lived)
    ]


def main() -> None:
    """Soak, and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--submitters", type=int, default=4)
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="between faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--deadline-ms", type=int, default=25, help="the hook's; more where a machine is busy"
    )
    parser.add_argument("--empty-hook", action="store_true", help="an empty hook in place of ours")
    arguments = parser.parse_args()
    with orderly_end(), tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        directory = Path(name) / "soak"
        try:
            note("starting a private Slurm")
            site = SoakSite(directory, arguments.deadline_ms, empty_hook=arguments.empty_hook)
            began_s = time.time()
            with site.journal_mounted():
                seen, faults, watch = soak(site, arguments)
                known = accounted(site, began_s - 1, seen.jobs)
                unanswered = [unanswered_row(site, faults, one) for one in seen.unanswered]
        finally:
            if (directory / "sandbox.json").exists():
                cluster.stop(directory)
    cuts = Counter(tres for jobs in known.values() for tres in jobs if tres != ASKED)
    cut = max(cuts, key=lambda tres: cuts[tres], default="")
    blamed = Counter(blame(faults.began_s, one.sent_s, one.ended_s) for one in seen.unanswered)
    submissions = submission_rows(seen, known, cut, arguments.minutes * 60, blamed[RECONFIGURE])
    processes = process_rows(watch)
    print_rows(submissions, arguments.format, f"Submissions; cut is {cut}")
    print_rows(processes, arguments.format, "What processes hold")
    print_rows(faults.rows(blamed), arguments.format, "Faults")
    if unanswered:
        print_rows(unanswered, arguments.format, "Without an answer")
    wrong = [f"{row['what']}: {row['figure']}" for row in submissions[-4:] if row["figure"]]
    wrong += [f"{row['process']}'s {row['what']} grows" for row in processes if row["verdict"] == "grows"]
    wrong += faults.failed
    note("all as it must be" if not wrong else f"wrong: {'; '.join(wrong)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
