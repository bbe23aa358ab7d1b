"""A site with everything in order, for the doctor, and ways to change that."""

import json
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from accounting.ingest.ingesting import SACCT
from accounting.slurm.sacct_groups import LABELS
from accounting.store import schema
from accounting.store.database import open_store
from accounting.store.records import write_rows
from models.judging.card import Card, card_files, card_of
from models.judging.drift import FeatureDrift, WeekCalibration, Word
from models.judging.promotion import CURRENT, Verdict
from models.past.jobs import Learned
from models.training import training
from models.versions import registry
from slurm_plugin.doctor.checks import CHECKS
from tests.builders import T0, attempt
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run
from tests.stores import write_attempts

HOUR_S = 3600
PASSED = Verdict(passed=True, opponent=CURRENT, judged=80, split_s=T0, reasons=("no worse",))
EXCEEDED = {"stable": 5, "shifted": 11, "drifted": 50, "too few to tell": 0}
PSI = {"stable": 0.05, "shifted": 0.2, "drifted": 0.7, "too few to tell": 0.9}
Rows = dict[str, dict[str, str]]


def week(word: Word, from_s: int = T0) -> WeekCalibration:
    jobs = 50 if word == "too few to tell" else 500
    return WeekCalibration(from_s=from_s, jobs=jobs, exceeded=EXCEEDED[word], nominal=0.01, word=word)


def feature(word: Word, name: str = "hour") -> FeatureDrift:
    return FeatureDrift(feature=name, psi=PSI[word] + 0.01, by_chance=0.01, before=900, latest=200, word=word)


@dataclass(frozen=True)
class Installation:
    """A site with everything in order, and ways to change that."""

    site: Site
    run: Run
    trained: training.Trained

    def train(
        self,
        *,
        verdict: Verdict | None = PASSED,
        drift: tuple[FeatureDrift, ...] = (feature("stable"),),
        weeks: tuple[WeekCalibration, ...] = (week("stable"),),
        ago_s: float = 60,
        promote: bool = True,
        dimension: Learned = "memory",
    ) -> str:
        """Save a model whose card has these results for its memory, or another dimension."""
        real = card_of(self.trained, verdict, 0.01)
        health = msgspec.structs.replace(real.growth[0], dimension=dimension, weeks=weeks)
        card: Card = msgspec.structs.replace(real, growth=(health,), drift={dimension: drift})
        return self.save(self.trained, ago_s, card_files(card), promote=promote)

    def save(
        self, trained: training.Trained, ago_s: float, card: dict[str, bytes] | None, *, promote: bool
    ) -> str:
        version = training.save(trained, self.site.models, time.time() - ago_s, card)
        if promote:
            registry.promote(self.site.models, version)
        return version

    def store(self, *, read_ago_s: float | None = 60, ended_ago_s: float | None = 600) -> None:
        """Make a new store, read up to `read_ago_s` ago, with a job that ended `ended_ago_s` ago."""
        (self.site.folder / "store.db").unlink(missing_ok=True)
        engine, now_s = open_store(self.site.config.store.url, create=True), int(time.time())
        with engine.begin() as connection:
            if read_ago_s is not None:
                mark = {"cluster": "", "read_until_s": int(now_s - read_ago_s)}
                write_rows(connection, schema.windows, [{"source": name, **mark} for name in (SACCT, LABELS)])
            if ended_ago_s is not None:
                start_s = int(now_s - ended_ago_s) - 100
                write_attempts(connection, [attempt(submit_s=start_s - 10, start_s=start_s, elapsed_s=100)])
        engine.dispose()

    def found(self, *arguments: str) -> tuple[Rows, int]:
        """Return what the doctor finds, by check, and its exit code."""
        ran = self.run("doctor", "--format", "json", *arguments)
        rows: Rows = {row["check"]: row for row in json.loads(ran.out)}
        assert list(rows) == list(CHECKS)
        # A warning or a problem comes with its fix, anything else without one.
        assert all(
            bool(row["fix"]) == (row["state"] in ("warning", "problem"))
            for row in rows.values()
            if row["state"] != "unknown"
        )
        assert (ran.code == 3) == any(row["state"] == "problem" for row in rows.values())
        return rows, ran.code

    def expect(self, check: str, state: str, said: str, fix: str = "") -> None:
        """Expect that the doctor finds this, and no other problem or warning."""
        rows, code = self.found()
        assert rows[check]["state"] == state, rows[check]
        assert re.search(said, rows[check]["saw"]), rows[check]
        assert re.search(fix, rows[check]["fix"]), rows[check]
        others = {name: row for name, row in rows.items() if name != check}
        assert [row for row in others.values() if row["state"] in ("warning", "problem")] == []
        assert code == (3 if state == "problem" else 0)


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(8)
    return server
