"""Which account and QOS a job gets that names none. slurmctld shows the hook; anything else must ask slurmdbd."""

from __future__ import annotations

import msgspec

from slurm_plugin.policy.submission import Submission
from slurm_plugin.slurm.cluster_lines import parse_cluster_name
from slurm_plugin.slurm.command import run

_FORMAT = "format=DefaultAccount,Account,Partition,DefaultQOS"


class Association(msgspec.Struct, frozen=True):
    """A user's right to use an account; `partition` is '' if it applies to all."""

    default_account: str
    account: str
    partition: str
    default_qos: str


def read_associations(user: str) -> list[Association]:
    """Return a user's associations on this cluster; raises SlurmError if sacctmgr or scontrol does not answer."""
    name = parse_cluster_name(run("scontrol", "show", "config"))
    cluster = [f"cluster={name}"] if name else []
    words = ("sacctmgr", "--noheader", "--parsable2", "show", "user", "withassoc", _FORMAT, "where")
    return parse_associations(run(*words, f"name={user}", *cluster))


def parse_associations(text: str) -> list[Association]:
    """Read `default account|account|partition|default QOS` lines; others are ignored."""
    rows = (line.split("|") for line in text.splitlines())
    return [Association(*row) for row in rows if len(row) == len(Association.__struct_fields__)]


def with_defaults(submission: Submission, associations: list[Association]) -> Submission:
    """Return the submission with the account and QOS that slurmctld would give it if it names none."""
    account = submission.account or next((one.default_account for one in associations), "")
    own = [one for one in associations if one.account == account.lower()]
    fitting = [one for one in own if one.partition == submission.partition]
    fitting += [one for one in own if not one.partition]
    qos = submission.qos or next((one.default_qos for one in fitting), "")
    return msgspec.structs.replace(submission, account=account, qos=qos)
