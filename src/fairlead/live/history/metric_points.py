"""History of one metric: a bounded number of points, spread evenly over all reports."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Point(NamedTuple):
    """One reported value of a metric."""

    at: float
    steps: float
    value: float

    @classmethod
    def of(cls, at: float, steps: float, value: float) -> "Point":
        """Return a point exact to milliseconds and seven digits, so that documents stay small."""
        return cls(round(at, 3), steps, float(f"{value:.7g}"))


class MetricPoints:
    """Points of one metric.

    Keeps the first and the last report. Between them every group of ``2 * stride`` reports
    leaves its least and its greatest value, in the order of their times. Once there are more
    points than the limit, two groups become one and the stride doubles.
    """

    def __init__(self) -> None:
        self.stride = 1
        self.last: Point | None = None
        self._kept: list[Point] = []
        """first report, then two points per complete group"""
        self._group: list[Point] = []
        """least and greatest value of the group that is not complete"""
        self._group_size = 0

    def add(self, point: Point, limit: int) -> None:
        """Add a report and keep at most about ``limit`` points; ignore a repeated report."""
        if self.last is not None and point.at <= self.last.at:
            return
        self.last = point
        if not self._kept:
            self._kept.append(point)
            return
        self._group = _extremes([*self._group, point])
        self._group_size += 1
        if self._group_size == 2 * self.stride:
            self._kept += self._group
            self._group, self._group_size = [], 0
        while len(self._kept) + 3 > max(limit, 8):
            self._thin()

    def points(self) -> list[Point]:
        """Return the points in the order of their times."""
        last = [] if self.last is None else [self.last]
        return sorted({*self._kept, *self._group, *last})

    def _thin(self) -> None:
        """Replace two groups by one."""
        first, groups = self._kept[:1], self._kept[1:]
        whole = len(groups) - len(groups) % 4
        kept = list(first)
        for i in range(0, whole, 4):
            kept += _extremes(groups[i : i + 4])
        # A group without a partner begins the next group, of twice the size.
        rest = groups[whole:]
        if rest:
            self._group_size += 2 * self.stride
            self._group = _extremes([*rest, *self._group])
        self._kept = kept
        self.stride *= 2

    def as_json(self) -> dict[str, Any]:
        """Return the points for ``from_json``."""
        return {
            "stride": self.stride,
            "kept": [*map(list, self._kept)],
            "group": [*map(list, self._group)],
            "group_size": self._group_size,
            "last": None if self.last is None else list(self.last),
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "MetricPoints":
        """Return the points that ``as_json`` returned."""
        points = cls()
        points.stride = max(int(saved["stride"]), 1)
        points._kept = [Point(*map(float, entry)) for entry in saved["kept"]]
        points._group = [Point(*map(float, entry)) for entry in saved["group"]]
        points._group_size = int(saved["group_size"])
        points.last = None if saved["last"] is None else Point(*map(float, saved["last"]))
        return points


def _extremes(points: Sequence[Point]) -> list[Point]:
    """Return the points of the least and the greatest value, the earlier one first."""
    if len(points) <= 2:
        return sorted(points)
    least = min(points, key=lambda point: point.value)
    greatest = max(points, key=lambda point: point.value)
    if least is greatest:  # all values are equal
        return [points[0], points[-1]]
    return sorted((least, greatest))
