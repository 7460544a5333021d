"""Invariants of the scheduler after every event."""

from typing import Any

import numpy as np
from tests.faults.checks.copies import CopyChecks
from tests.faults.record import RunRecord

from fairlead.core.jobs import JobState
from fairlead.model import commands as cmd
from fairlead.model import events as ev


class CoreChecks:
    """Checks the scheduler's tables and commands."""

    def __init__(self, record: RunRecord, copies: CopyChecks) -> None:
        self._record, self._require, self._copies = record, record.require, copies

    def handled(self, live: Any, event: ev.Event, commands: list[cmd.Command]) -> None:
        """Check the scheduler after an event."""
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
                made = self._copies.counted(truth)
                self._require(steps <= made, f"{job_id}: {steps} counted, {made} made")
                if state == JobState.FINISHED:
                    done = steps == truth.committed == truth.total
                    self._require(done, f"{job_id} finished with {steps} of {truth.total} steps")
            elif state == JobState.FINISHED:
                done = steps == truth.total
                self._require(done, f"{job_id} made {truth.total} steps, {steps} are counted")
            if state == JobState.FAILED:
                self._require(
                    truth.crashes > live.specs[job_id].retries,
                    f"{job_id} failed after only {truth.crashes} crashes",
                )
        open_ = leases.open
        held = leases.holder[leases.holder >= 0].tolist()
        self._require(set(held) <= set(open_.tolist()), "a device is held by no open lease")
        holders = leases.job[open_].tolist()
        copies = [*zip(holders, leases.copy[open_].tolist(), strict=True)]
        self._require(len(set(copies)) == len(copies), "a job has two leases")
        whole = [job for job, copy in copies if copy == 0]
        beside = {job for job, copy in copies if copy > 0}.intersection(whole)
        self._require(not beside, f"jobs {beside} run beside their copies")
        names, accelerator_of = scheduler.cluster.accelerators, scheduler.cluster.accelerator_of
        for slot, job in zip(open_.tolist(), holders, strict=True):
            devices = (leases.holder == slot).any(axis=0).nonzero()[0]
            on = {names[column] for column in accelerator_of[devices].tolist()}
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
        """Require that tenants stay within the limits of the accelerators just launched on."""
        jobs, leases, cluster = scheduler.jobs, scheduler.leases, scheduler.cluster
        for tenant in jobs.tenants:
            for accelerator, limit in tenant.limit.items():
                if (tenant.id, accelerator) not in launched:
                    continue  # the limit may be newer than the leases
                slots = [
                    slot
                    for slot in leases.active_slots.tolist()
                    if jobs.jobs[leases.job[slot]].tenant == tenant.id
                ]
                on = cluster.accelerator_of[np.isin(leases.holder, slots).any(axis=0)]
                held = np.count_nonzero(on == cluster.accelerators.index(accelerator))
                self._require(
                    held <= limit, f"tenant {tenant.id} holds {held} of {limit} {accelerator}"
                )

    def _check_time(self, live: Any, event: ev.LeasesEnded) -> None:
        """Require that a job was credited with exactly the time of all its leases."""
        jobs = live.scheduler.jobs
        for lease in event.lease.tolist():
            job, since, _ = self._record.times[lease]
            self._record.times[lease] = job, since, event.at
            durations = [
                ended - began for of, began, ended in self._record.times.values() if of == job
            ]
            if len(live.scheduler.leases.of_job(jobs.number[job])):
                continue  # the next lease was launched at once
            counted = float(jobs.received_s[jobs.number[job]].sum())
            self._require(
                abs(counted - sum(durations)) < 1e-3,
                f"{job} held devices for {durations} s, {counted} s are counted",
            )

    def _launched(self, live: Any, command: cmd.Launch, at: float) -> None:
        cluster, jobs = live.scheduler.cluster, live.scheduler.jobs
        for lease, placement in zip(command.lease.tolist(), command.on, strict=True):
            job_id = jobs.ids[placement.job]
            self._record.times[lease] = job_id, at, at
            active = jobs.state[placement.job] == JobState.ACTIVE
            self._require(active, f"{job_id} launched although inactive")
            self._require(job_id not in self._record.held, f"{job_id} launched although suspended")
            self._require(
                job_id not in self._record.cancelled, f"{job_id} launched although cancelled"
            )
            for device in placement.devices:
                index = cluster.node_of[device]
                node = cluster.nodes[index].id
                for state in ("drained", "cordoned", "removed", "down", "missing"):
                    nodes = getattr(self._record, state)
                    self._require(node not in nodes, f"{job_id} launched on {node}: {state}")
                number = device - int(np.searchsorted(cluster.node_of, index))
                free = number not in self._record.taken.get(node, ())
                self._require(free, f"{job_id} launched on {node}:{number}: taken")
        names, accelerator_of = cluster.accelerators, cluster.accelerator_of
        self._check_limits(
            live.scheduler,
            {(jobs.jobs[p.job].tenant, names[accelerator_of[p.devices[0]]]) for p in command.on},
        )
