"""The check of who may read and write our files and sockets. Pure."""

from __future__ import annotations

from slurm_plugin.doctor.finding import Judged
from slurm_plugin.doctor.seen import PathSeen, Seen

# What each kind of file tells about others, if everybody may read it.
READABLE = {
    "password": "holds a database's password",
    "data": "holds the names of users and jobs, and what they used",
}


def permissions(seen: Seen) -> Judged:
    """Whether other users may write what we run or trust (a problem), or read what is not theirs (a warning)."""
    written = [one.path for one in seen.paths if one.others_write and one.kind != "socket"]
    if written:
        return "problem", f"every user may write {', '.join(written)}", f"chmod o-w {' '.join(written)}"
    told = {one.path: said for one in seen.paths if (said := _told(one))}
    if told:
        what = "; ".join(f"every user may {said}" for said in told.values())
        fix = f"chmod o= {' '.join(told)}"
        if any(one.kind == "password" and one.others_read for one in seen.paths):
            fix += ", or put the URL into store.url_file"
        return "warning", what, fix
    return "ok", "other users can neither read nor write rightsizer's files", ""


def _told(one: PathSeen) -> str:
    if one.kind == "socket":
        return f"connect to {one.path}" if one.others_write else ""
    return f"read {one.path}, which {READABLE[one.kind]}" if one.others_read and one.kind in READABLE else ""
