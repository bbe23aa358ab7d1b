"""The queue by Slurm's own commands: the reference backend, for every release from 22.05.

It takes three calls to know the jobs: squeue says whose they are, without any text of a user's (job_lines.py says
why), scontrol what they are, sprio their factors. squeue alone would not do: it merges the pending records of an
array, and rounds memory. Nodes, partitions, reservations and settings are a call each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from accounting.errors import SlurmError
from accounting.unnamed import user_name
from slurm_plugin.log_lines import SaidOnce
from slurm_plugin.slurm import (
    account_lines,
    cluster_lines,
    depending,
    job_lines,
    relisting,
    requeuing,
    resizing,
)
from slurm_plugin.slurm.account_lines import ASSOCIATIONS_FORMAT, QOS_FORMAT
from slurm_plugin.slurm.accounted_runs import Question, lines_by_job, question_of
from slurm_plugin.slurm.cluster_lines import SPRIO_FORMAT, Factors
from slurm_plugin.slurm.command import UNIX_TIMES, run
from slurm_plugin.slurm.last_told import LastTold
from slurm_plugin.slurm.limits import config_words, parse_config_terms, select_parameters
from slurm_plugin.slurm.partition_access import accounts_are_inherited, chosen_among, user_groups
from slurm_plugin.slurm.queue import Dependent, FactorChange, Failed, Relist, Requeue, Resize, Written
from slurm_plugin.slurm.scontrol_lines import run_update, run_updates, show_jobs
from slurm_plugin.slurm.snapshot import (
    BY_QOS,
    MULTIFACTOR,
    AssociationState,
    PartitionState,
    QosState,
    QueuedJob,
    SchedulerTerms,
    Snapshot,
)
from slurm_plugin.slurm.targets import target_of

log = logging.getLogger(__name__)

# A queue of 100,000 takes scontrol several seconds; if slurmctld is down, its commands take their own ten.
READ_PATIENCE_S = 60.0
WRITE_PATIENCE_S = 30.0
# Plans can do without what slurmdbd knows.
SLURMDBD_PATIENCE_S = 20.0
# A user whose data may as well be returned.
NOBODY = "root"
# Prints the whole list of an array's tasks instead of its first 64 characters.
VARIABLES = {**UNIX_TIMES, "SLURM_BITSTR_LEN": "0"}
# No text of a user's. No letter of `--format` prints how often a job was queued again.
_FAILED = "JobID:|,State:|,StartTime:|,RestartCnt:|,PriorityLong:|,Reason:|,UserID:|"
# Job, user, state, reason, array, its tasks, dependency.
_GIVEN_UP = "%A|%U|%T|%r|%F|%K|%E"
# The number of unclear jobs that are asked for one by one in a read, and of those of one user: each is a call.
_MOST_DOUBTFUL, _MOST_OF_ONE = 100, 20
# What tasks of an array answer that have started or ended since they were read.
_PAST = ("no longer pending", "already", "Invalid job id")
# What scontrol says of a name that it does not understand; for tasks that are gone, its message names them first.
_NO_NAME = "Invalid job id specified for job "


class ScontrolQueue:
    """squeue, scontrol and sprio."""

    name = "scontrol"

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self._targets: dict[int, str] = {}
        self._qos = LastTold[Mapping[str, QosState]]("what QOS allow and preempt", {})
        self._associations = LastTold[tuple[AssociationState, ...]]("what accounts allow", ())
        self._no_budgets = SaidOnce()

    def cluster(self) -> str:
        """Return the cluster's name; raises SlurmError if slurmctld does not answer."""
        return cluster_lines.parse_cluster_name(_ask("scontrol", "show", "config"))

    def terms(self) -> SchedulerTerms:
        """Return the scheduling settings of slurm.conf; raises SlurmError if slurmctld does not answer."""
        return cluster_lines.parse_terms(_ask("scontrol", "show", "config"))

    def read(self) -> Snapshot:
        """Return the cluster as it is now; raises SlurmError if a command fails."""
        config = _ask("scontrol", "show", "config")
        terms = cluster_lines.parse_terms(config)
        factors = self._factors(terms)
        jobs = self._jobs()
        counts = terms.weights.get("FairShare", 0) > 0
        partitions = cluster_lines.parse_partition_states(
            _partitions(),
            select_parameters(config),
            parse_config_terms(config),
        )
        associations, parents = self._accounts(config, terms, jobs, partitions)
        all_qos = self._all_qos(terms)
        return Snapshot(
            time_s=time.time(),
            jobs=tuple(with_factors(job, factors.get(job.job_id), fair_share_counts=counts) for job in jobs),
            nodes=cluster_lines.parse_node_states(_ask("scontrol", "--all", "--oneliner", "show", "node")),
            partitions=partitions,
            reservations=cluster_lines.parse_reservations(
                _ask("scontrol", "--all", "--oneliner", "show", "reservation")
            ),
            terms=terms,
            qos=all_qos,
            account_parents=parents,
            user_groups=user_groups(jobs, partitions),
            associations=associations,
            licences=cluster_lines.parse_licences(_ask("scontrol", "--oneliner", "show", "licenses")),
            left=self._left(_budgets_asked(associations, all_qos if terms.limits_hold else {})),
        )

    def site_factors(self) -> dict[int, int]:
        """Return the SiteFactor of each waiting job that sprio shows: eligible, not held, priority not set directly.

        sprio shows none under another PriorityType; slurmctld keeps them until that is set back.
        """
        shown = self._factors(self.terms())
        return {job: factors.site for job, factors in shown.items() if not factors.fixed}

    def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
        """Set them in this order; raises SlurmError if slurmctld does not answer."""
        if any(change.job_id not in self._targets for change in changes):
            self._jobs()
        known = [change for change in changes if change.job_id in self._targets]
        complaints = run_updates(
            [f"update JobId={self._targets[change.job_id]} SiteFactor={change.after}" for change in known],
            patience_s=WRITE_PATIENCE_S + 0.05 * len(known),
        )
        problems = {
            change.job_id: problem_of(complaint, is_array="_" in self._targets[change.job_id])
            for change, complaint in zip(known, complaints, strict=True)
        }
        return [Written(job_id=one.job_id, problem=problems.get(one.job_id, "gone")) for one in changes]

    def resize(self, change: Resize) -> Written:
        """Change what a pending job asks for; all of it or nothing."""
        return resizing.resize(change, self._record, _update)

    def relist(self, change: Relist) -> Written:
        """Change which partitions a pending job lists, in its user's name: they must accept that user."""
        return relisting.relist(change, self._record, _update, _closed_partitions)

    def failed_jobs(self, *, again: bool) -> dict[int, str]:
        """Return a line for each job that failed, by job; the line changes if the job fails again.

        With `again`, include jobs that were queued again and have not started since.
        """
        states = ",".join((*requeuing.FAILED, *(("PENDING",) if again else ())))
        said = _ask("squeue", "--noheader", "--all", "--array", f"--states={states}", f"--Format={_FAILED}")
        return job_lines.parse_failed_jobs(said)

    def given_up(self) -> list[Dependent]:
        """Return the jobs that waited for one that failed, and that Slurm will no longer start, or has cancelled."""
        states = f"--states=PENDING,{depending.CANCELLED}"
        said = _ask("squeue", "--noheader", "--all", states, f"--format={_GIVEN_UP}")
        return job_lines.parse_given_up(said)

    def depend(self, change: Dependent) -> Written:
        """Set a job's dependency in its user's name, as the user did; a job that Slurm has cancelled waits again."""
        return Written(
            job_id=change.job_id, problem=depending.depend(change, run_shown, _update, _site_kills)
        )

    def failed(self, job_id: int) -> Failed | None:
        """Return a job with what slurmctld knows of its last run; None if it is gone, or not plain."""
        return _with_accounting({job_id: _last_run(job_id)})[job_id]

    def failed_of(self, job_ids: Sequence[int]) -> dict[int, Failed | None]:
        """Return these jobs by one call, plus one of sacct for all about which it is asked the same.

        Whether a job's token can be believed is not checked here: `carries` does that, with a call for each job.
        """
        options = ("--all", "--details")
        shown = show_jobs(job_ids, *options, patience_s=READ_PATIENCE_S, variables=VARIABLES)
        return _with_accounting(
            {
                job_id: requeuing.parse_failed(text, job_id)
                for job_id, text in zip(job_ids, shown, strict=True)
            }
        )

    def carries(self, job: QueuedJob) -> bool:
        """Whether a job has the token that its record shows, rather than one forged by a user; False if it is gone."""
        return carries(job)

    def requeue(self, wanted: Requeue, kept_open: Sequence[int] = (), *, only_hold: bool = False) -> Written:
        """Queue a job that failed again, with other resources, or do what is left of that.

        With `only_hold`, it is only queued again and held, if that is left to do. Any process that changes it inherits
        the handles of `kept_open`: a lock among them then outlasts this process.
        """
        update = partial(_update, kept_open=kept_open)
        return requeuing.requeue(wanted, _last_run, update, only_hold=only_hold)

    def _all_qos(self, terms: SchedulerTerms) -> Mapping[str, QosState]:
        """Return the QOS, if Slurm preempts or limits by them."""
        if terms.preempt_type != BY_QOS and not terms.limits_hold:
            return {}
        return self._qos.now(lambda: account_lines.parse_qos_states(_managed("qos", QOS_FORMAT)))

    def _left(self, asked: Sequence[tuple[str, ...]]) -> dict[str, dict[str, int]]:
        """Return what is left of budgets; nothing if slurmctld does not say, as may happen with PrivateData."""
        try:
            told = [_ask("scontrol", "--oneliner", "show", "assoc_mgr", *words) for words in asked]
        except SlurmError as error:
            if self._no_budgets.is_new(str(error)):
                log.warning("what is left of budgets of time is not known: %s", error)
            return {}
        self._no_budgets.over()
        return account_lines.parse_budgets("\n".join(told))

    def _accounts(
        self,
        config: str,
        terms: SchedulerTerms,
        jobs: Sequence[QueuedJob],
        partitions: Sequence[PartitionState],
    ) -> tuple[tuple[AssociationState, ...], Mapping[str, str]]:
        """Return the associations if limits apply, and the account above each if a partition depends on that."""
        by_account = {one.name for one in partitions if one.accounts or one.denied_accounts}
        decides = any(chosen_among(job, by_account) for job in jobs) and accounts_are_inherited(config)
        if not (decides or terms.limits_hold):
            return (), {}
        cluster = cluster_lines.parse_cluster_name(config)
        # There may be many users.
        where = ("where", f"cluster={cluster}", *(() if terms.limits_hold else ("user=",)))
        told = self._associations.now(
            lambda: account_lines.parse_association_states(
                _managed("association", ASSOCIATIONS_FORMAT, *where)
            )
        )
        return told if terms.limits_hold else (), account_lines.parents_of(told) if decides else {}

    def _factors(self, terms: SchedulerTerms) -> dict[int, Factors]:
        if terms.priority_type != MULTIFACTOR:
            return {}
        return cluster_lines.parse_factors(_ask("sprio", "--noheader", f"--format={SPRIO_FORMAT}"))

    def _jobs(self) -> list[QueuedJob]:
        owners = _owners()
        listing = job_lines.parse_jobs(_ask("scontrol", "--all", "show", "job"), owners)
        asked = job_lines.shared_out(listing.doubtful, owners, _MOST_DOUBTFUL, _MOST_OF_ONE)
        apart = [self._apart(job, owners[job]) for job in asked]
        unsure = [job for job in listing.unsure if job.job_id not in asked]
        jobs = [*listing.jobs, *(job for job in apart if job is not None), *unsure]
        self._targets = {job.job_id: target_of(job) for job in jobs}
        return jobs

    def _apart(self, job_id: int, uid: int) -> QueuedJob | None:
        """Return a job for which the common answer had no clear record; None if it has ended meanwhile."""
        said = run_shown(job_id)
        alone = job_lines.parse_job(said)
        if alone and (alone.job_id, alone.uid) == (job_id, uid):
            return alone if alone.state in job_lines.ALIVE else None
        listing = job_lines.parse_jobs(said, {job_id: uid})
        plain = next(iter(listing.jobs), None)
        odd = None if plain else job_lines.salvage(said, job_id, uid)
        return plain if odd is None else msgspec.structs.replace(odd, user=user_name(uid))

    def _record(self, job_id: int) -> QueuedJob | None:
        """Return a job's record as it is now; None if it is gone, or not plain."""
        found = [job for job in job_lines.parse_plain(run_shown(job_id)) if job.job_id == job_id]
        return found[0] if len(found) == 1 and carries(found[0]) else None


def _budgets_asked(
    associations: Sequence[AssociationState], all_qos: Mapping[str, QosState]
) -> list[tuple[str, ...]]:
    """Return what to ask assoc_mgr for, so that it shows all budgets."""
    with_budget = [one for one in associations if one.has_budget]
    accounts = ",".join(sorted({one.account for one in with_budget}))
    # Without names it would show all users of an account.
    users = ",".join(sorted({one.user for one in with_budget if one.user})) or NOBODY
    qos = ",".join(sorted(name for name, one in all_qos.items() if one.has_budget))
    asked: list[tuple[str, ...]] = (
        [(f"accounts={accounts}", f"users={users}", "flags=assoc")] if accounts else []
    )
    return [*asked, (f"qos={qos}", "flags=qos")] if qos else asked


def with_factors(job: QueuedJob, factors: Factors | None, *, fair_share_counts: bool) -> QueuedJob:
    """Return the job with what sprio says of it."""
    if factors is None or not job.waits:
        return job
    fair_share = factors.fair_share if fair_share_counts and not factors.fixed else None
    return msgspec.structs.replace(
        job, site_factor=factors.site, fair_share=fair_share, fixed=job.fixed or factors.fixed
    )


def problem_of(complaint: str, *, is_array: bool) -> str:
    """Return what is wrong with an update; complaints of single array tasks that have started are no problem."""
    said = [one for one in complaint.split("; ") if one]
    if not is_array:
        return "gone" if said and "Invalid job id" in said[0] else "; ".join(said)
    return "; ".join(
        one for one in said if one.startswith(_NO_NAME) or not any(past in one for past in _PAST)
    )


def run_shown(job_id: int, *options: str) -> str:
    """Return what scontrol shows of one job; '' if it is gone."""
    try:
        return _ask("scontrol", "--all", *options, "show", "job", str(job_id))
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return ""
        raise


def carries(job: QueuedJob) -> bool:
    """Whether a job, or one of its array, has the admin comment that its record shows; False if it is gone.

    scontrol prints texts of users before it, so squeue is asked for it alone.
    """
    width = len(job.admin_comment.encode()) + 1
    told = ("--noheader", "--all", "--states=all", f"--jobs={job.job_id}", f"--Format=admin_comment:{width}")
    try:
        said = _ask("squeue", *told)
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return False
        raise
    return bool(said) and job.admin_comment in said


def _managed(what: str, fields: str, *where: str) -> str:
    words = ("sacctmgr", "--noheader", "--parsable2", "show", what, f"format={fields}", *where)
    return _ask(*words, patience_s=SLURMDBD_PATIENCE_S)


def _owners() -> dict[int, int]:
    return job_lines.parse_owners(_ask("squeue", "--noheader", "--all", "--array", "--format=%A|%U"))


def _partitions() -> str:
    return _ask("scontrol", "--all", "--oneliner", "show", "partition")


def _closed_partitions() -> frozenset[str]:
    return cluster_lines.parse_closed_partitions(_partitions())


def _update(words: Sequence[str], kept_open: Sequence[int] = ()) -> str:
    return run_update(*words, patience_s=WRITE_PATIENCE_S, kept_open=kept_open)


def _last_run(job_id: int) -> Failed | None:
    """Return a job with what slurmctld alone knows of its last run; None if it is gone, or not plain."""
    found = requeuing.parse_failed(run_shown(job_id, "--details"), job_id)
    return found if found and carries(found.job) else None


def _with_accounting(found: dict[int, Failed | None]) -> dict[int, Failed | None]:
    """Return runs with what only accounting knows of some; runs with the same question share one call.

    An accounting that is silent is asked no other question. It may take most of a minute to fail, and meanwhile
    slurmctld may forget jobs about which nothing is asked.
    """
    asked: dict[Question, list[Failed]] = {}
    for one in found.values():
        if one and (question := question_of(one)):
            asked.setdefault(question, []).append(one)
    answered = dict(found)
    for question, runs in asked.items():
        told = _accounted(runs, *question.options)
        if told is None:
            break
        said = lines_by_job(told)
        answered |= {one.job.job_id: question.answered(one, said.get(one.job.job_id, [])) for one in runs}
    return answered


def _accounted(runs: Sequence[Failed], *how: str) -> str | None:
    """Return what sacct says of runs; None if it does not answer, and the runs then stay as slurmctld shows them."""
    # The end of a step can reach slurmdbd after that of its job. A requeued job's submit time is the end of that run.
    ended_s = max(run.job.submit_s if run.job.waits else run.job.end_s for run in runs)
    time.sleep(requeuing.until_settled_s(ended_s, time.time()))
    jobs = [str(run.job.job_id) for run in runs]
    try:
        return _ask("sacct", "-nP", "-j", ",".join(jobs), *how)
    except SlurmError as error:
        log.warning("how the steps of job %s ended is not known: %s", ", ".join(jobs), error)
        return None


def _site_kills() -> bool:
    return depending.site_kills(config_words(_ask("scontrol", "show", "config")))


def _ask(*command: str, patience_s: float = READ_PATIENCE_S) -> str:
    return run(*command, patience_s=patience_s, variables=VARIABLES)
