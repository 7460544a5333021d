"""A comparison of policies to simulate, as users ask for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.data import DEFAULT_CLUSTER, DEFAULT_SPEEDS
from fairlead.files import check_trace, parse_cluster
from fairlead.files.bundled import DEFAULT_TRACE, SPEEDS, bundled_text
from fairlead.files.parsing.text import SourceText
from fairlead.files.speeds.prior import simulated_speeds
from fairlead.files.traces.jobs import Trace
from fairlead.files.traces.trace import parse_trace
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.model.errors import InputError
from fairlead.sim.compare import Comparison, default_restore_cost_s, split_policies
from fairlead.sim.generate import GeneratorKind, Recipe
from fairlead.sim.report.parameters import ComparisonOptions, GeneratedTraces

_MAX_DEVICES = 5_000
_DURATION_FACTOR = 0.1
"""factor on the durations of generated jobs, as in ``fairlead compare``"""
_KIND: GeneratorKind = "continuous-single"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """Policies, and the trace and cluster to compare them on."""

    policies: tuple[str, ...]
    trace: str | None = None
    """content of a trace; None: the bundled or a generated one"""
    bundled: bool = False
    """whether to use the bundled trace"""
    jobs: int = 100
    jobs_per_hour: float = 3.0
    seed: int = 0
    cluster: str = DEFAULT_CLUSTER
    speeds: str = DEFAULT_SPEEDS

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "SimulationRequest":
        """Return the request that ``dataclasses.asdict`` returned."""
        return cls(**{**saved, "policies": tuple(saved["policies"])})

    def comparison(self) -> tuple[Comparison, ComparisonOptions]:
        """Return the comparison after all checks; InputError or UsageError for a bad request."""
        if self.speeds not in SPEEDS:
            fix = f"expected one of {', '.join(SPEEDS)}"
            raise InputError(f"no bundled table {self.speeds!r}", fix=fix, field="speeds")
        policies = split_policies(self.policies)
        mechanisms = [create_mechanism(name, None, None) for name in policies]
        cluster = parse_cluster(self.cluster, max_devices=_MAX_DEVICES)
        speeds = simulated_speeds(self.speeds, cluster.accelerators)
        trace = self._parsed_trace()
        recipe = Recipe(
            kind=_KIND, jobs=self.jobs, tenants=3, duration_factor=_DURATION_FACTOR, window=None
        )
        generated = trace is None
        comparison = Comparison(
            policies=policies,
            cluster=cluster,
            speeds=speeds,
            jobs=() if trace is None else trace.jobs,
            recipe=recipe if generated else None,
            seeds=(self.seed,) if generated else (None,),
            loads=(self.jobs_per_hour,) if generated else (None,),
            restore_cost_s=default_restore_cost_s(mechanisms),
        )
        capabilities = [capabilities_of(mechanism) for mechanism in mechanisms]
        supported = Capabilities(
            mixed_gangs=all(each.mixed_gangs for each in capabilities),
            per_accelerator_gangs=all(each.per_accelerator_gangs for each in capabilities),
        )
        jobs = comparison.trace(next(comparison.runs())) if trace is None else trace
        check_trace(jobs, speeds, cluster, supported)
        return comparison, self._options(policies, comparison.restore_cost_s)

    def _parsed_trace(self) -> Trace | None:
        """Return the uploaded or bundled trace; None: generate one."""
        if self.trace is None:
            return parse_trace(bundled_text(DEFAULT_TRACE)) if self.bundled else None
        if self.bundled:
            fix = "omit one of them"
            raise InputError("not allowed beside the bundled trace", fix=fix, field="trace")
        return parse_trace(SourceText("trace", self.trace))

    def _options(self, policies: tuple[str, ...], restore_cost_s: float) -> ComparisonOptions:
        traces = GeneratedTraces(
            kind=_KIND,
            jobs=self.jobs,
            tenants=3,
            duration_factor=_DURATION_FACTOR,
            seeds=1,
            loads=(self.jobs_per_hour,),
        )
        return ComparisonOptions(
            policies=policies,
            traces=DEFAULT_TRACE if self.bundled else "uploaded" if self.trace else traces,
            cluster=self.cluster,
            speeds=self.speeds,
            restore_cost_s=restore_cost_s,
        )
