"""The service with the current model and the current files."""

import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accounting.decisions.decision import decode_decision
from accounting.decisions.token import find_token
from models.training import training
from models.versions import registry
from slurm_plugin.cli.models.predict import input_of, read_script
from slurm_plugin.config.settings import Inputs
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.decide import decide, reply_to
from slurm_plugin.service.protocol import decode_reply
from tests.builders import past
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.slurm_plugin.service.asking import (
    KNOWN,
    asked,
    handler_of,
    install,
    line_of,
    model_in_use,
    model_of,
)
from tests.slurm_plugin.service.test_input_sizes import wait_long


def test_a_new_model_is_used_soon_and_a_damaged_one_never(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    service = site.serve()
    assert model_of(site) == trained_model.version
    attempts = past(30, seed=2)
    trained = training.train(attempts, 50)
    new = training.save(trained, site.models, 2e9)
    registry.promote(site.models, new)
    promoted = time.monotonic()
    while model_of(site) != new:
        assert time.monotonic() - promoted < PATIENCE_S
        time.sleep(0.02)
    damaged = training.save(trained, site.models, 2.1e9)
    (site.models / damaged / "history.json").write_bytes(b"{}")
    registry.promote(site.models, damaged)
    time.sleep(1.2)
    assert model_of(site) == new
    registry.promote(site.models, trained_model.version)
    promoted = time.monotonic()
    while model_of(site) != trained_model.version:
        assert time.monotonic() - promoted < PATIENCE_S
        time.sleep(0.02)
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=PATIENCE_S)
    assert log.decode().count("is refused") == 1


def test_answering_a_submission_imports_nothing_heavy() -> None:
    heavy = ["pandas", "sqlalchemy", "alembic", "sklearn", "xgboost", "onnxmltools", "onnx", "rich"]
    code = (
        f"import sys, slurm_plugin.service.server; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_predict_answers_as_the_service_does(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    config = site.configure(mode="enforce")
    script = site.folder / "fit"
    script.write_text("#!/bin/sh\n#SBATCH -c 8 --mem=8000\n#SBATCH --gres=gpu:4\nsrun ./fit --all\n")
    model = model_in_use(config)
    as_hooked = msgspec.structs.replace(KNOWN, script=script.read_text())
    served = reply_to("7", decide(as_hooked, model.predictor, config, "d", 0.0)).grant
    predicted = subprocess.run(
        site.command("predict", str(script), "--user", "alice", "--format", "json"),
        env={**os.environ, "RIGHTSIZER_CONFIG": str(site.config_file), "SLURM_CONF": "/nowhere"},
        capture_output=True,
        check=True,
    )
    said = [
        line for line in predicted.stderr.decode().splitlines() if "Slurm's limits, or some of them" in line
    ]
    assert len(said) == 1
    granted = {row["resource"]: row["granted"] for row in json.loads(predicted.stdout)}
    assert served
    assert granted["CPUs"] == served.cpus_per_task
    assert granted["memory (MiB)"] == served.mem_per_node_mib
    assert granted["GPUs"] == served.gpus_per_node


def with_input(site: Site, mib: float) -> Submission:
    """Return KNOWN with a script that names a file of `mib` MiB below the site's roots."""
    file = site.folder / "a.bin"
    file.write_bytes(b"x" * round(mib * 2**20))
    script = f"#!/bin/sh\nsrun ./fit --in={file}\n"
    return msgspec.structs.replace(KNOWN, script=script, uid=os.getuid())


def journalled(site: Site) -> list[float | None]:
    [file] = Path(site.config.service.journal).glob("decisions-*.jsonl")
    decisions = map(decode_decision, file.read_bytes().splitlines())
    return [decision.request.input_mib for decision in decisions if decision]


def test_the_size_of_the_input_is_journalled_but_in_no_reply(
    site: Site, trained_model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_long(monkeypatch)
    install(site, trained_model)
    job = with_input(site, 1.25)
    site.configure(inputs={"roots": [str(site.folder)]})
    handle = handler_of(site)
    replies = [asked(handle, line_of(job)) for _ in range(3)]
    with_input(site, 3.5)  # the same script, while its input has grown
    replies.append(asked(handle, line_of(job)))
    assert journalled(site) == [1.25, 1.25, 1.25, 3.5]
    for one in replies:
        assert b"1.25" not in one
        assert b"input" not in one
    site.configure(inputs={"roots": []})
    asked(handler_of(site), line_of(job))
    assert journalled(site)[-1] is None


def test_a_hanging_file_server_delays_no_reply(
    site: Site, trained_model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, trained_model)
    job = with_input(site, 1.0)
    site.configure(inputs={"roots": [str(site.folder)]})
    hangs, looked = threading.Event(), threading.Event()

    def hang(*_of: object) -> None:
        looked.set()
        hangs.wait(30)

    monkeypatch.setattr(os, "open", _only_below(site.folder / "a.bin", hang))
    handle = handler_of(site)
    begun_s = time.perf_counter()
    replies = [decode_reply(asked(handle, line_of(job))) for _ in range(50)]
    took_s = time.perf_counter() - begun_s
    assert looked.wait(PATIENCE_S)
    hangs.set()
    assert all(find_token(one.token) for one in replies)
    assert took_s < 15
    assert journalled(site) == [None] * 50


def _only_below(file: Path, hang: Callable[..., None]) -> Callable[..., int]:
    """Return an os.open that hangs before it opens this file by its name in an open folder."""
    real = os.open

    def opened(path: str | Path, *rest: Any, dir_fd: int | None = None) -> int:
        if dir_fd is not None and path == file.name:
            hang()
        return real(path, *rest, dir_fd=dir_fd)

    return opened


def test_predict_sees_the_same_input_as_the_service(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    file = site.folder / "a.bin"
    file.write_bytes(b"x" * 2**20)
    config = site.configure(inputs={"roots": [str(site.folder)]})
    script = site.folder / "fit"
    script.write_text("#!/bin/sh\n#SBATCH -c 8 --mem=8000\nsrun fit --in=a.bin\n")
    user = pwd.getpwuid(os.getuid()).pw_name
    found = input_of(read_script(script, user, (f"--chdir={site.folder}",)), config)
    assert found == 1.0
    assert input_of(read_script(script, "no-such-user", ()), config) is None
    assert input_of(read_script(script, user, ()), msgspec.structs.replace(config, inputs=Inputs())) is None
