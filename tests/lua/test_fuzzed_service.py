"""Random submissions through the real Lua hook and the real service, on a model that knows many of them.

RIGHTSIZER_FUZZ_CASES=100000 python -m pytest -s tests/lua/test_fuzzed_service.py
"""

import itertools
import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from accounting.decisions.decision import decode_decision
from accounting.records import Attempt
from models.past.families import script_signature
from models.training.training import save, train
from models.versions import registry
from tests.builders import attempt, gpu_use
from tests.conftest import Site
from tests.lua.fuzz_run import fuzz

CASES = int(os.environ.get("RIGHTSIZER_FUZZ_CASES", "4000"))
# Of the words that the fuzzer makes jobs of, those that reach the service unchanged.
WORDS = ("a", "größe", '"\\\n')
TASKS = (1, 2, 3, 4, 8)
JOBS_EACH = 6


def history() -> list[Attempt]:
    """Return six modest jobs for each user, name, script and number of tasks that the fuzzer may choose."""
    known = itertools.product(WORDS, (*WORDS, ""), (*WORDS, ""), TASKS, range(JOBS_EACH))
    made: list[Attempt] = []
    for number, (user, name, script, tasks, _) in enumerate(known):
        plain = attempt(
            job_id=number,
            user=user,
            job_name=name,
            mem_mib=90.0,
            cores=0.7,
            gpus=1,
            submit_s=number,
            start_s=number,
        )
        known_gpu = msgspec.structs.replace(plain.use, gpus=1, gpu_source=gpu_use().source)
        made.append(
            msgspec.structs.replace(
                plain,
                num_tasks=tasks,
                script_signature=script_signature(script),
                use=known_gpu,
                asked_gpus=64,
            )
        )
    return made


@pytest.mark.skipif(not shutil.which("lua5.1"), reason="lua5.1 is not installed")
def test_no_submission_is_refused_raises_an_error_or_is_wrongly_changed(site: Site) -> None:
    attempts = history()
    registry.promote(site.models, save(train(attempts, 50), site.models, time.time()))
    site.configure(mode="enforce", policy={"def_mem_per_cpu_mib": 0})
    site.serve()
    done = fuzz("lua5.1", CASES, random.randrange(2**31), str(site.socket))
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    reasons = Counter(reasons_journalled(site))
    print(dict(reasons))
    assert "not_batch" not in done.stdout, "the service grants what the hook must refuse"
    assert reasons["resized"] > CASES / 4000, "too few jobs were cut to prove anything"


def reasons_journalled(site: Site) -> list[str]:
    """Return the reason of each decision that the service made."""
    journals = Path(site.config.service.journal).glob("*.jsonl")
    decisions = [decode_decision(line) for file in journals for line in file.read_bytes().splitlines()]
    return [decision.reason.split(":")[0] for decision in decisions if decision is not None]
