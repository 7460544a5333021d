"""The demo's closing tables."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.client import Client
    from fairlead.demo.contention import ContentionMeter
    from fairlead.demo.scenario import DemoJob
    from fairlead.submitted_job import SubmittedJob

_MAX_ROUND_FRACTION = 0.8


def conclude(
    client: "Client",
    planned: "list[DemoJob]",
    ids: list[str],
    meter: "ContentionMeter",
    round_s: float,
) -> bool:
    """Print the results; return whether all jobs have finished."""
    jobs = [client.job(job_id) for job_id in ids]
    _completion(client, planned, jobs, round_s)
    _counts(jobs)
    _tenants(meter)
    return all(job["state"] == "finished" for job in jobs)


def _completion(
    client: "Client", planned: "list[DemoJob]", jobs: "list[SubmittedJob]", round_s: float
) -> None:
    from fairlead.cli.shared.output import results, table
    from fairlead.demo.scenario import predicted
    from fairlead.server.config.scheduling import plan_lead_s

    first = min(job["submitted_at"] for job in jobs)
    arrivals = [job["submitted_at"] - first for job in jobs]
    ended = {"live, max-min": [job["ended_at"] - first for job in jobs]}
    about = client.get("/v1/about")
    costs = {name: about[name] or 0.0 for name in ("start_s", "end_s")}
    lease_s = sum(costs.values())
    message = f"Average overhead of a lease: {lease_s:.2f} s"
    if lease_s < _MAX_ROUND_FRACTION * round_s:
        message += "; the simulation includes it."
        for policy in ("max-min", "max-min:agnostic"):
            lead_s = plan_lead_s(round_s)
            ended[f"simulated, {policy}"] = predicted(
                planned, arrivals, policy, **costs, plan_lead_s=lead_s, round_s=round_s
            ).tolist()
    else:  # a job that is preempted every round would never finish
        message += f", too long to simulate rounds of {round_s:g} s; is the machine busy?"
    means = {
        name: sum(ends) / len(ends) - sum(arrivals) / len(arrivals) for name, ends in ended.items()
    }
    rows = [[name, f"{means[name]:.1f} s", f"{max(ends):.1f} s"] for name, ends in ended.items()]
    table("completion", ["", "mean", "last"], rows)
    if len(means) > 1:
        ratio = means["simulated, max-min:agnostic"] / means["simulated, max-min"]
        message += f"\nIf accelerators are ignored, jobs take {ratio:.2f} × as long."
    results.print(message, highlight=False)


def _counts(jobs: "list[SubmittedJob]") -> None:
    from fairlead.cli.shared.output import table

    exact = sum(job["steps_done"] == job["total_steps"] for job in jobs)
    moved = sum(len(job["accelerators_used"]) > 1 for job in jobs)
    rows = [
        ["finished with exactly their steps", f"{exact} of {len(jobs)}"],
        ["preemptions", str(sum(job["preemptions"] for job in jobs))],
        ["ran on several accelerators", str(moved)],
    ]
    table("jobs", ["", "count"], rows)


def _tenants(meter: "ContentionMeter") -> None:
    from fairlead.cli.shared.output import results, table

    rows = [
        [
            row.tenant,
            f"{row.weight:g}",
            *(f"{p:.0%}" for p in (row.entitled, row.progress, row.devices)),
        ]
        for row in meter.received()
    ]
    if not rows:
        results.print("No shares to compare: too few jobs for the tenants to contend.")
        return
    heads = ["tenant", "weight", "entitled", "progress", "device time"]
    table(f"tenants, during {meter.contended_s:.0f} s of contention", heads, rows)
    results.print(
        "max-min divides progress: speed relative to an equal split of all devices.",
        highlight=False,
    )
