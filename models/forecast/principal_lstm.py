"""Demand by principal components and an LSTM: the first step of the GPU-virtualisation patent. Needs PyTorch.

The history of all demanders is a matrix x_i(j), demander i at time j. Its covariance has eigenvalues; the
eigenvectors of those that are not zero turn the demanders into components, an LSTM (gates f, i, c, o as usual) reads
the components of the last steps, and its answer is turned back into each demander's volume. The patent leaves four
things open. Here, components are divided by the root of their eigenvalue, so that all have the same size for the
network; it learns how far each future step lies from the last known one; its loss is the absolute error in each
demander's own unit; and training stops when the latest fifth of the past is predicted no better.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.errors import install_with
from models.forecast.panel import FIT_SEASONS, Floats, Ints, Panel, Predict, Task

INSTALL = f"needs PyTorch: {install_with('lstm')}"
HIDDEN, EPOCHS, PATIENCE, BATCH = 32, 40, 8, 64
# It reads two seasons, but no more steps than this; of a long past, an epoch reads a random part.
LONGEST_WINDOW, MOST_WINDOWS = 96, 1024
RATE, DECAY = 5e-3, 1e-4
TRIAL_SHARE = 0.2
# An eigenvalue counts as zero below this share of the largest.
ZERO_SHARE = 1e-10


def is_installed() -> bool:
    """Whether PyTorch is installed; the check does not import it."""
    return importlib.util.find_spec("torch") is not None


def least_steps(task: Task) -> int:
    """Return how many steps are needed: windows of the past, each with what followed it, for one batch."""
    return _window(task) + task.horizon + BATCH


def _window(task: Task) -> int:
    return min(FIT_SEASONS * task.season, LONGEST_WINDOW)


@dataclass(frozen=True)
class Components:
    """The demanders' mean and unit, and the transform to components (series × components) and back."""

    mean: Floats
    unit: Floats
    turn: Floats
    back: Floats


def principal_components(values: Floats) -> Components:
    """Return the components of demand (times × series) whose covariance eigenvalue is not zero."""
    mean, unit = values.mean(axis=0), values.std(axis=0)
    eigenvalues, vectors = np.linalg.eigh(np.cov(values, rowvar=False).reshape(values.shape[1], -1))
    kept = eigenvalues > max(eigenvalues.max(), 0.0) * ZERO_SHARE
    roots, vectors = np.sqrt(eigenvalues[kept]), vectors[:, kept]
    return Components(mean, np.where(unit > 0, unit, 1.0), vectors / roots, (vectors * roots).T)


def principal_lstm(past: Panel, task: Task) -> Predict:
    """Train the network on the known steps. The same steps and seed give the same network."""
    window = _window(task)
    components = principal_components(past.values)
    if not components.turn.shape[1]:  # all are constant, and stay so
        return lambda panel, origins: np.repeat(panel.values[origins - 1][:, None], task.horizon, axis=1)
    origins = np.arange(window, len(past.values) - task.horizon + 1)
    network = _trained(components, past.values, origins, task)

    def predict(panel: Panel, origins: Ints) -> Floats:
        import torch

        with torch.no_grad():
            moves = network(_windows(components, panel.values, origins, window)).numpy()
        answers: Floats = panel.values[origins - 1][:, None] + moves * components.unit
        return answers

    return predict


def _windows(components: Components, values: Floats, origins: Ints, window: int) -> Any:  # noqa: ANN401 (a tensor)
    """Return the components of the window before each origin, as a tensor origins × window × components."""
    import torch

    seen = (values[: origins.max()] - components.mean) @ components.turn
    return torch.from_numpy(seen[origins[:, None] + np.arange(-window, 0)].astype(np.float32))


def _trained(components: Components, values: Floats, origins: Ints, task: Task) -> Any:  # noqa: ANN401 (a module)
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in one order on every machine
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(task.seed)
            return _descend(components, values, origins, task)
    finally:
        torch.set_num_threads(threads)


def _descend(components: Components, values: Floats, origins: Ints, task: Task) -> Any:  # noqa: ANN401 (a module)
    """Learn from the earlier windows, and keep the network that erred least on what came after them."""
    import torch

    windows = _windows(components, values, origins, _window(task))
    came = values[origins[:, None] + np.arange(task.horizon)] - values[origins - 1][:, None]
    targets = torch.from_numpy((came / components.unit).astype(np.float32))
    cut = int(len(origins) * (1 - TRIAL_SHARE))
    learned = max(1, cut - task.horizon)  # their outcomes were known before the trial windows
    network = _network(components, task.horizon)
    descent = torch.optim.Adam(network.parameters(), lr=RATE, weight_decay=DECAY)
    least, best, since = np.inf, network.state_dict(), 0
    for _ in range(EPOCHS):
        with torch.no_grad():
            error = float((network(windows[cut:]) - targets[cut:]).abs().mean())
        since += 1
        if error < least:
            least, since = error, 0
            best = {name: weight.clone() for name, weight in network.state_dict().items()}
        if since > PATIENCE:
            break
        for batch in torch.randperm(learned)[:MOST_WINDOWS].split(BATCH):
            descent.zero_grad()
            (network(windows[batch]) - targets[batch]).abs().mean().backward()
            descent.step()
    network.load_state_dict(best)
    return network.eval()


def _network(components: Components, horizon: int) -> Any:  # noqa: ANN401 (a module)
    """Return a network from windows of components to moves of each demander at each lead, in its unit."""
    import torch
    from torch import nn

    count = components.turn.shape[1]
    back = torch.from_numpy((components.back / components.unit).astype(np.float32))

    class Network(nn.Module):  # type: ignore[misc]  # PyTorch may not be there
        def __init__(self) -> None:
            super().__init__()
            self.reads = nn.LSTM(count, HIDDEN, batch_first=True)
            self.says = nn.Linear(HIDDEN, horizon * count)
            nn.init.zeros_(self.says.weight)
            nn.init.zeros_(self.says.bias)

        def forward(self, windows: torch.Tensor) -> torch.Tensor:
            _, (hidden, _) = self.reads(windows)
            moves: torch.Tensor = self.says(hidden[-1]).view(-1, horizon, count)
            return moves @ back

    return Network()
