"""Jobs: the training runs that tenants submit."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairlead.model.errors import InputError, require

DEFAULT_TENANT = "default"
DEADLINE_TOLERANCE = 1e-6
"""relative rounding error up to which a deadline counts as met"""
OMIT_IF_EMPTY = {"written": "unless empty"}
"""metadata of a field that the event log omits while it is empty"""
OMIT_IF_NONE = {"written": "unless None"}
"""metadata of a field that the event log omits while it is None"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run: a gang of equal tasks that has ``total_steps`` to make.

    A job is entitled in proportion to its weight: weight 2 is twice the normalised speed. It may
    use ``accelerators`` (None: all). ``min_gang`` and ``max_gang`` bound an elastic gang. Jobs
    with the same ``multijob`` are one search of which the best survives. ``gangs`` holds the
    number of devices on accelerators where it differs from the gang; if every accelerator of
    the job has a number, the gang is that of the first.
    """

    id: str
    workload: str
    total_steps: float
    gang: int = 1
    arrival_at: float = 0.0
    tenant: str = DEFAULT_TENANT
    weight: float = 1.0
    priority: int = 0
    deadline_s: float | None = None
    min_gang: int | None = None
    max_gang: int | None = None
    accelerators: tuple[str, ...] | None = None
    memory_gib: float | None = None
    utilization: float | None = None
    multijob: str | None = None
    duration_s: float | None = None
    gangs: Mapping[str, int] = field(default_factory=dict, hash=False, metadata=OMIT_IF_EMPTY)
    across_tenants: bool = field(default=False, metadata=OMIT_IF_EMPTY)
    """an admin set its weight or priority, which count against the jobs of all tenants"""
    declared_speeds: Mapping[str, float] = field(
        default_factory=dict, hash=False, metadata=OMIT_IF_EMPTY
    )
    """accelerator → steps per second that its tenant expects there: a prior, which measurements
    overrule"""
    open_ended: bool = field(default=False, metadata=OMIT_IF_EMPTY)
    """it declares no steps: ``total_steps`` is arbitrary, policies use an estimate"""
    max_copies: int | None = field(default=None, metadata=OMIT_IF_NONE)
    """copies that may train at once on different nodes; None: not declared, as many as a mechanism
    that forks all jobs likes"""

    def __post_init__(self) -> None:
        if self.gangs:
            self._drop_default_gangs()
        if not self.id:
            raise InputError("missing", fix="expected an id for every job", field="job_id")
        require(self.gang >= 1, "gang", self.gang, "at least 1")
        require(_positive(self.total_steps), "total_steps", self.total_steps, "above 0")
        require(_positive(self.weight), "weight", self.weight, "above 0 and finite")
        require(0 <= self.arrival_at < math.inf, "arrival_s", self.arrival_at, "0 or more")
        for name, speed in self.declared_speeds.items():
            require(_positive(speed), "speeds", f"{name}={speed}", "above 0 and finite")
        copies = self.max_copies
        require(copies is None or copies >= 1, "max_copies", copies, "at least 1")
        for name in ("deadline_s", "memory_gib", "duration_s"):
            value = getattr(self, name)
            require(value is None or _positive(value), name, value, "above 0")
        require(
            self.utilization is None or 0 <= self.utilization <= 1,
            "utilization",
            self.utilization,
            "between 0 and 1",
        )
        low = self.min_gang if self.min_gang is not None else self.gang
        high = self.max_gang if self.max_gang is not None else self.gang
        require(1 <= low <= self.gang, "min_gang", low, f"from 1 to the gang, {self.gang}")
        require(high >= self.gang, "max_gang", high, f"at least the gang, {self.gang}")

    def gang_on(self, accelerator: str) -> int:
        """Return the number of devices that the job needs at once on an accelerator."""
        return self.gangs.get(accelerator, self.gang)

    def _drop_default_gangs(self) -> None:
        """Drop numbers in ``gangs`` that equal the gang, so that equal jobs compare equal."""
        names = self.accelerators or ()
        for accelerator, count in self.gangs.items():
            require(count >= 1, "accelerators", f"{accelerator}={count}", "1 device or more")
            require(
                accelerator in names, "accelerators", accelerator, "one of the job's accelerators"
            )
        if names and all(name in self.gangs for name in names):
            object.__setattr__(self, "gang", self.gangs[names[0]])
        others = {name: self.gangs[name] for name in names if self.gang_on(name) != self.gang}
        object.__setattr__(self, "gangs", others)
        if others and (self.min_gang, self.max_gang) != (None, None):
            raise InputError(
                "numbers of devices together with an elastic gang",
                fix="omit the numbers, or min_gang and max_gang",
                field="accelerators",
            )


def parse_accelerators(listed: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Parse entries such as ``v100`` and ``k80=2`` into accelerators and numbers of devices.

    Entries without a number have none in the result. Errors name the field ``accelerators``.
    """
    gangs: dict[str, int] = {}
    names: list[str] = []
    for entry in listed:
        name, equals, count = (part.strip() for part in entry.partition("="))
        require(bool(name), "accelerators", entry, "an accelerator's name, e.g. v100 or k80=2")
        again = name in gangs or (equals and name in names)
        require(not again, "accelerators", entry, "each accelerator once")
        names.append(name)
        if equals:
            good = count.isascii() and count.isdecimal() and len(count) < 7 and int(count) >= 1
            require(good, "accelerators", entry, f"a whole number of devices, e.g. {name}=2")
            gangs[name] = int(count)
    return tuple(names), gangs


def format_accelerators(job: Job) -> tuple[str, ...] | None:
    """Return a job's accelerators in the form that ``parse_accelerators`` reads."""
    if job.accelerators is None:
        return None
    gangs = job.gangs
    return tuple(f"{name}={gangs[name]}" if name in gangs else name for name in job.accelerators)


def per_accelerator_gangs_error(job_id: str) -> InputError:
    """Return the error for a job whose gang differs by accelerator, which the policy ignores."""
    return InputError(
        f"different numbers of devices for different accelerators (job {job_id!r}), which this"
        " policy does not support",
        fix="omit the numbers, or choose a policy that supports them",
        field="accelerators",
    )


def _positive(value: float) -> bool:
    return 0 < value < math.inf
