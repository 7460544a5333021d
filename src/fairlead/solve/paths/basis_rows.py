"""Rows of the equations that determine prices."""

_INDEPENDENT = 1e-6


def exchange(width: int, j: int, other: int, ratio: float) -> list[float]:
    """Return one device of j for devices of another resource that cost the same."""
    return [1.0 if i == j else -ratio if i == other else 0.0 for i in range(width)]


class IndependentRows:
    """Linearly independent rows, in echelon form."""

    def __init__(self) -> None:
        self._echelon: list[tuple[int, list[float]]] = []

    @property
    def rank(self) -> int:
        """Number of rows."""
        return len(self._echelon)

    def add(self, row: list[float]) -> bool:
        """Add a row if it is independent of the others; return whether it is."""
        for pivot, other in self._echelon:
            factor = row[pivot]
            if factor:
                row = [a - factor * b for a, b in zip(row, other, strict=True)]
        pivot = max(range(len(row)), key=lambda j: abs(row[j]))
        if abs(row[pivot]) < _INDEPENDENT:
            return False
        self._echelon.append((pivot, [a / row[pivot] for a in row]))
        return True
