"""One stage of a water-filling over options: the greatest theta whose levels fit."""

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import SolveError
from fairlead.solve.options.program import OptionProgram
from fairlead.solve.options.vertex import OptionVertex
from fairlead.solve.paths.path import Path

NEAR_TOLERANCE = 1e-9  # relative: levels this close are the same
_CLOSE = 1e-7  # relative: chords this short are all rounding
_BEND = 1e-2  # relative to caps: a path that bends less is followed by its tangents
_KINK = 1e-2  # relative: rates change by more where a class reaches its cap
_MAX_PROGRAMS = 400
_MAX_NEWTON = 20
_PAID = 1e-13  # relative: costs this close are the same
# Levels are known up to rounding; all of them held exactly may just not fit.
SLACKS = (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7)


class Climb:
    """A climb from ``theta``, whose levels are reached.

    ``by_prices``: prices tell how far to go along a path that bends, instead of its tangents.
    """

    def __init__(
        self, program: OptionProgram, path: Path, theta: float, *, by_prices: bool = False
    ) -> None:
        self._program, self._problem = program, program.problem
        self._path, self._theta, self._by_prices = path, theta, by_prices

    def greatest(self, guess: float = 0.0) -> tuple[float, OptionVertex]:
        """Return the greatest feasible theta, and the vertex that proves it.

        From a theta whose levels are reached the program follows the path's tangent. Further on
        it is asked along the chord from there, which always has a solution and tells whether
        the levels at the chord's end fit. Where the path hardly bends on the way to what was
        reached, its tangent there comes closest (Newton's method). The tangent at ``guess``, if
        that is above the last stage's end, comes first; ``by_prices`` a guess past the path's top
        begins with the chord to the top.
        """
        path, search = self._path, _ThetaSearch(self._theta, self._path.top)
        at, tangent = self._start(guess)
        cap = np.maximum(self._problem.cap, 1e-300)
        parts, part = iter([1 - slack for slack in SLACKS[1:]]), 1.0
        for _ in range(_MAX_PROGRAMS):
            low, level = search.low, path.level(at) * part
            rate = self.rate(at) if tangent else (level - path.level(low) * part) / (at - low)
            least = low * (1 - NEAR_TOLERANCE) - at
            vertex = self._program.raise_levels(level, rate, least, path.top - at)
            if vertex is None:
                if at > low * (1 + _CLOSE):
                    at, tangent = search.not_at(at)
                    continue
                # Levels that were reached do not fit, by a rounding error: ask for a little less.
                part = next(parts, 0.0)
                if not part and search.retreats():
                    # On a steep path levels may differ where thetas hardly do.
                    at, tangent, part = search.low, True, 1.0
                elif not part:
                    break
                continue
            rise = self._rise(vertex, level, rate)
            reached, line = at + rise, level + rate * rise
            bend = (path.level(reached) * part - line) / cap
            fits, above = bool(bend.max() <= NEAR_TOLERANCE), bool(bend.min() >= -NEAR_TOLERANCE)
            if fits and above:
                beyond = path.rate(reached + NEAR_TOLERANCE * max(reached, at))
                top = reached >= path.top * (1 - 1e-12)
                if top or (np.abs(beyond - rate) <= _KINK * np.abs(rate)).all():
                    return self._back_to(line, rate, reached, low if part < 1 else 0.0), vertex
            if at <= low * (1 + _CLOSE) and (
                reached <= low * (1 + NEAR_TOLERANCE) or search.tight
            ):
                return self._back_to(line, rate, reached, low if part < 1 else 0.0), vertex
            at, tangent = search.next(at, reached, fits=fits)
            if fits and above:
                continue
            end = self._priced_end(vertex, line, reached) if self._by_prices else 0.0
            if search.low < end < search.high:
                at, tangent = end, True
            elif np.abs(bend).max() < _BEND:
                at, tangent = reached, True
        status = "infeasible" if vertex is None else "cycling"
        raise SolveError("no level was found", status=status, n_classes=self._problem.classes)

    def _rise(self, vertex: OptionVertex, level: FloatArray, rate: FloatArray) -> float:
        """Return the rise of a vertex, less where its times do not reach it.

        On steep paths the last bits of a rise are worth more than rounding.
        """
        problem = self._problem
        lack = level + rate * vertex.rise - problem.level(vertex.time)
        if (lack <= NEAR_TOLERANCE * problem.cap).all():
            return vertex.rise
        steep = rate > 0
        return vertex.rise - float((lack[steep] / rate[steep]).max(initial=0.0))

    def _start(self, guess: float) -> tuple[float, bool]:
        """Return the first theta to try, and whether to go along the tangent from there."""
        top = self._path.top
        if self._theta < guess < top:
            return guess, True
        if self._by_prices and guess >= top > self._theta * (1 + _CLOSE):
            return top, False
        at = self._first_guess() if self._theta == 0.0 else self._theta
        return at, at <= self._theta

    def _priced_end(self, vertex: OptionVertex, line: FloatArray, theta: float) -> float:
        """Return the theta whose levels cost at a vertex's prices what those of ``line`` do.

        No levels that fit cost more, so the stage ends there or before. A theta near ``theta`` is
        expected; 0 if Newton's method finds none.
        """
        weight = self._problem.count * np.maximum(vertex.level_price, 0.0)
        worth, path = float((weight * line).sum()), self._path
        for _ in range(_MAX_NEWTON):
            over = float((weight * path.level(theta)).sum()) - worth
            if abs(over) <= _PAID * worth:
                return theta
            incline = float((weight * self.rate(theta)).sum())
            if incline <= 0:
                return 0.0
            theta -= over / incline
            if not self._theta < theta < path.top:
                return 0.0
        return 0.0

    def _back_to(self, line: FloatArray, rate: FloatArray, theta: float, least: float) -> float:
        """Return theta, or just below where the path asks for a little more than ``line`` there.

        Levels that are to be held later should not exceed by rounding what was found to fit. At
        least the theta of ``least`` is returned.
        """
        rises = rate > 0
        over = ((self._path.level(theta) - line)[rises] / rate[rises]).max(initial=0.0)
        return float(max(theta - over, self._theta, least))

    def rate(self, theta: float) -> FloatArray:
        """Return the path's rates beyond theta, past pieces that rounding makes."""
        return self._path.rate(theta * (1 + NEAR_TOLERANCE))

    def _first_guess(self) -> float:
        """Return a theta to begin with: 0, or where levels might just fit if that is past a bend.

        It decides only how many programs are solved.
        """
        problem, path = self._problem, self._path
        alone = (~problem.paired).nonzero()[0]
        alone = alone[np.argsort(problem.gain_first[alone], kind="stable")]
        best = np.zeros(problem.classes, np.int64)  # the option with the greatest gain comes last
        best[problem.first[alone]] = alone
        at_cap = (problem.cap > 0) & (problem.gain_first[best] >= problem.cap)
        device_s = np.where(at_cap, problem.count * problem.size[best], 0.0)
        device_s /= np.maximum(problem.cap, 1e-300)
        place = problem.resource[best]

        def fits(theta: float) -> bool:
            held = np.bincount(place, device_s * path.level(theta), len(problem.capacity))
            return bool((held <= problem.capacity).all())

        low, high = 0.0, path.top
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        # Where everyone's best resource is full, the others often hold about as much again.
        guess = min(2 * low, path.top)
        straight = np.allclose(path.level(guess), path.rate(0.0) * guess, rtol=1e-9)
        return 0.0 if straight else guess


class _ThetaSearch:
    """Bracket of the stage's end: at ``low`` levels fit, above ``high`` they do not."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self._earlier: list[float] = []
        """the values that ``low`` had before"""
        self._stride = 0.0
        self._bounded = False
        self._halve = False

    @property
    def tight(self) -> bool:
        """Whether nothing is left between: a chord to the middle would be too short."""
        return self.high <= self.low * (1 + 2 * _CLOSE)

    def next(self, at: float, reached: float, *, fits: bool) -> tuple[float, bool]:
        """Record the theta that the line at ``at`` reached; return the next theta to try.

        ``fits``: the path asks for no more there than the line. With the place comes whether to
        go along the tangent from there.
        """
        before = self.low
        if reached >= at * (1 - NEAR_TOLERANCE):
            self.low = max(self.low, min(at, reached))
        else:
            self.high, self._bounded = min(self.high, at), True
        if fits:
            self.low = max(self.low, reached)
        if self.low > before:
            self._earlier.append(before)
        if self._bounded:
            self._halve = not self._halve
            inside = self.low < reached < self.high
            return self._chord_to(reached) if self._halve and inside else self._middle()
        if not fits and reached > self.low * (1 + _CLOSE):
            return self._chord_to(min(reached, self.high))
        # Pieces end at caps: look past more of them each time.
        goal = self.low + self._stride
        self._stride = max(2 * self._stride, self.low - before, 1e-12)
        return self._chord_to(min(goal, self.high))

    def retreats(self) -> bool:
        """Return to the theta before ``low``, whose levels do not fit after all; look no further.

        False if there is none.
        """
        if self._earlier:
            self.low = self.high = self._earlier.pop()
            return True
        return False

    def not_at(self, at: float) -> tuple[float, bool]:
        """Record that nothing fits along the tangent at ``at``; return the next theta to try."""
        self.high, self._bounded = min(self.high, at), True
        return self._middle()

    def _middle(self) -> tuple[float, bool]:
        return self._chord_to((self.low + self.high) / 2)

    def _chord_to(self, at: float) -> tuple[float, bool]:
        return (at, False) if at > self.low * (1 + _CLOSE) else (self.low, True)
