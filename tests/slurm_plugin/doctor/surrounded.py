"""A site with what surrounds it, as the doctor sees it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass

from slurm_plugin.doctor.checks import judge
from slurm_plugin.doctor.finding import Finding
from slurm_plugin.doctor.look import look
from slurm_plugin.doctor.seen import Seen
from tests.conftest import Site
from tests.slurm_plugin.cli.test_explain_ended import as_plain_user


@dataclass(frozen=True)
class Surrounded:
    """A site with its surroundings, as the doctor sees it; other tests check what the site itself has."""

    site: Site

    def look(self) -> Seen:
        return look(self.site.config, "of a test", time.time(), str(self.site.config_file))

    def findings(self) -> dict[str, Finding]:
        return {one.check: one for one in judge(self.look())}

    def expect(self, check: str, state: str, said: str, fix: str = "") -> None:
        found = self.findings()[check]
        assert (found.state, bool(found.fix)) == (state, state != "ok"), found
        assert re.search(said, found.what), found
        assert re.search(fix, found.fix), found


def found_without_capabilities(site: Site) -> dict[str, dict[str, str]]:
    """Return what the doctor finds, by check, without root's right to bypass permissions."""
    told = as_plain_user("doctor", "--format=json", f"--config={site.config_file}")
    return {one["check"]: one for one in json.loads(told.stdout)}
