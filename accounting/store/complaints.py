"""Turns a database's complaint into one line that says what to do next and holds no password. Pure."""

from __future__ import annotations

import re

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from accounting.errors import StoreError

_SECRET = re.compile(r"(?i)((?:password|passwd|passfile|sslpassword)=)[^&\s'\"]*")
_USER_INFO = re.compile(r"//([^/\s:@]*):[^\s]*@")
# "Somebody else is writing" in the words of SQLite, PostgreSQL (lock_timeout) and MariaDB.
_BUSY = ("database is locked", "lock timeout", "Lock wait timeout")
# SQLite writes files next to a database in order to read it.
_CLOSED = ("attempt to write a readonly database", "unable to open database file")
_FULL = ("disk is full", "No space left", "is full", "disk quota", "Errcode: 28")


def complaint(url: URL | str, error: BaseException) -> StoreError:
    """Return a database's error as the one-line error for a person."""
    reason = _reason(error)
    secret = url.password if isinstance(url, URL) else None
    if secret:
        reason = reason.replace(str(secret), "***")
    if any(words in reason for words in _BUSY):
        return busy(url)
    if any(words in reason for words in _FULL):
        return StoreError(
            f"cannot use the store {shown(url)}: {reason}; free some space and run this again (no "
            "incomplete data was written)"
        )
    if any(words in reason for words in _CLOSED):
        return StoreError(
            f"cannot use the store {shown(url)}: {reason}; even to read, SQLite writes to the store's "
            "folder, its file and the files next to it (-wal, -shm): run this as the user who owns the "
            "store, or correct the permissions"
        )
    return StoreError(f"cannot use the store {shown(url)}: {reason}; check store.url and the database server")


def busy(url: URL | str) -> StoreError:
    """Return the error for waiting too long for another writer."""
    return StoreError(
        f"cannot use the store {shown(url)}: another process has been writing to it for too long; wait "
        "until it has ended (only one `rightsizer ingest` runs at a time), then run this again"
    )


def shown(url: URL | str) -> str:
    """Return a URL as it may be shown: without passwords, even if it cannot be parsed."""
    try:
        text = make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        text = _USER_INFO.sub(r"//\1:***@", str(url))
    except ValueError:  # what stands in place of a port may be a password
        text = str(url).partition("://")[0] + "://***"
    return _SECRET.sub(r"\1***", text)


def _reason(error: BaseException) -> str:
    # PyMySQL's errors are (number, text); the others' are text, with details from the second line on.
    text = str(error.args[1]) if len(error.args) == 2 and isinstance(error.args[0], int) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    return _SECRET.sub(r"\1***", lines[0])
