"""Parameters of a comparison, as text for the report and as a command line."""

import shlex
from dataclasses import dataclass

from fairlead.sim.compare import split_policies
from fairlead.sim.generate import GeneratorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedTraces:
    """Parameters of the generated traces."""

    kind: GeneratorKind
    jobs: int
    tenants: int
    duration_factor: float
    seeds: int
    """number of seeds: 0, 1, …"""
    loads: tuple[float, ...]
    """arrivals per hour; empty if all jobs arrive at the start"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """Options that determine the results of a comparison, with names and files as given."""

    policies: tuple[str, ...]
    traces: GeneratedTraces | str
    """generator parameters, or the trace file"""
    cluster: str
    speeds: str
    mechanism: str | None = None
    round_s: float | None = None
    restore_cost_s: float = 0.0
    window: str | None = None
    skip_impossible: bool = False

    def descriptions(self) -> dict[str, str]:
        """Return parameter → its value as text."""
        rows = {"policies": "; ".join(self.policies), "cluster": self.cluster}
        rows["speeds"] = self.speeds
        if isinstance(self.traces, str):
            rows["trace"] = self.traces
        else:
            rows |= _traces_in_words(self.traces)
        rows["mechanism"] = self.mechanism or "default of each policy"
        rows["round"] = (
            "default of the mechanism" if self.round_s is None else f"{self.round_s:g} s"
        )
        rows["restore cost"] = f"{restore_cost_text(self.restore_cost_s)} per restart of a job"
        if self.window is not None:
            rows["window"] = f"only jobs {self.window} are counted"
        return rows

    def command(self) -> str:
        """Return the command line that reproduces the results."""
        joined = ",".join(self.policies)
        together = split_policies([joined]) == self.policies
        words = ["fairlead", "compare"]
        for policy in [joined] if together else self.policies:
            words += ["--policies", policy]
        options = {
            **_trace_options(self.traces),
            "--cluster": self.cluster,
            "--speeds": self.speeds,
            "--mechanism": self.mechanism,
            "--round": self.round_s,
            "--restore-cost": self.restore_cost_s,
            "--window": self.window,
        }
        for option, value in options.items():
            if value is not None:
                words += [option, _text(value)]
        if self.skip_impossible:
            words.append("--skip-impossible")
        return shlex.join(words)


def restore_cost_text(seconds: float) -> str:
    """Return a restore cost for captions: ``20 s``, or ``nothing``."""
    return f"{seconds:g} s" if seconds else "nothing"


def _traces_in_words(traces: GeneratedTraces) -> dict[str, str]:
    seeds = "seed 0" if traces.seeds == 1 else f"seeds 0 to {traces.seeds - 1}"
    rows = {
        "traces": f"{traces.kind}, {_count(traces.jobs, 'job')} of"
        f" {_count(traces.tenants, 'tenant')}, Gavel's"
        f" durations × {traces.duration_factor:g}, {seeds}; the same for every policy"
    }
    if traces.loads:
        rows["loads"] = f"{', '.join(map(_text, traces.loads))} jobs per hour"
    return rows


def _trace_options(traces: GeneratedTraces | str) -> dict[str, object]:
    if isinstance(traces, str):
        return {"--trace": traces}
    return {
        "--seeds": traces.seeds,
        "--loads": ",".join(map(_text, traces.loads)) or None,
        "--jobs": traces.jobs,
        "--kind": traces.kind,
        "--tenants": traces.tenants,
        "--duration-factor": traces.duration_factor,
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _text(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
