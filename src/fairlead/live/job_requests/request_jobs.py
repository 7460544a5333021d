"""The jobs of one submission: their ids, their names, and how they wait for each other."""

from collections.abc import Callable, Mapping, Sequence

from fairlead.live.job_requests.rejections import Reject
from fairlead.live.job_spec import JobSpec
from fairlead.model.errors import InputError

_MAX_LISTED = 5
"""jobs of a cycle that an error lists"""


class RequestJobs:
    """The jobs of one request, in its order, each with an id; those with equal keys are one."""

    def __init__(
        self,
        specs: Sequence[JobSpec],
        submitted_before: Callable[[JobSpec], JobSpec | None],
        new_id: Callable[[int], str],
    ) -> None:
        """``new_id`` returns the id of a new job from the number of new ones before it."""
        self.ids: list[str] = []
        self.kept: dict[str, JobSpec] = {}
        """id → job, for those of earlier requests, and for new ones once they are admitted"""
        self.new: dict[str, int] = {}
        """id → place in the request, of those that no earlier request has submitted"""
        self.names: dict[tuple[str, str], dict[str, None]] = {}
        """tenant and name → ids of the jobs of the request that have it"""
        id_of_key: dict[tuple[str, str], str] = {}
        for index, spec in enumerate(specs):
            key = key_of(spec)
            job_id = id_of_key.get(key) if spec.idempotency_key else None
            if job_id is None:
                earlier = submitted_before(spec)
                if earlier is not None:
                    job_id = earlier.id
                    self.kept[job_id] = earlier
                else:
                    job_id = spec.id or new_id(len(self.new))
                    self.new[job_id] = index
                id_of_key[key] = job_id
            self.ids.append(job_id)
            if spec.name:
                self.names.setdefault((spec.tenant, spec.name), {})[job_id] = None

    def is_to_admit(self, index: int) -> bool:
        """Return whether the job at a place is new and the first of its key."""
        return self.new.get(self.ids[index]) == index

    def has_new(self, job_ids: Sequence[str]) -> bool:
        """Return whether one of these jobs is a new one of the request."""
        return any(job_id in self.new for job_id in job_ids)

    def reject_cycles(self, reject: Reject) -> None:
        """Pass the first job that waits for itself, through others, to ``reject``."""
        waits = {job_id: self._waits(job_id) for job_id in self.new}
        if cycle := _find_cycle(waits):
            first = min(range(len(cycle)), key=lambda place: self.new[cycle[place]])
            cycle = [*cycle[first:], *cycle[: first + 1]]
            places = [f"jobs[{self.new[job_id]}]" for job_id in cycle]
            if len(places) > _MAX_LISTED:
                places[_MAX_LISTED - 1 : -1] = ["…"]
            listed = " → ".join(places)
            field = "after" if cycle[1] in self.kept[cycle[0]].after else "after_any"
            problem = f"the job waits for itself: {listed}"
            error = InputError(problem, fix="expected no cycle", field=field)
            reject(self.new[cycle[0]], error)

    def _waits(self, job_id: str) -> list[str]:
        spec = self.kept[job_id]
        return [one for one in (*spec.after, *spec.after_any) if one in self.new]


def key_of(spec: JobSpec) -> tuple[str, str]:
    """Return the tenant and the idempotency key of a job."""
    return spec.tenant, spec.idempotency_key


def _find_cycle(waits: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the jobs of a cycle, each of which waits for the next; empty if there is none."""
    done: set[str] = set()
    for start in waits:
        path: dict[str, None] = {}
        stack = [(start, False)]
        while stack:
            job_id, is_left = stack.pop()
            if is_left:
                done.add(job_id)
                del path[job_id]
            elif job_id in path:
                listed = [*path]
                return listed[listed.index(job_id) :]
            elif job_id not in done:
                path[job_id] = None
                stack.append((job_id, True))
                stack += [(other, False) for other in waits[job_id]]
    return []
