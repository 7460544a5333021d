"""What a comparison was asked for: in words for the reader, and as a command to run it again."""

import shlex
from dataclasses import dataclass

from fairlead.sim.compare import split_policies
from fairlead.sim.generate import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Which traces to generate."""

    kind: Kind
    jobs: int
    tenants: int
    duration_factor: float
    seeds: int
    """how many; they are 0, 1, …"""
    loads: tuple[float, ...]
    """arrivals per hour; none where all jobs are there at the start"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of a comparison that its results depend on, names and files as given."""

    policies: tuple[str, ...]
    traces: Generated | str
    """what to generate, or the file to read"""
    cluster: str
    speeds: str
    mechanism: str | None = None
    round_s: float | None = None
    restore_cost_s: float = 0.0
    window: str | None = None

    def descriptions(self) -> dict[str, str]:
        """Return each thing that was run → what it was."""
        said = {"policies": "; ".join(self.policies), "cluster": self.cluster}
        said["speeds"] = self.speeds
        if isinstance(self.traces, str):
            said["trace"] = self.traces
        else:
            said |= _traces_in_words(self.traces)
        said["mechanism"] = self.mechanism or "each policy's own"
        said["round"] = "the mechanism's own" if self.round_s is None else f"{self.round_s:g} s"
        said["restore cost"] = f"{self.restore_cost_s:g} s whenever a job starts again"
        if self.window is not None:
            said["window"] = f"only jobs {self.window} are reported"
        return said

    def command(self) -> str:
        """Return the command line that gives the same results."""
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
        return shlex.join(words)


def _traces_in_words(traces: Generated) -> dict[str, str]:
    seeds = "seed 0" if traces.seeds == 1 else f"seeds 0 to {traces.seeds - 1}"
    said = {
        "traces": f"{traces.kind}, {traces.jobs} jobs of {traces.tenants} tenants, Gavel's"
        f" durations × {traces.duration_factor:g}, {seeds}; the same for every policy"
    }
    if traces.loads:
        said["loads"] = f"{', '.join(map(_text, traces.loads))} jobs per hour"
    return said


def _trace_options(traces: Generated | str) -> dict[str, object]:
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


def _text(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
