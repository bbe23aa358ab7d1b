"""How long a volume of demand takes, learned from past volumes and durations. Pure.

From a patent on scheduling by GPU virtualisation (claim 5; docs/scheduling.md): past volumes in ascending order, with
their durations; volumes that nobody asked for are filled in, so that volumes stand at regular distances; a model
gives each of these a duration; it is read at the volumes that were asked for, and fitted to lose as little as
possible against their durations there.

The patent leaves the model open. Here it is a line from node to node of the regular volumes that never falls, with
the least mean squared error:

    minimise  Σ (f(x_i) − d_i)²    over    0 ≤ f(g_1) ≤ f(g_2) ≤ … ≤ f(g_m),   g_1 = min x, …, g_m = max x

Between nodes where nobody asked, the straightest line is taken. Beyond the volumes that were seen, duration grows in
proportion to the volume, for lack of better knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy

from accounting.errors import ScheduleError
from models.scheduling.checks import Floats, amounts_of

NODES = 17
# The weight of a bend against a miss: enough to decide where there are no data, and nowhere else.
BEND_WEIGHT = 1e-3


class DurationMap(msgspec.Struct, frozen=True, kw_only=True):
    """Regular volumes, the duration of each, and the root mean squared error of the map (seconds)."""

    volumes: tuple[float, ...]
    durations_s: tuple[float, ...]
    loss_s: float

    def durations_of(self, volumes: Sequence[float] | Floats) -> Floats:
        """Return the planned duration of each volume (seconds); it never falls as volume grows."""
        planned = amounts_of("planned volumes", volumes)
        least, most = self.volumes[0], self.volumes[-1]
        # Factors for volumes below or above the range, in proportion; 1 within it.
        below = numpy.minimum(planned, least) / least if least else 1.0
        above = numpy.maximum(planned, most) / most
        answer: Floats = numpy.interp(planned, self.volumes, self.durations_s) * below * above
        return answer


def fit_duration_map(
    volumes: Sequence[float] | Floats, durations_s: Sequence[float] | Floats, nodes: int = NODES
) -> DurationMap:
    """Return the map of past volumes (any unit, at least one above 0) to their durations in seconds."""
    asked = amounts_of("past volumes", volumes)
    took_s = amounts_of("past durations", durations_s)
    if len(asked) != len(took_s) or not (asked > 0).any():
        raise ScheduleError("give as many past durations as past volumes, and one volume above 0 at least")
    if nodes < 2:
        raise ScheduleError(f"a map needs 2 nodes at least, not {nodes}")
    ascending = numpy.argsort(asked, kind="stable")
    asked, took_s = asked[ascending], took_s[ascending]
    grid = numpy.unique(numpy.linspace(asked[0], asked[-1], nodes))
    # The volumes at both ends may be so close that no other number lies between them.
    heights = _heights(_shares(asked, grid), took_s)
    fitted = DurationMap(volumes=tuple(grid.tolist()), durations_s=tuple(heights.tolist()), loss_s=0.0)
    missed_s = fitted.durations_of(asked) - took_s
    return msgspec.structs.replace(fitted, loss_s=float(numpy.sqrt(numpy.mean(missed_s**2))))


def _shares(volumes: Floats, grid: Floats) -> Floats:
    """Return the weight of each node in each volume (volumes × nodes): a straight line from node to node."""
    return numpy.column_stack([numpy.interp(volumes, grid, node) for node in numpy.eye(len(grid))])


def _heights(shares: Floats, took_s: Floats) -> Floats:
    """Return the duration of each node: non-negative least squares over the steps from node to node."""
    from sklearn.linear_model import LinearRegression

    nodes = shares.shape[1]
    scale_s = float(took_s.max())
    if scale_s == 0:
        return numpy.zeros(nodes)
    steps_to_heights = numpy.tril(numpy.ones((nodes, nodes)))
    bends = numpy.diff(numpy.eye(nodes), n=2, axis=0) * BEND_WEIGHT
    rows = numpy.vstack([shares, bends]) @ steps_to_heights
    wanted = numpy.concatenate([took_s / scale_s, numpy.zeros(len(bends))])
    steps = LinearRegression(positive=True, fit_intercept=False).fit(rows, wanted).coef_
    heights: Floats = numpy.cumsum(steps) * scale_s
    return heights
