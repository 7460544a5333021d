"""The demo's closing tables."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.client import Client
    from fairlead.demo.contention import Contention
    from fairlead.demo.scene import DemoJob


def conclude(
    client: "Client", listed: "list[DemoJob]", ids: list[str], seen: "Contention"
) -> bool:
    """Print how it went; return whether all jobs have finished."""
    found = [client.job(job_id) for job_id in ids]
    _completion(client, listed, found)
    _counts(found)
    _tenants(seen)
    return all(job["state"] == "finished" for job in found)


def _completion(client: "Client", listed: "list[DemoJob]", found: list[dict[str, Any]]) -> None:
    from fairlead.cli.output import results, table
    from fairlead.demo.scene import ROUND_S, predicted
    from fairlead.server.serve import plan_lead_s

    first = min(job["submitted_at"] for job in found)
    spans = [job["ended_at"] - job["submitted_at"] for job in found]
    last = max(job["ended_at"] for job in found) - first
    rows = [["live, max-min", f"{sum(spans) / len(spans):.1f} s", f"{last:.1f} s"]]
    about = client.get("/v1/about")
    lease_s = (about["start_s"] or 0.0) + (about["end_s"] or 0.0)
    arrivals = [job["submitted_at"] - first for job in found]
    means = []
    for policy in ("max-min", "max-min:agnostic"):
        ends = predicted(
            listed, arrivals, policy, lease_s=lease_s, plan_lead_s=plan_lead_s(ROUND_S)
        )
        means.append(sum(ends - arrivals) / len(ends))
        rows.append([f"simulated, {policy}", f"{means[-1]:.1f} s", f"{max(ends):.1f} s"])
    table("completion", ["", "mean", "last"], rows)
    results.print(
        f"A lease cost {lease_s:.2f} s beside its steps; the simulator reckons with it.\n"
        f"If all accelerators are taken for alike, jobs need on average"
        f" {means[1] / means[0]:.2f} × as long.",
        highlight=False,
    )


def _counts(found: list[dict[str, Any]]) -> None:
    from fairlead.cli.output import table

    exact = sum(job["steps_done"] == job["total_steps"] for job in found)
    moved = sum(len(job["accelerators_used"]) > 1 for job in found)
    rows = [
        ["finished with exactly their steps", f"{exact} of {len(found)}"],
        ["preempted and continued, times", str(sum(job["preemptions"] for job in found))],
        ["ran on several accelerators", str(moved)],
    ]
    table("jobs", ["", "count"], rows)


def _tenants(seen: "Contention") -> None:
    from fairlead.cli.output import results, table

    rows = [
        [
            one.tenant,
            f"{one.weight:g}",
            *(f"{p:.0%}" for p in (one.entitled, one.progress, one.devices)),
        ]
        for one in seen.received()
    ]
    if not rows:
        results.print("Too few jobs for tenants to contend: no shares to compare.")
        return
    heads = ["tenant", "weight", "entitled", "progress", "device time"]
    table(f"tenants, in the {seen.lasted_s:.0f} s in which all wanted more", heads, rows)
    results.print(
        "Progress, which max-min divides, is speed against an equal split of devices.",
        highlight=False,
    )
