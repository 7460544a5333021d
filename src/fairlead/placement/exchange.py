"""Exchange of equal devices in a plan, so that jobs return to those where they wait parked."""

from collections import Counter
from dataclasses import replace

from fairlead.model.cluster import Cluster
from fairlead.model.plan import Plan


def exchange_devices(plan: Plan, cluster: Cluster, wanted: dict[int, int]) -> Plan:
    """Return a plan in which jobs of one device have those that they want, where possible.

    ``wanted`` has the job → device. Jobs exchange devices of one accelerator on one node, so that
    no job runs slower than planned.
    """
    units, device = plan.start, plan.start.device.copy()
    uses = Counter(device.tolist())
    rows = [int(row) for row in (units.size == 1).nonzero()[0] if units.copy[row] == 0]
    place = {row: int(units.start[row]) for row in rows}
    row_on = {int(device[at]): row for row, at in place.items() if uses[int(device[at])] == 1}

    def kind(number: int) -> tuple[str, int]:
        return cluster.addresses[number][0], int(cluster.accelerator_of[number])

    for row, at in place.items():
        have, want = int(device[at]), wanted.get(int(units.job[row]))
        other = None if want is None else row_on.get(want)
        if want is None or other is None or want == have or row_on.get(have) != row:
            continue
        if wanted.get(int(units.job[other])) == want or kind(want) != kind(have):
            continue
        device[at], device[place[other]] = want, have
        row_on[want], row_on[have] = row, other
    return replace(plan, start=replace(units, device=device))
