# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Statistical test for columns of a table of seconds that are slower than others. Pure.

A row is a step of the training, a column is a rank (or one end of a link).

Model. The value of rank r in step t is

```text
x[t, r] = level[t] + offset[r] + late[t, r] + noise[t, r]
```

`level` is common to all ranks, as in a step with a longer batch. `offset` is constant
over the window and below a tenth of a step. `late` is the quantity to detect. `noise`
has a median of zero, is independent between ranks and has the same spread on each. At
most half of the ranks are late in most steps, so the fastest half is not late.

Three tests share the false alarms (1 in 1,000 windows without a late rank):

1. steady: compares a rank with the fastest half. d is the trimmed mean over the steps
  of x[t, r] minus the mean of the fastest half. d is compared with its standard error
  twice: with the noise of all ranks (t distribution, Bonferroni over the ranks, plus
  the bias from choosing the fastest ranks), and with the noise of this rank alone,
  which a single long step cannot pass. A rank statistic must agree: the rank is slower
  than the middle of the others in more steps than chance allows. A trend within the
  window is removed from the noise. The noise is scaled up if it is correlated from step
  to step, or if the ranks of the fastest half differ by more than the noise explains.
2. outstanding: compares a rank with its own history. After subtracting the fast half of
  each rank's own steps, the largest values are separated from all others by a gap. The
  gap must be larger than the range of the others, by a factor that depends on their
  number. This finds ranks that are late in a few steps, and ranks that are late in
  turn. Steps in which most ranks are separated name no rank; if there are many such
  steps, the test finds no rank.
3. in turn: a permutation test. If the W largest values of W steps lie in nearly as many
  different steps, and on several ranks, the late rank moves from step to step. The size
  of the values does not affect the significance.

Power. `Finding.visible_s` is the steady loss that the first test finds in 99 of 100
windows with this noise. A window without a finding says "none" only for losses above
that. A loss in a single step must be larger, about 15 times the noise. A loss that
moves between ranks and is 4 times the noise takes 15 steps to be seen.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from aikido_torch.trace.analyze._gaps import filled, known_part

__all__ = ["Finding", "Slow", "find", "often_late", "pattern_of"]

Pattern = Literal["steady", "drifting", "transient", "rotating", "none"]
Table = NDArray[Any]  # of float64

# Smallest loss, as a share of a step.
LEAST_SHARE = 0.1
# Resolution: differences below this share of a step, and below this time, are noise.
_FLOOR_SHARE, _FLOOR_S = 0.004, 20e-6
# False alarms of each test, per window.
_STEADY, _IN_TURN = 4e-4, 1e-4
# Chance below which ranks may be late in turn, although the window is too short to
# decide.
_SUSPECT = 0.02
# Level of the test against a rank's own noise.
_OWN = 0.005
# Bias of the fastest half's mean against the mean of all, in standard errors.
_BIAS = 0.8
# Log odds at which a rank counts as late, or as not late, beside others.
_CLEAR = 4.6
_POWER = 2.33  # standard normal quantile of 99 %
# Spread of the faster half of a normal sample, relative to the whole sample.
_HALF_SPREAD = 0.6
# Number of steps below which a pattern over the window has no meaning.
_FEWEST_STEPS = 3
_FEWEST_FOR_TREND = 5
_FEWEST_IN_TURN = 8
_MOST = 0.6  # share of a window's steps that counts as most
# A step in which most ranks are separated is long for all ranks, and names none. At
# most one in this many steps with separated ranks may be such a step.
_COMMON = 8
# A tail is heavy if its largest values exceed those of normal noise by this factor.
_HEAVY = 1.45


@dataclass(frozen=True)
class Slow:
    """A column that is slower than the others.

    Attributes:
        column: its index.
        lost_s: seconds above the fastest half, the median over `rows`.
        own_s: median value of the column in these rows.
        usual_s: median of the fastest half in these rows.
        rows: rows in which the loss was seen.
        total_s: seconds above the fastest half, the sum over `rows`.
    """

    column: int
    lost_s: float
    own_s: float
    usual_s: float
    rows: tuple[int, ...]
    total_s: float


@dataclass(frozen=True)
class Finding:
    """Result of the tests on a table.

    Attributes:
        pattern: distribution of the loss over the rows.
        slow: columns with a loss, the largest loss first.
        visible_s: steady loss that is found in 99 of 100 such tables; infinite if the
            noise cannot be estimated.
    """

    pattern: Pattern
    slow: tuple[Slow, ...]
    visible_s: float


def find(values: Table, step_s: float) -> Finding:
    """Finds slow columns.

    Args:
        values: seconds, rows are steps; NaN if a value is missing.
        step_s: length of a step without delays.
    """
    steps, columns, known = known_part(values)
    if steps.size < 1 or columns.size < 2:
        return Finding("none", (), math.inf)
    table = filled(values[np.ix_(steps, columns)], known)
    least_s = LEAST_SHARE * step_s
    floor_s = max(_FLOOR_SHARE * step_s, _FLOOR_S)
    rows = table.shape[0]
    # A short window may have a trend, but may have too few degrees of freedom to fit
    # it.
    with_trend = rows >= _FEWEST_FOR_TREND
    noise = _Noise(table, floor_s, least_s, with_trend=with_trend and rows > 5)
    late = _steady(table, noise, least_s)
    if with_trend and rows <= 5 and not late.any():
        second = _Noise(table, floor_s, least_s, with_trend=True)
        late = _steady(table, second, least_s)
        noise = second if late.any() else noise
    pattern: Pattern = "steady"
    if late.any():
        if noise.is_trend(late):
            pattern = "drifting"
        if rows < _FEWEST_STEPS:
            pattern = "transient"
    else:
        late, pattern = _outstanding(table, floor_s, least_s)
        if pattern == "none":
            late, pattern = _in_turn(table, noise, least_s)
    is_whole = pattern in ("steady", "drifting")
    usual = noise.usual if is_whole else _fast_of_row(table)
    slow = _slow(table, late & known, usual)
    named = tuple(
        replace(
            each,
            column=int(columns[each.column]),
            rows=tuple(int(steps[row]) for row in each.rows),
        )
        for each in slow
    )
    return Finding(pattern if named else "none", named, noise.visible_s)


def _slow(table: Table, late: NDArray[Any], usual: Table) -> list[Slow]:
    """The columns of a mask of late values; `usual`: by row, the mean of values on
    time.
    """
    found = []
    for column in np.flatnonzero(late.any(axis=0)):
        rows = np.flatnonzero(late[:, column])
        own = table[rows, column]
        lost = own - usual[rows]
        found.append(
            Slow(
                column=int(column),
                lost_s=float(np.median(lost)),
                own_s=float(np.median(own)),
                usual_s=float(np.median(usual[rows])),
                rows=tuple(map(int, rows)),
                total_s=float(lost.sum()),
            )
        )
    return sorted(found, key=lambda slow: (-slow.total_s, slow.column))


def _half(number: int) -> int:
    return number - number // 2


def _fast_of_row(table: Table) -> Table:
    """Mean of the fastest half of the ranks of each row."""
    level: Table = np.sort(table, axis=1)[:, : _half(table.shape[1])].mean(axis=1)
    return level


# ---- steady ----


def _trim(num_rows: int) -> int:
    return num_rows // 8


def _location(table: Table) -> Table:
    """Trimmed mean of each column."""
    cut = _trim(table.shape[0])
    mean: Table = np.sort(table, axis=0)[cut : table.shape[0] - cut].mean(axis=0)
    return mean


def _error2(table: Table, lost_freedom: int) -> Table:
    """Squared standard error of the trimmed mean of each column (Yuen 1974)."""
    rows = table.shape[0]
    cut = _trim(rows)
    kept = rows - 2 * cut
    ordered = np.sort(table, axis=0)
    ordered[:cut] = ordered[cut]
    ordered[rows - cut :] = ordered[rows - cut - 1]
    squares = ((ordered - ordered.mean(axis=0)) ** 2).sum(axis=0)
    free = rows - 1 - lost_freedom
    error2: Table = squares / (kept * (kept - 1)) * (rows - 1) / free
    return error2


def _without_trend(table: Table) -> tuple[Table, Table]:
    """The table without the trend of each column, and the slopes per row.

    A slope is the median over pairs of rows that are half a window apart.
    """
    rows = table.shape[0]
    apart = rows // 2
    slopes: Table = np.median(table[apart:] - table[:-apart], axis=0) / apart
    time = np.arange(rows) - (rows - 1) / 2
    return table - time[:, None] * slopes, slopes


class _Noise:
    """The noise of a table, and the loss that is visible in spite of it.

    Attributes:
        usual: by row, the mean of the fastest half.
        more: each value minus that mean.
        distance: the trimmed mean of `more`, by column.
        visible_s: see `Finding`.
    """

    def __init__(
        self, table: Table, floor_s: float, least_s: float, *, with_trend: bool
    ) -> None:
        self.rows, self.columns = table.shape
        self.floor2 = floor_s**2 / self.rows
        self.error = self.limit = self.visible_s = math.inf
        self.own_error = np.full(self.columns, math.inf)
        self.own_limit = math.inf
        lost = int(with_trend)  # degrees of freedom that the trend takes
        kept = self.rows - 2 * _trim(self.rows) - lost
        pooled, freedom = self._pooled(table, lost, kept)
        location = _location(table)
        order = np.argsort(location, kind="stable")
        fast = order[: _half(self.columns)]
        self.is_slow_half = np.ones(self.columns, bool)
        self.is_slow_half[fast] = False
        # The other ranks are not compared with ranks that are faster than most.
        far = max(least_s / 2, 4 * math.sqrt(pooled))
        alike = fast[location[fast] >= location[fast[-1]] - far]
        self.usual: Table = table[:, alike].mean(axis=1)
        self.more: Table = table - self.usual[:, None]
        self.distance = _location(self.more)
        flat, self.slopes = self.more, np.zeros(self.columns)
        if lost:
            flat, self.slopes = _without_trend(self.more)
        if self.rows < 2 or freedom < 1:
            return
        inflation = self._inflation(pooled, self.distance[alike])
        share = (1 + 1 / alike.size) * inflation
        self.error = math.sqrt((pooled + self.floor2) * share)
        self.own_error = np.sqrt((_error2(flat, lost) + self.floor2) * inflation)
        bias = _BIAS * (1 - 2 / self.columns)
        self.limit = _t_quantile(1 - _STEADY / self.columns, freedom) + bias
        self.own_limit = _t_quantile(1 - _OWN, kept - 1)
        needed = max(
            _detectable(self.limit, freedom), _detectable(self.own_limit, kept - 1)
        )
        # The noise is an estimate, and may be larger.
        self.visible_s = self.error * needed * (1 + 1 / math.sqrt(2 * freedom))

    def _pooled(self, table: Table, lost: int, kept: int) -> tuple[float, int]:
        """Squared standard error of a column's mean, and its degrees of freedom.

        The noise of all columns is pooled.
        """
        columns = self.columns
        flat = _without_trend(table)[0] if lost else table
        rest = flat - flat.mean(axis=1, keepdims=True)
        self.rest: Table = rest - rest.mean(axis=0)
        if self.rows < 2:
            return 0.0, 0
        pooled = float(_error2(self.rest, lost).mean()) * columns / (columns - 1)
        if columns > 2:
            return pooled, (columns - 1) * (kept - 1)
        # With two columns, each column alone has twice the information of their
        # difference.
        return max(pooled, float(_error2(flat, lost).mean())), 2 * (kept - 1)

    def _inflation(self, error2: float, alike: Table) -> float:
        """Factor by which errors of means exceed those of independent noise."""
        factor = 1.0
        rest = self.rest
        if self.rows >= 10:
            lagged = float((rest[1:] * rest[:-1]).sum() / max((rest**2).sum(), 1e-300))
            extra = lagged - 2 / math.sqrt(rest.size)
            if extra > 0:
                extra = min(extra, 0.95)
                factor = (1 + extra) / (1 - extra)
        if alike.size >= 4:
            spread = float(np.var(alike, ddof=1))
            ratio = spread / (_HALF_SPREAD**2 * (error2 + self.floor2) * factor)
            if ratio > _significant_ratio(alike.size - 1):
                factor *= ratio
        return factor

    def is_trend(self, late: NDArray[Any]) -> bool:
        """True if the loss of the first late column grows or falls over the window."""
        column = int(np.argmax(np.where(late.any(axis=0), self.distance, -np.inf)))
        change = abs(float(self.slopes[column])) * (self.rows - 1)
        error = float(self.own_error[column]) * math.sqrt(12)
        return bool(change > max(0.8 * float(self.distance[column]), 6 * error))


def _steady(table: Table, noise: _Noise, least_s: float) -> NDArray[Any]:
    """Mask of the late values of the columns that are late throughout."""
    rows = table.shape[0]
    nobody = np.zeros(table.shape, bool)
    if not math.isfinite(noise.visible_s):
        return nobody
    wins = (noise.more > 0).sum(axis=0)
    is_often = wins >= rows / 2 + 0.82 * math.sqrt(rows) * (rows > 3)
    is_sure = (
        noise.is_slow_half
        & (noise.distance >= least_s)
        & (noise.distance > noise.limit * noise.error)
        & (noise.distance > noise.own_limit * noise.own_error)
        & is_often
    )
    if not is_sure.any():
        return nobody
    # Also other columns whose loss is nearer to the least of these than to zero.
    least = float(noise.distance[is_sure].min())
    is_late = is_sure | (noise.is_slow_half & (noise.distance > least / 2))
    evidence = np.abs(noise.distance - least / 2) * least / noise.error**2
    if evidence[~is_sure & noise.is_slow_half].min(initial=math.inf) < _CLEAR:
        noise.visible_s = math.inf
        return nobody
    late: NDArray[Any] = is_late & (noise.more >= noise.distance / 2)
    return late


def _detectable(limit: float, freedom: int) -> float:
    """Loss in standard errors that passes `limit` in 99 % of the windows."""
    return limit + _POWER * math.sqrt(1 + limit**2 / (2 * freedom))


@lru_cache(maxsize=1024)
def _t_quantile(level: float, freedom: int) -> float:
    """Quantile of Student's t distribution; Hill's algorithm 396 (CACM 1970)."""
    if freedom < 1:
        return math.inf
    two_sided = 2 * (1 - level)
    if freedom == 1:
        return 1 / math.tan(math.pi * two_sided / 2)
    if freedom == 2:
        return math.sqrt(2 / (two_sided * (2 - two_sided)) - 2)
    n = float(freedom)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * two_sided) ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(two_sided / 2)
        y = x**2
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y**2)
    else:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3)
              + 0.5 / (n + 4)) * y - 1) * (n + 1) / (n + 2) + 1 / y  # fmt: skip
    return math.sqrt(n * y)


def _significant_ratio(freedom: int) -> float:
    """0.999 quantile of chi squared divided by its freedom (Wilson and Hilferty
    1931).
    """
    share = 2 / (9 * freedom)
    return (1 - share + 3.09 * math.sqrt(share)) ** 3


# ---- a few steps ----


def _outstanding(
    table: Table, floor_s: float, least_s: float
) -> tuple[NDArray[Any], Pattern]:
    """Mask of the values that are separated from all others, and their pattern."""
    rows, columns = table.shape
    nobody = np.zeros(table.shape, bool)
    rest = _without_history(table)
    if rest is None:
        return nobody, "none"
    ordered = np.sort(rest.ravel())[::-1]
    num_free = rows * (columns - 1) if columns > 2 else 2 * (rows - 1)
    most_common = rows // _COMMON
    most = rows * (columns // 2) + most_common * (columns - columns // 2)
    cut = _cut_of(ordered, num_free, floor_s, least_s, most)
    if cut is None:
        return nobody, "none"
    late = rest >= cut
    is_common = late.sum(axis=1) > columns // 2
    if is_common.sum() * _COMMON > late.any(axis=1).sum():
        return nobody, "none"
    late[is_common] = False
    return late, pattern_of(late)


def _without_history(table: Table) -> Table | None:
    """The table without the fast half of each rank's steps and of each step's ranks.

    None if the window is too short for that.
    """
    rows, columns = table.shape
    if rows >= 4:
        rest: Table = table - np.sort(table, axis=0)[: rows // 2].mean(axis=0)
    elif columns >= 4:
        rest = table
    else:
        return None
    if columns >= 3:
        rest = rest - _fast_of_row(rest)[:, None]
    return rest


def _cut_of(
    ordered: Table, num_free: int, floor_s: float, least_s: float, most: int
) -> float | None:
    """The smallest separated value; None if no gap is large enough. `ordered`
    descends.
    """
    heights = ordered - ordered[-1] + floor_s
    ratios = heights[:-1] / heights[1:]
    for i in np.argsort(-ratios[:most], kind="stable")[:8]:
        above = int(i) + 1
        num_below = num_free - above
        gap = ordered[i] - ordered[i + 1]
        if num_below < 3 or ordered[i] < least_s or gap < least_s / 2:
            continue
        if ratios[i] >= _needed_ratio(heights[above:], above, ordered.size):
            return float(ordered[i])
    return None


def _needed_ratio(below: Table, above: int, num_values: int) -> float:
    """The least ratio of heights at a gap that chance does not explain.

    A height is the distance from the smallest value. The ratio is fitted to simulations
    of 4 to 3,200 values, so that normal, log-normal and exponential noise, and
    Student's t with 4 degrees of freedom, pass it in 1 of 2,000 tables. Several values
    above one gap are rarer than a single value. A single value needs a larger ratio if
    the tail of the others is heavy, or if they are too few to estimate the tail. Even a
    light tail may be the beginning of a heavy tail: of 200 such t values the largest is
    10 times the noise in 1 table of 70, while the others look normal. So a single value
    has a lower bound.
    """
    few = 85 / num_values * (1 + (8 / num_values) ** 2)
    discount = max(float(above) ** -0.6, 0.45 if num_values < 40 else 0.28)
    light = (1.2 + few) * discount
    # More values give more information about a tail.
    slope = 1.5 if num_values < 300 else 6.0
    heavy = _tail_weight(below, num_values) - _HEAVY
    needed = light * max(1.0, min(5.0, 1 + slope * heavy) / above)
    if above == 1:
        needed = max(needed, 6.0 if num_values < 160 else 2.3 + 110 / num_values)
    return 1 + float(needed)


def _tail_weight(ordered: Table, num_values: int) -> float:
    """Ratio of the largest values to their expected places under normal noise.

    The mean over six values, because the largest alone says little about a tail.
    `ordered` descends.
    """
    middle = float(np.median(ordered))
    spread = 1.4826 * float(np.median(np.abs(ordered - middle)))
    number = max(1, min(6, ordered.size // 2))
    places = (ordered[:number] - middle) / max(spread, 1e-12)
    return float((places / _normal_places(number, num_values)).mean())


@lru_cache(maxsize=1024)
def _normal_places(number: int, num_values: int) -> Table:
    """Expected places of the largest of `num_values` normal values, in sd (Blom
    1958).
    """
    at = (np.arange(number) + 0.6) / num_values
    return np.array([NormalDist().inv_cdf(1 - each) for each in at])


def often_late(late: NDArray[Any]) -> NDArray[Any]:
    """Columns that are late in most rows."""
    often: NDArray[Any] = late.sum(axis=0) >= _MOST * late.shape[0]
    return often


def pattern_of(late: NDArray[Any]) -> Pattern:
    """Distribution of late values over rows and columns."""
    rows = late.shape[0]
    by_row, by_column = late.any(axis=1).sum(), late.sum(axis=0)
    if rows < _FEWEST_STEPS:
        return "transient"
    is_often = often_late(late)
    inside, outside = by_column[is_often].sum(), by_column[~is_often].sum()
    if is_often.any() and outside <= inside / 2:
        return "steady"
    if by_row >= _MOST * rows and (by_column > 0).sum() >= 2:
        return "rotating"
    return "transient"


# ---- in turn ----


def _in_turn(
    table: Table, noise: _Noise, least_s: float
) -> tuple[NDArray[Any], Pattern]:
    """Mask of the late values if another rank is late in each step."""
    rows, columns = table.shape
    nobody = np.zeros(table.shape, bool)
    if rows < _FEWEST_IN_TURN:
        return nobody, "none"
    # With few ranks, their mean in a step would follow the late rank.
    rest = table - np.sort(table, axis=0)[: rows // 2].mean(axis=0)
    if columns >= 8:
        rest = rest - _fast_of_row(rest)[:, None]
    largest = np.argsort(-rest, axis=None, kind="stable")[:rows]
    late = np.zeros(rest.size, bool)
    late[largest] = True
    late = late.reshape(rest.shape)
    hit = int(late.any(axis=1).sum())
    chance = _chance_of_rows(hit, rows, columns)
    lost = float(np.median(rest[late]) - np.median(rest[~late]))
    most = Counter(map(int, np.nonzero(late)[1])).most_common(1)[0][1]
    if lost < least_s or most > _MOST * rows or chance > _SUSPECT:
        return nobody, "none"
    if chance > _IN_TURN:
        noise.visible_s = math.inf
        return nobody, "none"
    return late, "rotating"


@lru_cache(maxsize=4096)
def _chance_of_rows(hit: int, rows: int, columns: int) -> float:
    """Probability that `rows` random cells of a table lie in at least `hit` rows."""
    total = math.comb(rows * columns, rows)
    ways = 0
    for exact in range(hit, rows + 1):
        inside = sum(
            (-1) ** i * math.comb(exact, i) * math.comb(columns * (exact - i), rows)
            for i in range(exact)
        )
        ways += math.comb(rows, exact) * inside
    return ways / total
