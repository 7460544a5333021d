"""Fairlead's own policies, mechanisms and engines, by name: ``module:attribute``.

Other packages register theirs by entry points. Finding those takes as long as loading a policy.
"""

from collections.abc import Mapping

BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "policies": {
        "max-min": "fairlead.policies.max_min:MaxMin",
        "makespan": "fairlead.policies.makespan:Makespan",
        "fifo": "fairlead.policies.fifo:Fifo",
        "isolated": "fairlead.policies.isolated:Isolated",
        "finish-time": "fairlead.policies.finish_time:FinishTime",
        "fairlead": "fairlead.policies.fairlead:Fairlead",
        "hierarchical": "fairlead.policies.hierarchical:Hierarchical",
        "sjf": "fairlead.policies.sjf:ShortestFirst",
        "throughput": "fairlead.policies.throughput:Throughput",
        "cost": "fairlead.policies.cost:Cost",
        "cost-slo": "fairlead.policies.cost_slo:CostSlo",
        "oef": "fairlead.policies.oef:Oef",
        "oef-cooperative": "fairlead.policies.oef_cooperative:OefCooperative",
        "tenant-max-min": "fairlead.policies.tenant_max_min:TenantMaxMin",
        "trading": "fairlead.policies.trading:Trading",
    },
    "mechanisms": {
        "shares": "fairlead.mechanisms.shares:Shares",
        "gavel": "fairlead.mechanisms.gavel:Gavel",
        "ideal": "fairlead.mechanisms.ideal:Ideal",
        "units": "fairlead.mechanisms.units:Units",
        "tenants": "fairlead.mechanisms.tenants:Tenants",
        "rounding": "fairlead.mechanisms.rounding:Rounding",
        "gandiva-fair": "fairlead.mechanisms.gandiva_fair:GandivaFair",
        "gandiva": "fairlead.mechanisms.gandiva:Gandiva",
        "gavel-gandiva": "fairlead.mechanisms.gavel_gandiva:GavelGandiva",
        "lottery": "fairlead.mechanisms.lottery:Lottery",
        "hadar": "fairlead.mechanisms.hadar:Hadar",
        "hadare": "fairlead.mechanisms.hadar:HadarE",
        "tiresias": "fairlead.mechanisms.tiresias:Tiresias",
        "themis": "fairlead.mechanisms.themis:Themis",
        "allox": "fairlead.mechanisms.allox:AlloX",
        "capacity": "fairlead.mechanisms.capacity:Capacity",
        "srtf": "fairlead.mechanisms.srtf:Srtf",
    },
    "engines": {
        "local": "fairlead.engines.local.plugin:PLUGIN",
        "slurm": "fairlead.engines.slurm.plugin:PLUGIN",
        "ray": "fairlead.engines.ray.plugin:PLUGIN",
        "rehearsal": "fairlead.engines.rehearsal.plugin:PLUGIN",
    },
}
"""group → name → module and attribute"""
