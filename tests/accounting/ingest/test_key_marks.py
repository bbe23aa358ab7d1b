"""A store of pseudonyms goes with one key, also after it was taken back to an older schema and upgraded again."""

from pathlib import Path

import pytest

from accounting.errors import StoreError
from accounting.ingest.key_marks import hold_to_key
from accounting.pseudonyms import Pseudonyms
from accounting.store.database import open_store
from accounting.store.older import take_back
from tests.builders import attempt
from tests.stores import write_attempts


@pytest.mark.parametrize("revision", ["0004", "0005", "0006"])
def test_a_store_that_went_back_still_goes_with_its_own_key(revision: str, tmp_path: Path) -> None:
    url, (own, other) = f"sqlite:///{tmp_path}/store.db", map(Pseudonyms, (b"a" * 32, b"b" * 32))
    engine = open_store(url, create=True)
    hold_to_key(engine, own, 5)
    take_back(engine, revision, apply=True)
    engine.dispose()
    engine = open_store(url, create=True)
    hold_to_key(engine, own, 9)
    with pytest.raises(StoreError, match="another key was given"):
        hold_to_key(engine, other, 9)
    engine.dispose()


def test_a_job_of_which_no_user_is_known_is_no_name(tmp_path: Path) -> None:
    own, other = map(Pseudonyms, (b"a" * 32, b"b" * 32))
    engine = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    with engine.begin() as connection:
        write_attempts(connection, [attempt(user="")])
    hold_to_key(engine, own, 5)
    with pytest.raises(StoreError, match="another key was given"):
        hold_to_key(engine, other, 9)
    engine.dispose()
