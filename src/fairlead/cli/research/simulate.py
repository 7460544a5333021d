"""``fairlead simulate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.shared.options import (
    ClusterOption,
    Json,
    MechanismOption,
    PhysicsOption,
    PolicyOption,
    RestoreCostOption,
    RoundOption,
    SkipOption,
    SpeedsOption,
    TenantsOption,
    WindowOption,
)
from fairlead.cli.shared.threads import use_one_thread
from fairlead.data import DEFAULT_CLUSTER, DEFAULT_SPEEDS
from fairlead.model.submission.bounds import NOISE_RANGE, PLAN_ON_RANGE
from fairlead.sim.gc_tuning import infrequent_gc

if TYPE_CHECKING:
    from fairlead.sim.metrics import Result


@infrequent_gc()
def simulate(
    *,
    cluster: ClusterOption = DEFAULT_CLUSTER,
    policy: PolicyOption = "max-min",
    trace: Annotated[
        str | None,
        typer.Option(
            help="Trace: CSV, JSONL or Gavel .trace, optionally .gz.",
            show_default="120 bundled jobs",
        ),
    ] = None,
    speeds: SpeedsOption = DEFAULT_SPEEDS,
    believed: Annotated[
        str | None,
        typer.Option(
            help="Speed table that decisions use, while jobs run at those of --speeds.",
            show_default="the same",
        ),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(
            help="True speeds. --speeds is then what is believed at first: a table, guess (from"
            " data sheets) or none; jobs measure their speeds as on a live cluster."
        ),
    ] = None,
    noise: Annotated[
        float,
        typer.Option(
            help="Relative error of measured speeds, a fraction, with --truth.",
            min=NOISE_RANGE.least,
            max=NOISE_RANGE.most,
        ),
    ] = 0.0,
    plan_on: Annotated[
        float,
        typer.Option(
            help="Quantile of estimated speeds that decisions use, a fraction, with --truth: above"
            " 0.5, jobs try accelerators that may be fast.",
            min=PLAN_ON_RANGE.least,
            max=PLAN_ON_RANGE.most,
        ),
    ] = 0.5,
    explore: Annotated[
        bool,
        typer.Option(
            "--explore",
            help="Try a job on an accelerator where that is expected to be worth more than it"
            " costs, with --truth.",
        ),
    ] = False,
    mechanism: MechanismOption = None,
    round_s: RoundOption = None,
    restore_cost: RestoreCostOption = 0.0,
    physics: PhysicsOption = "none",
    failures: Annotated[
        Path | None,
        typer.Option(
            help="Node events, CSV of at_s,node,event,devices: lost, returned, cordoned, opened,"
            " taken."
        ),
    ] = None,
    tenants_file: TenantsOption = None,
    window: WindowOption = None,
    skip_impossible: SkipOption = False,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of --noise; randomised policies have an option of their own:"
            " lottery:seed=1."
        ),
    ] = 0,
    log: Annotated[
        Path | None, typer.Option(help="Event log to write, for `fairlead replay`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate a trace in virtual time and report the results.

    The same code makes the decisions as on a real cluster.

    Example:  fairlead simulate --cluster v100=8,k80=16 --policy max-min

    Example:  fairlead simulate --trace trace.csv --skip-impossible --json

    Example:  fairlead simulate --speeds guess --truth gandiva-fair --noise 0.1
    """
    use_one_thread()
    from fairlead.cli.research.runs import run_simulation
    from fairlead.cli.shared.json_output import print_json
    from fairlead.sim.runs import SimulationOptions

    setup = SimulationOptions(
        cluster=cluster,
        speeds=speeds,
        trace=trace,
        policy=policy,
        mechanism=mechanism,
        round_s=round_s,
        restore_cost_s=restore_cost,
        physics=physics,
        believed=believed,
        truth=truth,
        noise=noise,
        plan_on=plan_on,
        explore=explore,
        failures=failures,
        tenants_file=tenants_file,
        window=window,
        seed=seed,
        skip_impossible=skip_impossible,
    )
    result = run_simulation(setup, log=log, show_progress=True)
    if as_json:
        print_json(result.as_dict())
    else:
        _show(result)


def _show(result: "Result") -> None:
    from fairlead.cli.shared.output import hours, pluralise, results, table
    from fairlead.cli.shared.skipped_jobs import print_skipped

    def percent(share: float) -> str:
        return f"{share:.1%}"

    table(
        f"{result.policy}: {pluralise(len(result.jobs), 'job')}",
        ["figure", "value"],
        [
            ["average completion time", hours(result.avg_jct_s)],
            [
                "median · p90 · p99",
                " · ".join(map(hours, (result.median_jct_s, result.p90_jct_s, result.p99_jct_s))),
            ],
            ["makespan", hours(result.makespan_s)],
            ["utilization", percent(result.utilization)],
            *[[f"  {name}", percent(share)] for name, share in result.busy_share.items()],
            [
                "finish-time fairness ρ",
                "–"
                if result.finish_time_fairness is None
                else f"{result.finish_time_fairness:.2f}",
            ],
            ["rounds · allocations", f"{result.rounds} · {result.solves}"],
            ["preemptions · migrations", f"{result.preemptions} · {result.migrations}"],
            ["cost", f"{result.cost_usd:.2f} USD"],
            ["CPU time", f"{result.cpu_s:.2f} s"],
        ],
    )
    if len(result.tenants) > 1:
        table(
            "tenants",
            ["tenant", "entitled", "received"],
            [
                [t.tenant, percent(t.entitled_share), percent(t.received_share)]
                for t in result.tenants
            ],
        )
    if result.unfinished:
        results.print(f"{pluralise(result.unfinished, 'job')} did not finish", style="red")
    print_skipped(result.skipped)
