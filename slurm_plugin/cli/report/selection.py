"""Select the attempts of a report, whatever the case in which the user writes a cluster's name."""

from __future__ import annotations

import msgspec
from sqlalchemy import ColumnElement, and_, exists, or_

from accounting.report.selection import Selection
from accounting.store.schema import attempts


class ChosenAttempts(Selection, frozen=True, kw_only=True):
    """A selection whose cluster's name was typed by a person: slurmdbd stores `Alpha` as `alpha`."""

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the SQL conditions that select the attempts."""
        if self.cluster is None:
            return super().conditions()
        return [*msgspec.structs.replace(self, cluster=None).conditions(), of_cluster(self.cluster)]


def of_cluster(name: str) -> ColumnElement[bool]:
    """Return the SQL condition for the attempts of a cluster.

    The exact name comes first (if a dump names no cluster, its file's name is used), then the name in lower case.
    """
    cluster, others = attempts.c.cluster, attempts.alias()
    if name == name.lower():
        return cluster == name
    is_there = exists().where(others.c.cluster == name)
    return or_(cluster == name, and_(cluster == name.lower(), ~is_there))
