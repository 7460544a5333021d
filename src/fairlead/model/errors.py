"""The error tree; each error has a stable code that the API and the command line map."""


class FairleadError(Exception):
    """Base of all errors; ``code`` is stable across releases."""

    code: str = "error"


class InputError(FairleadError):
    """A file or value that cannot be used: names its place, its field, the problem and the fix.

    Reads ``file:line: field: problem: expected …``.
    """

    code = "input"

    def __init__(
        self,
        problem: str,
        *,
        fix: str,
        source: str | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        self.problem = problem
        self.fix = fix
        self.source = source
        self.line = line
        self.field = field
        super().__init__(str(self))

    def __str__(self) -> str:
        place = self.source or ""
        if self.line is not None:
            place += f":{self.line}"
        return ": ".join(part for part in (place, self.field, self.problem, self.fix) if part)

    def within(
        self, *, source: str | None = None, line: int | None = None, field: str | None = None
    ) -> "InputError":
        """Return the same error with the missing parts of its place filled in."""
        return type(self)(
            self.problem,
            fix=self.fix,
            source=self.source if self.source is not None else source,
            line=self.line if self.line is not None else line,
            field=self.field if self.field is not None else field,
        )


class ImpossibleJobError(InputError):
    """A job of a trace or instance that can never run on the cluster."""

    def or_skip(self, option: str) -> InputError:
        """Return the error with an option that skips such jobs as another fix."""
        comma = "" if self.fix.endswith("?") else ","
        return InputError(
            self.problem,
            fix=f"{self.fix}{comma} or skip such jobs with {option}",
            source=self.source,
            line=self.line,
            field=self.field,
        )


class UsageError(FairleadError):
    """A name, option or combination that does not exist or make sense; exit code 2."""

    code = "usage"


class SolveError(FairleadError):
    """The solver could not return a certified answer."""

    code = "solve"

    def __init__(self, problem: str, *, status: str, n_classes: int) -> None:
        self.status = status
        self.n_classes = n_classes
        super().__init__(f"{problem} (solver status {status}, {n_classes} classes)")


class ProtocolError(FairleadError):
    """An event that contradicts the scheduler's state; it changes nothing."""

    code = "protocol"


def require(holds: bool, field: str, value: object, expected: str) -> None:
    """Raise InputError about the value of a field unless a condition holds."""
    if not holds:
        raise InputError(f"not allowed: {value!r}", fix=f"expected {expected}", field=field)
