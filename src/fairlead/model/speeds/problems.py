"""Errors of jobs whose speed a table lacks."""

from collections.abc import Sequence

from fairlead.model.errors import InputError


def unlisted_workload(workload: str, workloads: Sequence[str], source: str) -> InputError:
    """Return the error of a job whose workload the table lacks, or that names none."""
    some = f"one of the {len(workloads)} workloads (e.g. {workloads[0]!r})"
    if not workload:
        return InputError(
            "missing: needed to look up the job's speed",
            fix=f"expected {some} of the speed table{_label(source)}",
            field="workload",
        )
    return InputError(
        f"no workload {workload!r} in the speed table{_label(source)}",
        fix=f"expected {some}, or add rows for it",
        field="workload",
    )


def unlisted_gang(workload: str, gang: int, gangs: Sequence[int], source: str) -> InputError:
    """Return the error of a job with a gang that the table lacks."""
    return InputError(
        f"no gang of {gang} for {workload!r} in the speed table{_label(source)}",
        fix=f"expected one of {', '.join(map(str, gangs))}, or add rows for it",
        field="gang",
    )


def _label(source: str) -> str:
    return f" {source}" if source else ""
