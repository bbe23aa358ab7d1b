"""The model in use: follows the registry's `current` link, and keeps the last good one when a new one is bad."""

from __future__ import annotations

import gc
import logging
from pathlib import Path

from accounting.errors import ModelError
from models import registry
from models.artefact import load_predictor
from models.demand.prediction import ChainSettings, Predictor

log = logging.getLogger(__name__)


class CurrentModel:
    """Holds a predictor, or None before the first model; swapped whole by `refresh`."""

    def __init__(self, directory: Path, settings: ChainSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._seen: str | None = None
        self.predictor: Predictor | None = None

    def refresh(self) -> None:
        """Load the current version if it is not the one already seen; a bad one is logged once and not used."""
        version = registry.current_version(self._directory)
        if version is None or version == self._seen:
            return
        self._seen = version
        try:
            self.predictor = load_predictor(self._directory / version, self._settings)
        except ModelError as error:
            kept = self.predictor.model if self.predictor else "none"
            log.error("model %s is refused, %s stays in use: %s", version, kept, error)  # noqa: TRY400
            return
        # A history of millions of jobs is never garbage while it is in use: to look through it would stop all answers.
        gc.freeze()
        log.info("model %s in use", version)
