"""What must hold of the scheduler after every event whatever goes wrong."""

from typing import Any

import numpy as np
from tests.faults.record import Record

from fairlead.core.jobs import JobState
from fairlead.model import commands as cmd
from fairlead.model import events as ev


class CoreChecks:
    """Looks at the scheduler's tables and at what it wants done."""

    def __init__(self, record: Record) -> None:
        self._record, self._require = record, record.require

    def handled(self, live: Any, event: ev.Event, commands: list[cmd.Command]) -> None:
        """Look at the scheduler after an event."""
        self._record.events += 1
        scheduler = live.scheduler
        jobs, leases = scheduler.jobs, scheduler.leases
        states, saved = jobs.state[: len(jobs)].tolist(), jobs.saved_steps[: len(jobs)].tolist()
        for job_id, state, steps in zip(jobs.ids, states, saved, strict=True):
            truth = self._record.truth.get(job_id)
            if truth is None:
                continue
            self._require(steps <= truth.total, f"{job_id}: {steps} of {truth.total} counted")
            if truth.counted != steps:
                self._require(steps >= truth.counted, f"{job_id} fell back to {steps} steps")
                truth.counted = steps
            if truth.train:
                self._require(
                    steps <= truth.committed, f"{job_id}: {steps} counted, {truth.committed} made"
                )
                if state == JobState.FINISHED:
                    done = steps == truth.committed == truth.total
                    self._require(done, f"{job_id} finished with {steps} of {truth.total} steps")
            elif state == JobState.FINISHED:
                done = steps == truth.total
                self._require(done, f"{job_id} said {truth.total} steps, {steps} are counted")
            if state == JobState.FAILED:
                self._require(
                    truth.crashes > live.specs[job_id].retries,
                    f"{job_id} was given up after {truth.crashes} crashes",
                )
        open_ = leases.open
        held = leases.holder[leases.holder >= 0].tolist()
        self._require(set(held) <= set(open_.tolist()), "a device is held by no open lease")
        holders = leases.job[open_].tolist()
        self._require(len(set(holders)) == len(holders), "a job has two leases")
        kinds, kind_of = scheduler.cluster.accelerators, scheduler.cluster.accelerator_of
        for slot, job in zip(open_.tolist(), holders, strict=True):
            devices = (leases.holder == slot).any(axis=0).nonzero()[0]
            on = {kinds[kind] for kind in kind_of[devices].tolist()}
            fits = len(on) == 1 and len(devices) == jobs.jobs[job].gang_on(*on)
            self._require(fits, f"{jobs.ids[job]} holds {len(devices)} of {on}")
        if isinstance(event, ev.DevicesTaken):
            self._record.taken[event.node] = event.numbers
        for command in commands:
            if isinstance(command, cmd.Launch):
                self._launched(live, command, event.at)
        if isinstance(event, ev.LeasesEnded):
            self._check_time(live, event)

    def _check_limits(self, scheduler: Any, launched: set[tuple[str, str]]) -> None:
        """Require that tenants hold no more of what their jobs were launched on than they may."""
        jobs, leases, cluster = scheduler.jobs, scheduler.leases, scheduler.cluster
        for tenant in jobs.tenants:
            for kind, most in tenant.limit.items():
                if (tenant.id, kind) not in launched:
                    continue  # the limit may have come after its leases
                mine = [
                    slot
                    for slot in leases.staying.tolist()
                    if jobs.jobs[leases.job[slot]].tenant == tenant.id
                ]
                on = cluster.accelerator_of[np.isin(leases.holder, mine).any(axis=0)]
                held = np.count_nonzero(on == cluster.accelerators.index(kind))
                self._require(held <= most, f"tenant {tenant.id} holds {held} {kind}, not {most}")

    def _check_time(self, live: Any, event: ev.LeasesEnded) -> None:
        """Require that a job has been credited with the time of all its leases, no more."""
        jobs = live.scheduler.jobs
        for lease in event.lease.tolist():
            job, since, _ = self._record.times[lease]
            self._record.times[lease] = job, since, event.at
            mine = [ended - began for of, began, ended in self._record.times.values() if of == job]
            if jobs.lease[jobs.number[job]] >= 0:
                continue  # the next one was launched at once
            counted = float(jobs.received_s[jobs.number[job]].sum())
            self._require(
                abs(counted - sum(mine)) < 1e-3, f"{job} held devices for {mine}, not {counted}"
            )

    def _launched(self, live: Any, command: cmd.Launch, at: float) -> None:
        cluster, jobs = live.scheduler.cluster, live.scheduler.jobs
        for lease, placement in zip(command.lease.tolist(), command.on, strict=True):
            job_id = jobs.ids[placement.job]
            self._record.times[lease] = job_id, at, at
            active = jobs.state[placement.job] == JobState.ACTIVE
            self._require(active, f"{job_id} is launched though it is not to run")
            self._require(
                job_id not in self._record.held, f"{job_id} is launched though it is held"
            )
            self._require(
                job_id not in self._record.cancelled, f"{job_id} is launched though cancelled"
            )
            for device in placement.devices:
                index = cluster.node_of[device]
                node = cluster.nodes[index].id
                for state in ("drained", "cordoned", "removed", "down", "missing"):
                    of_it = getattr(self._record, state)
                    self._require(node not in of_it, f"{job_id} is launched on {node}: {state}")
                number = device - int(np.searchsorted(cluster.node_of, index))
                free = number not in self._record.taken.get(node, ())
                self._require(free, f"{job_id} is launched on {node}:{number}, which others hold")
        kinds, kind_of = cluster.accelerators, cluster.accelerator_of
        self._check_limits(
            live.scheduler,
            {(jobs.jobs[p.job].tenant, kinds[kind_of[p.devices[0]]]) for p in command.on},
        )
