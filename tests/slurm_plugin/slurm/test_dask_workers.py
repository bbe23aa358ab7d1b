"""Dask workers as Slurm jobs: who may connect to their scheduler, and what is said of workers that do not start."""

from pathlib import Path

import pytest

from accounting.errors import SlurmError

pytest.importorskip("distributed", reason="the extra `dask` is not installed")

from distributed import Client, LocalCluster, Security

from slurm_plugin.config.settings import TrainDask
from slurm_plugin.slurm import dask_workers
from tests.conftest import PATIENCE_S


def test_only_the_certificate_of_this_training_is_let_in(tmp_path: Path) -> None:
    security = dask_workers._credentials(tmp_path)
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == {
        "certificate.pem": "0o600",
        "key.pem": "0o600",
    }
    with LocalCluster(
        n_workers=0,
        processes=False,
        protocol="tls://",
        security=security,
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        address = cluster.scheduler_address
        with Client(address, security=security, timeout=PATIENCE_S) as client:
            assert client.nthreads() == {}
        with pytest.raises(OSError, match=r"Timed out|TLS|SSL|certificate"):
            Client(address, security=Security.temporary(), timeout=1)


def test_the_cause_is_named_before_its_consequences(tmp_path: Path) -> None:
    assert dask_workers._last_words(tmp_path, failed=False) == ""
    log = tmp_path / "worker-1.err"
    log.write_text("Traceback (most recent call last):\n  File\nslow start\n\n", encoding="utf-8")
    assert dask_workers._last_words(tmp_path, failed=True).endswith("says: slow start")
    log.write_text("  x\nValueError: no such network\n\nRuntimeError: Worker failed to start.\n", "utf-8")
    assert dask_workers._last_words(tmp_path, failed=True).endswith("says: ValueError: no such network")


def test_workers_that_failed_without_a_log_cannot_see_the_folder(tmp_path: Path) -> None:
    said = dask_workers._last_words(tmp_path / ".rightsizer-dask-1", failed=True)
    assert f"none of them wrote to {tmp_path}, which all nodes must share" in said
    assert "set train.dask.shared_directory" in said


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    settings = TrainDask(shared_directory=str(tmp_path / "nowhere"))
    with (
        pytest.raises(SlurmError, match=r"nowhere: No such file .* set train.dask.shared_directory"),
        dask_workers.slurm_workers(settings, print),
    ):
        pass


def test_a_user_without_a_home_is_told_what_to_set() -> None:
    settings = TrainDask(shared_directory="~nobody-of-that-name/dask")
    with (
        pytest.raises(SlurmError, match=r"cannot write to ~nobody-of-that-name/dask: .* set train\.dask"),
        dask_workers.slurm_workers(settings, print),
    ):
        pass
