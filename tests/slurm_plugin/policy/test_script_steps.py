"""The sruns in a script: which of them run side by side."""

import re
import time

import pytest

from slurm_plugin.policy.script_steps import held_at_once, read_steps, turns


@pytest.mark.parametrize(
    ("script", "background"),
    [
        ("srun ./a &\nsrun ./b\nwait", [True, False]),
        ("srun sh -c 'cd a; ./fit | tee log' &\nwait", [True]),
        ('srun bash -c "cd a && ./fit" > log 2>&1 &', [True]),
        ("srun bash -c '\ncd a\n./fit\n' &\nsrun ./b", [True, False]),
        ("srun sh -c 'cd a; ./fit'\necho 'x' &", [False]),
        ("bash -c 'srun ./a & srun ./b; wait'", [True, False]),
        ('echo "don\'t"; srun ./a & echo "won\'t"', [True]),
        ("(cd a; srun ./fit; gzip out) &\nsrun ./b", [True, False]),
        ("{ srun ./a; srun ./b; } &\nwait", [True, True]),
        ("(cd a && srun ./fit) & (cd b && srun ./fit)", [True, False]),
        ("(cd a; srun ./fit) && srun ./b", [False, False]),
        ("(srun ./a; date) &> log", [False]),
        ("srun ./a ${X} & srun ./a $(date)", [True, False]),
        ("(cd a; srun ./fit; date) > a/log 2>&1 &\nsrun ./b", [True, False]),
        ("{ srun ./a; date; } 2>&1 | tee log &\nwait", [True]),
        ("cd a && srun ./fit && date &\nsrun ./b || exit 1", [True, False]),
        ("for i in 1 2; do srun ./a; date; done &\nsrun ./b", [True, False]),
        ("if [ -e x ]; then srun ./a; date; fi > log &\nsrun ./b", [True, False]),
        ("if srun ./a; then date; fi &\ndd if=x of=y\nsrun ./b", [True, False]),
        ("(case $x in a) srun ./a ;; esac; date) &\nsrun ./b", [True, False]),
        ('srun sh -c "echo \\"a; b\\"; date" &\nsrun ./b', [True, False]),
        ("one() {\n  srun ./a\n  date\n}\ncd a && one &\nwait", [True]),
        ("one() {\n  srun ./a $1\n  gzip $1\n}\nfor i in 1 2; do one $i & done\nwait", [True]),
        ("function one {\n  srun ./a $1; gzip $1\n}\none 1 > log & one 2 &\nwait", [True]),
        ("one () { srun ./a $1; }\none 1\none 2\nsrun ./b &", [False, True]),
        ("case $x in a) srun ./a & ;; esac", [True]),
    ],
)
def test_steps_in_the_background_are_told_from_those_that_are_waited_for(
    script: str, background: list[bool]
) -> None:
    """Two steps of 500 MiB ran one after the other in 512 where quotes, a group or a function hid that
    they were left in the background (22.05).
    """
    assert [step.turn.background for step in read_steps(script)] == background


@pytest.mark.parametrize(
    ("script", "held"),
    [
        ("A 4 &\nsleep 5\nA 4\nkill %1", 8),
        ("A 4\nA 2 &\nA 2 &\nwait", 4),
        ("A 2 & A 2 &\nwait\nA 2 & A 2 &\nwait # for both", 4),
        ("A 2 & A 2 &\nwait $!\nA 2 & A 2 &\nwait", 8),
        ("A 2 & A 2 &\nif [ -e x ]; then wait; fi\nA 2 & A 2 &\nwait", 8),
        ("A 4 &\nwait-for-it.sh\nA 4", 8),
        ("A 4 &\necho 'one; wait; two'\nA 4", 8),
        ("for i in 1 2\ndo\n  A 2 &\ndone\nwait\nA 4", 4),
        ("if [ -e x ]; then\n  A 2 &\nfi\nwait\nA 4", 4),
        ("(cd a; A 2) & (cd b; A 2) &\nwait\nA 4", 4),
        # The shell does not know of what a subshell of its own has left.
        ("(A 2 &)\nwait\nA 4", 6),
        ("one() {\n  A 2 &\n}\nwait\none\nA 4", 6),
        ("one() { A 2; }\nA 4 &\nwait\none &\nA 4", 6),
    ],
)
def test_what_a_script_starts_counts_with_what_still_runs_in_the_background(script: str, held: float) -> None:
    """Of a job of 8 CPUs that was cut to 4, a step of 4 waited until the limit for the server of 4 that it was to ask
    (22.05).
    """
    found = list(re.finditer(r"\bA (\d)", script))
    assert held_at_once(zip((float(one[1]) for one in found), turns(script, found), strict=True)) == held


@pytest.mark.parametrize(
    "script",
    [
        "c '",
        'c "',
        '"\\',
        "c 'srun ",
        "((",
        "(srun a;)&",
        ") &",
        "' ",
        '{"',
        "a(){srun a;}\na&\n",
        "a &",
        "{srun a;} ",
    ],
    ids=repr,
)
def test_reading_takes_no_longer_for_what_is_never_closed(script: str) -> None:
    began_s = time.process_time()
    read_steps("srun a\n" + script * (16_000 // len(script)))
    assert time.process_time() - began_s < 0.5
