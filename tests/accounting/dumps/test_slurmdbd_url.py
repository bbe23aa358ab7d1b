"""URLs with which slurmdbd's database cannot be read, found out before anything is asked."""

import socket
import sys

import pytest

from accounting.dumps import slurmdbd
from accounting.dumps.slurmdbd import check_url, read_database
from accounting.errors import SlurmError


@pytest.mark.parametrize("url", ["no url", "nosuchdb://me:secret@h/y", "mysql+pymysql://me:secret/y"])
def test_a_url_that_cannot_be_used_is_an_error_of_one_line_without_its_password(url: str) -> None:
    for use in (check_url, lambda url: next(read_database(url, "c", 0, 1, 1))):
        with pytest.raises(
            SlurmError, match=r"slurmdbd_url cannot be used: .*; write it as mysql\+pymysql://"
        ) as caught:
            use(url)
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "module", "fix"),
    [
        ("mysql+pymysql://h/y", "pymysql", r"pip install -c constraints.txt '\.\[mariadb\]'"),
        ("mysql://h/y", "MySQLdb", r"write it as mysql\+pymysql://"),
    ],
)
def test_a_driver_that_is_not_installed_is_named_with_the_fix(
    url: str, module: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    check_url(url)
    with pytest.raises(SlurmError, match=rf"{module}.*; .*{fix}"):
        next(read_database(url, "c", 0, 1, 1))


def test_a_server_that_accepts_a_connection_and_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pymysql")
    monkeypatch.setattr(slurmdbd, "CONNECT_WAIT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mysql+pymysql://reader:secret@127.0.0.1:{silent.getsockname()[1]}/slurm_acct_db"
        with pytest.raises(SlurmError, match=r"cannot read slurmdbd's database: .*timed out"):
            next(read_database(url, "c", 0, 1, 1))


@pytest.mark.parametrize("option", ["connect_timeout=long", "connect_timeout=0", "conect_timeout=1"])
def test_options_that_the_driver_refuses_are_an_error_of_one_line(option: str) -> None:
    pytest.importorskip("pymysql")
    with pytest.raises(
        SlurmError, match=r"slurmdbd_url cannot be used|PyMySQL refuses the options"
    ) as caught:
        next(read_database(f"mysql+pymysql://h/y?{option}", "c", 0, 1, 1))
    assert "\n" not in str(caught.value)
