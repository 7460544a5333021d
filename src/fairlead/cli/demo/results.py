"""The demo's closing tables."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.client import Client
    from fairlead.demo.contention import Contention
    from fairlead.demo.scenario import DemoJob

_MAX_ROUND_FRACTION = 0.8


def conclude(
    client: "Client",
    listed: "list[DemoJob]",
    ids: list[str],
    seen: "Contention",
    round_s: float,
) -> bool:
    """Print how it went; return whether all jobs have finished."""
    found = [client.job(job_id) for job_id in ids]
    _completion(client, listed, found, round_s)
    _counts(found)
    _tenants(seen)
    return all(job["state"] == "finished" for job in found)


def _completion(
    client: "Client", listed: "list[DemoJob]", found: list[dict[str, Any]], round_s: float
) -> None:
    from fairlead.cli.shared.output import results, table
    from fairlead.demo.scenario import predicted
    from fairlead.server.config.scheduling import plan_lead_s

    first = min(job["submitted_at"] for job in found)
    arrivals = [job["submitted_at"] - first for job in found]
    ended = {"live, max-min": [job["ended_at"] - first for job in found]}
    about = client.get("/v1/about")
    costs = {name: about[name] or 0.0 for name in ("start_s", "end_s")}
    lease_s = sum(costs.values())
    said = f"A lease cost {lease_s:.2f} s beside its steps"
    if lease_s < _MAX_ROUND_FRACTION * round_s:
        said += "; the simulator reckons with it."
        for policy in ("max-min", "max-min:agnostic"):
            lead_s = plan_lead_s(round_s)
            ended[f"simulated, {policy}"] = predicted(
                listed, arrivals, policy, **costs, plan_lead_s=lead_s, round_s=round_s
            ).tolist()
    else:  # nobody who is preempted each round would ever finish
        said += f", too much for rounds of {round_s:g} s to be simulated: is the machine busy?"
    means = {
        name: sum(ends) / len(ends) - sum(arrivals) / len(arrivals) for name, ends in ended.items()
    }
    rows = [[name, f"{means[name]:.1f} s", f"{max(ends):.1f} s"] for name, ends in ended.items()]
    table("completion", ["", "mean", "last"], rows)
    if len(means) > 1:
        ratio = means["simulated, max-min:agnostic"] / means["simulated, max-min"]
        said += f"\nIf all accelerators are taken for alike, jobs need {ratio:.2f} × as long."
    results.print(said, highlight=False)


def _counts(found: list[dict[str, Any]]) -> None:
    from fairlead.cli.shared.output import table

    exact = sum(job["steps_done"] == job["total_steps"] for job in found)
    moved = sum(len(job["accelerators_used"]) > 1 for job in found)
    rows = [
        ["finished with exactly their steps", f"{exact} of {len(found)}"],
        ["preempted and continued, times", str(sum(job["preemptions"] for job in found))],
        ["ran on several accelerators", str(moved)],
    ]
    table("jobs", ["", "count"], rows)


def _tenants(seen: "Contention") -> None:
    from fairlead.cli.shared.output import results, table

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
