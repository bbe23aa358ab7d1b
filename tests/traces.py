"""The public traces, if this machine has them: RIGHTSIZER_TRACES names their folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TRACES = Path(os.environ.get("RIGHTSIZER_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces"))


def needs_traces(*files: str | Path) -> pytest.MarkDecorator:
    """Return a mark that skips a test if one of these files (or patterns of files) is missing."""
    missing = [str(file) for file in files if not any(TRACES.glob(str(file)))]
    return pytest.mark.skipif(
        bool(missing), reason=f"no {', '.join(missing)} in {TRACES} (set RIGHTSIZER_TRACES)"
    )
