"""Which attempts the options of a report choose, whatever the case in which a cluster's name is written."""

from __future__ import annotations

import msgspec
from sqlalchemy import ColumnElement, and_, exists, or_

from accounting.report.selection import Selection
from accounting.store.schema import attempts


class ChosenAttempts(Selection, frozen=True, kw_only=True):
    """A selection whose cluster is named by a person: slurmdbd knows `Alpha` as `alpha`."""

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return what holds for the attempts that are meant."""
        if self.cluster is None:
            return super().conditions()
        return [*msgspec.structs.replace(self, cluster=None).conditions(), of_cluster(self.cluster)]


def of_cluster(name: str) -> ColumnElement[bool]:
    """Return what holds for the attempts of a cluster.

    That is the one of this very name (a dump that names none is called as its file is), else the one in lower case.
    """
    cluster, others = attempts.c.cluster, attempts.alias()
    if name == name.lower():
        return cluster == name
    is_there = exists().where(others.c.cluster == name)
    return or_(cluster == name, and_(cluster == name.lower(), ~is_there))
