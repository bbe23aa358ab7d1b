"""Reads Slurm's limits, each part by itself: for the service, `rightsizer predict` and the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from accounting.errors import SlurmError
from slurm_plugin.policy.facts import SLURM_PARTS, SiteFacts
from slurm_plugin.slurm.account_maximums import parse_account_maximums
from slurm_plugin.slurm.command import PATIENCE_S, run
from slurm_plugin.slurm.given_qos import COMMAND as GIVEN_QOS
from slurm_plugin.slurm.given_qos import parse_given_qos
from slurm_plugin.slurm.limits import (
    QOS_FORMAT,
    chooses_partitions,
    config_words,
    gives_whole_nodes,
    has_no_qos,
    parse_config_terms,
    parse_node_terms,
    parse_partitions,
    parse_qos,
    parse_qos_maximums,
    select_parameters,
    takes_turns,
)

# The command for each part of SLURM_PARTS. Without --all, hidden partitions are shown only to root.
COMMANDS = {
    "memory": ("scontrol", "show", "config"),
    "partitions": ("scontrol", "--all", "--oneliner", "show", "partition"),
    "qos_minimums": ("sacctmgr", "--noheader", "--parsable2", "show", "qos", QOS_FORMAT),
    "cpus_per_core": ("scontrol", "--all", "--oneliner", "show", "node"),
}
# There may be many thousands; sacctmgr takes about a second for 6,000.
ASSOCIATIONS_PATIENCE_S = 30.0


class Gathered(msgspec.Struct, frozen=True):
    """The facts, and the complaints of the commands that did not answer."""

    facts: SiteFacts
    complaints: tuple[str, ...]


def gather(known: SiteFacts) -> Gathered:
    """Return the facts as they are now; parts that cannot be read, and all but SLURM_PARTS, come from `known`.

    This takes as long as the slowest command, since they run side by side. Only the list of who is given which QOS,
    which may be long, is asked for separately, with their limits, and only if some QOS has a minimum or refuses jobs.
    """
    with ThreadPoolExecutor(len(COMMANDS)) as threads:
        said = dict(zip(COMMANDS, threads.map(_said, COMMANDS.values()), strict=True))
    answers = {part: answer for part, answer in said.items() if isinstance(answer, str)}
    facts, read = _read(answers, known)
    telling = facts.qos_minimums.keys() | {name for name, one in facts.qos_maximums.items() if one.refuses}
    if not telling and "qos_minimums" in read:
        read |= {"given_qos"}
    elif telling and "memory" in answers:
        said["given_qos"] = answer = _said(GIVEN_QOS, ASSOCIATIONS_PATIENCE_S)
        if isinstance(answer, str):
            cluster = config_words(answers["memory"]).get("ClusterName", "")
            given = parse_given_qos(answer, cluster, telling)
            most = parse_account_maximums(answer, cluster)
            facts = msgspec.structs.replace(facts, given_qos=given, account_maximums=most)
            read |= {"given_qos"}
    complaints = [
        str(answer) for part, answer in said.items() if isinstance(answer, SlurmError) and part not in read
    ]
    return Gathered(
        msgspec.structs.replace(facts, missing=known.missing - read), tuple(dict.fromkeys(complaints))
    )


def _said(command: tuple[str, ...], patience_s: float = PATIENCE_S) -> str | SlurmError:
    try:
        return run(*command, patience_s=patience_s)
    except SlurmError as error:
        return error


def _read(answers: Mapping[str, str], known: SiteFacts) -> tuple[SiteFacts, frozenset[str]]:
    """Return the facts with what was answered, and which parts that was."""
    replace, config = msgspec.structs.replace, answers.get("memory")
    facts, read = known, set(answers)
    if config is not None:
        facts = replace(
            facts,
            memory=parse_config_terms(config),
            select_parameters=select_parameters(config),
            whole_nodes=gives_whole_nodes(config),
            takes_turns=takes_turns(config),
            chosen_later=chooses_partitions(config),
        )
        if has_no_qos(config):
            facts = replace(facts, qos_minimums={}, qos_maximums={})
            read.add("qos_minimums")
    if "partitions" in answers:
        if facts.memory is None:  # what a partition does not set is the cluster's, which is not known yet
            read.remove("partitions")
        else:
            facts = replace(
                facts,
                partitions=parse_partitions(answers["partitions"], facts.memory, facts.select_parameters),
            )
    if "qos_minimums" in answers:
        facts = replace(
            facts,
            qos_minimums=parse_qos(answers["qos_minimums"]),
            qos_maximums=parse_qos_maximums(answers["qos_minimums"]),
        )
    if "cpus_per_core" in answers:
        nodes = parse_node_terms(answers["cpus_per_core"])
        facts = replace(
            facts,
            cpus_per_core=nodes.cpus_per_core,
            restricted_cores=nodes.restricted,
            most_gpus=nodes.most_gpus,
            most_sockets=nodes.most_sockets,
            capacity=nodes.capacity,
        )
    return facts, SLURM_PARTS & read
