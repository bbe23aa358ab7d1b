"""The commands that release a brake, quoted for a shell."""

from __future__ import annotations

import shlex

import pytest

from slurm_plugin.brakes.words import release_of, words_of
from slurm_plugin.policy.braked import ALL, family_brake, partition_brake

ENABLE = ["rightsizer", "enable"]


@pytest.mark.parametrize(
    "name", ["fit", "it's", "a'; touch pwned; echo '", "$(reboot)", "`x` | y & z", "two words", ""]
)
def test_any_job_name_is_one_word_of_the_command(name: str) -> None:
    brake = family_brake("ann", name)
    assert shlex.split(release_of(brake)) == [*ENABLE, "--family", f"ann:{brake.name}"]


def test_the_commands_for_other_brakes() -> None:
    assert shlex.split(release_of(ALL)) == [*ENABLE, "--all"]
    assert shlex.split(release_of(partition_brake("o'dd"))) == [*ENABLE, "--partition", "o'dd"]


def test_the_words_for_what_a_brake_stops() -> None:
    brakes = (ALL, partition_brake("gpu"), family_brake("ann", "fit-7"), family_brake("ann", ""))
    assert [words_of(brake) for brake in brakes] == [
        "everything",
        "partition gpu",
        "jobs of ann named fit-#",
        "jobs of ann named allocation",
    ]
