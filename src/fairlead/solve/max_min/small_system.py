"""A few equations, solved without arrays."""

from fairlead.compiled import compiled

_SINGULAR = 1e-12


def solve_small_system(rows: list[list[float]]) -> list[float] | None:
    """Return the solution of a few equations, each its coefficients and then its right side.

    None if they are singular. Faster than arrays up to about ten equations.
    """
    if compiled is not None:
        return compiled.solve_small(rows)
    size = len(rows)
    for i in range(size):
        most, p = 0.0, i
        for r in range(i, size):
            here = abs(rows[r][i])
            if here > most:
                most, p = here, r
        if most < _SINGULAR:
            return None
        pivot = rows[p]
        rows[p], rows[i] = rows[i], pivot
        scale = 1.0 / pivot[i]
        for r in range(i + 1, size):
            row = rows[r]
            factor = row[i] * scale
            if factor:
                for c in range(i + 1, size + 1):
                    row[c] -= factor * pivot[c]
    solution = [0.0] * size
    for i in range(size - 1, -1, -1):
        row = rows[i]
        rest = row[size]
        for j in range(i + 1, size):
            rest -= row[j] * solution[j]
        solution[i] = rest / row[i]
    return solution
