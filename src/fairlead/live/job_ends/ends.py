"""Passes the end of a job on: to the jobs that depend on it, and to notifications."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from fairlead.core.queries import Queries
from fairlead.live.accounting import JobCounters, JobTransition
from fairlead.live.clock import Clock
from fairlead.live.history.recorder import HistoryRecorder
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.job_ends.dependencies import JobDependencies
from fairlead.live.job_ends.notifications import Notification, Notifications
from fairlead.live.job_ends.urls import AllowedUrls
from fairlead.live.job_spec import JobSpec
from fairlead.store import Change, Store


class JobEnds:
    """Passes the ends and preemptions of jobs to dependent jobs and to notifications."""

    def __init__(
        self,
        queries: Queries,
        specs: Mapping[str, JobSpec],
        suspended_jobs: set[str],
        messages: MutableMapping[str, str],
        counters: JobCounters,
        history: HistoryRecorder,
        *,
        notified_urls: AllowedUrls,
        checkpoint_dir: Callable[[str], str],
        clock: Clock,
        inbox: Inbox,
    ) -> None:
        self._specs, self._messages = specs, messages
        self._counters, self._history = counters, history
        self.dependencies = JobDependencies(
            queries, specs, suspended_jobs, messages, history, inbox, checkpoint_dir
        )
        self.notifications = Notifications(notified_urls, clock, inbox)
        self._uncommitted: list[Notification] = []

    def resume(self, store: Store, spawn: Callable[[Awaitable[None]], None]) -> None:
        """Continue what an earlier server has begun."""
        self._counters.transitions.clear()  # those of the replayed events
        self.dependencies.resume()
        self.notifications.restore(store)
        spawn(self.notifications.run())
        spawn(self.dependencies.starts.run())

    def changes(self) -> list[Change]:
        """Return the documents to persist with the events handled since the last call."""
        changes: list[Change] = []
        transitions = self._counters.transitions
        while transitions:
            transition = transitions.popleft()
            if transition.state != "preempted":
                self.dependencies.job_ended(transition.job_id)
            changes += self._notify(transition)
        return changes

    def committed(self) -> None:
        """Deliver the notifications whose documents are persisted."""
        for made in self._uncommitted:
            self.notifications.send(made)
        self._uncommitted.clear()

    def _notify(self, transition: JobTransition) -> list[Change]:
        spec = self._specs.get(transition.job_id)
        if spec is None or not spec.notify:
            return []
        is_preemption = transition.state == "preempted"
        if is_preemption and not spec.notify_preemptions:
            return []
        id_ = f"{spec.id}-{transition.state}" + (f"-{transition.lease}" if is_preemption else "")
        made = Notification(
            id=id_,
            tenant=spec.tenant,
            url=spec.notify,
            body={"id": id_, **self._body(spec, transition)},
            made_at=transition.at,
        )
        change = self.notifications.accept(made)
        if change is None:
            return []
        self._uncommitted.append(made)
        return [change]

    def _body(self, spec: JobSpec, transition: JobTransition) -> dict[str, Any]:
        counts = self._counters.of(spec.id)
        return {
            "event": f"job.{transition.state}",
            "job": spec.id,
            "name": spec.name,
            "tenant": spec.tenant,
            "message": self._messages.get(spec.id, ""),
            "exit_codes": [*self._history.results.of(spec.id).exit_codes],
            "leases": counts.leases,
            "preemptions": counts.preemptions,
            "started_at": counts.started_at,
            "at": transition.at,
        }
