"""Rounds of a scheduler whose commands are carried out at once."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlead.core import Scheduler
from fairlead.core.jobs import PROFILE
from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.mechanisms.planner import Planner
from fairlead.model import events as ev
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.commands import Command, ComputePlan, Preempt
from fairlead.model.job import Job
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.weight_scope import WeightScope

ROUND_S = 60.0
ACCELERATORS = ("v100", "k80")
SPEEDS = SpeedTable(
    {
        SpeedKey(workload, gang, accelerator): gang * speed
        for workload, speeds in {"big": (8.0, 1.0), "small": (2.0, 1.0), "old": (0.0, 1.0)}.items()
        for accelerator, speed in zip(ACCELERATORS, speeds, strict=True)
        for gang in (1, 2, 3)
        if speed
    }
)
POLICIES = (
    *("max-min", "makespan", "finish-time", "fairlead", "fifo", "sjf", "throughput"),
    "hierarchical",
    *("oef", "oef-cooperative", "tenant-max-min", "trading", "max-min:packed"),
    *("gandiva", "gandiva-fair", "hadar", "tiresias", "themis", "allox", "srtf", "lottery"),
    "gavel-gandiva",
)


class Rounds:
    """A scheduler whose commands are carried out at once."""

    def __init__(
        self,
        policy: str,
        tenants: Sequence[Tenant] = (),
        *,
        each: int = 3,
        weight_scope: WeightScope = "cluster",
        speeds: SpeedTable = SPEEDS,
    ) -> None:
        made = create_live_mechanism(policy, None, ROUND_S)
        priced = {name: Accelerator(name, usd_per_hour=1.0) for name in ACCELERATORS}
        counts = dict.fromkeys(ACCELERATORS, each)
        cluster = Cluster.of(counts, per_node=each, details=priced)
        self.scheduler: Scheduler[Any] = Scheduler(
            cluster, speeds, made, weight_scope=weight_scope
        )
        self.planner = Planner(made)
        self.at = 0.0
        for tenant in tenants:
            self.scheduler.handle(ev.TenantChanged(0.0, tenant))

    def submit(self, job: Job) -> None:
        self._perform(self.scheduler.handle(ev.JobSubmitted(self.at, job)))

    def end_some_job(self, rng: random.Random) -> None:
        open_ = self.scheduler.leases.lease[self.scheduler.leases.open]
        if len(open_):
            lease = np.array([rng.choice(open_.tolist())])
            ended = ev.LeasesEnded(self.at, lease, np.array([1.0]), "finished")
            self._perform(self.scheduler.handle(ended))

    def end(self, tenant: str, *, count: int = 1) -> None:
        """End running jobs of a tenant."""
        scheduler = self.scheduler
        open_ = scheduler.leases.open
        owners = [scheduler.jobs.jobs[job].tenant for job in scheduler.leases.job[open_].tolist()]
        own = scheduler.leases.lease[open_][[owner == tenant for owner in owners]][:count]
        ended = ev.LeasesEnded(self.at, own, np.ones(len(own)), "finished")
        self._perform(scheduler.handle(ended))

    def round(self) -> None:
        self.at += ROUND_S
        self._perform(self.scheduler.handle(ev.RoundEnd(self.at)))
        self._perform(self.scheduler.handle(ev.PlanDue(self.at)))

    def steps_per_s(self, tenant: str) -> float:
        """Return the speed of the tenant's running jobs together, alone on their devices."""
        jobs, leases = self.scheduler.jobs, self.scheduler.leases
        running = leases.job[leases.open]
        own = [job for job in running.tolist() if jobs.jobs[job].tenant == tenant]
        on = [(jobs.ints[job, PROFILE], jobs.on[job]) for job in own]
        return float(sum(jobs.profiles.speed[at] for at in on))

    def held(self, tenant: str, accelerator: str) -> int:
        """Return the devices that the jobs of a tenant hold."""
        scheduler = self.scheduler
        column = scheduler.cluster.accelerators.index(accelerator)
        holders = scheduler.leases.holder[:, scheduler.cluster.accelerator_of == column]
        leases = scheduler.leases
        owners = [
            {scheduler.jobs.jobs[int(leases.job[slot])].tenant for slot in device if slot >= 0}
            for device in holders.T.tolist()
        ]
        return sum(tenant in owner for owner in owners)

    def unserved(self, tenant: str, accelerator: str) -> list[int]:
        """Return the gangs of the tenant's jobs that could use an accelerator and do not."""
        jobs = self.scheduler.jobs
        column = self.scheduler.cluster.accelerators.index(accelerator)
        return [
            jobs.jobs[number].gang
            for number in jobs.active.tolist()
            if jobs.jobs[number].tenant == tenant
            and jobs.profiles.speed[jobs.ints[number, PROFILE], column] > 0
            and jobs.on[number] != column
        ]

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, ComputePlan):
                plan, memory = self.planner.plan(command.snapshot, command.memory)
                ready = ev.PlanReady(self.at, command.version, plan, memory)
                self._perform(self.scheduler.handle(ready))
            elif isinstance(command, Preempt):
                steps = np.ones(len(command.lease))
                left = ev.LeasesEnded(self.at, command.lease, steps, "left")
                self._perform(self.scheduler.handle(left))
