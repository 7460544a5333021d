"""``fairlead audit``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.shared.options import Json, MechanismOption, RoundOption, SkipOption
from fairlead.cli.shared.output_files import refuse_overwriting
from fairlead.data import DEFAULT_CLUSTER, DEFAULT_SPEEDS
from fairlead.model.errors import UsageError

if TYPE_CHECKING:
    from fairlead.files.parsing.text import SourceText
    from fairlead.insight.audit.audit import Audit
    from fairlead.model.snapshot import Snapshot
    from fairlead.policies.rules.priority import PriorityPolicy


class AuditRows(StrEnum):
    """Participants between which fairness is measured."""

    JOB = "job"
    TENANT = "tenant"


def audit(
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policy to audit, see `fairlead policies`; repeatable, to compare."),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Audit the server's current jobs under its policy."),
    ] = False,
    instance: Annotated[
        list[Path] | None,
        typer.Option(help="Instance file (JSON); repeatable, for the worst of several."),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with status 1 if this holds, e.g. 'envy>1e-6'. Figures: envy,"
            " pareto_slack, sharing_incentive, over_report, under_report, efficiency. Repeatable."
        ),
    ] = None,
    by: Annotated[
        AuditRows | None,
        typer.Option(
            help="Participants whose fairness is measured.",
            show_default="those that the policy serves",
        ),
    ] = None,
    lies: Annotated[
        int | None,
        typer.Option(
            help="Approximate number of misreports to try; 0 for none.",
            min=0,
            show_default="600",
        ),
    ] = None,
    trace: Annotated[
        str | None, typer.Option(help="Audit an instant of this trace's simulation instead.")
    ] = None,
    at: Annotated[
        float | None, typer.Option(help="Simulation time of the instant, in seconds.", min=0)
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="With --trace: devices.", show_default="as for `simulate`")
    ] = None,
    speeds: Annotated[
        str | None, typer.Option(help="With --trace: speed table.", show_default=DEFAULT_SPEEDS)
    ] = None,
    mechanism: MechanismOption = None,
    round_s: RoundOption = None,
    skip_impossible: SkipOption = False,
    report: Annotated[
        Path | None, typer.Option(help="Write a self-contained HTML page with figures.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    as_json: Json = False,
) -> None:
    """Measure how fair a policy is on an instance, with a witness for every figure.

    Pareto slack: speed that could be gained without loss to any participant. Envy: gain from
    another participant's devices. Sharing incentive: gain from an equal split. Over- and
    under-reports: gain from the best misreport of speeds. Efficiency: total speed over the
    maximum. All in normalised speed; at most 0 is fair, 100 % is efficient.

    Example:  fairlead audit --live

    Example:  fairlead audit --instance instance.json --policy oef --fail-if 'envy>1e-6'
    """
    from fairlead.insight.audit.thresholds import AuditError, Limit

    limits = [Limit.parse(text) for text in fail_if or ()]
    moment = {"--at": at, "--cluster": cluster, "--speeds": speeds, "--mechanism": mechanism,
              "--round": round_s, "--skip-impossible": skip_impossible or None}  # fmt: skip
    instances: Sequence[Path | SourceText] = instance or []
    speeds_now: Sequence[Mapping[str, object]] = []
    if live:
        policy, instances, speeds_now = _fetch_from_server(policy, instance, trace)
    if not policy:
        raise UsageError("--policy: missing: expected a policy, see `fairlead policies`")
    if report is not None:
        files = {"--trace": trace, "--cluster": cluster, "--speeds": speeds}
        refuse_overwriting("--report", report, inputs=files)
        for one in instance or ():
            refuse_overwriting("--report", report, inputs={"--instance": one})
    audits = [
        _with_assumptions(audited, speeds_now)
        for spec in policy
        for audited in _audits(spec, instances, trace, moment, by, lies)
    ]
    if report is not None:
        _write_report(report, audits)
    _print_results(audits, policy, markdown=markdown, as_json=as_json)
    broken = [line for limit in limits for a in audits if (line := limit.violation(a))]
    if broken:
        raise AuditError("; ".join(broken))


def _fetch_from_server(
    policy: list[str] | None, instance: list[Path] | None, trace: str | None
) -> "tuple[list[str], list[SourceText], list[dict[str, object]]]":
    """Return the named policies, or the server's if there are none, its jobs and its speeds."""
    import json

    from fairlead.client import Client
    from fairlead.files.parsing.text import SourceText

    if instance or trace:
        raise UsageError("--live: excludes --instance and --trace")
    server = Client.from_environment()
    jobs = SourceText("the server now", json.dumps(server.get("/v1/instance")))
    return policy or [server.get("/v1/about")["policy"]], [jobs], server.get("/v1/speeds")


def _with_assumptions(audited: "Audit", speeds: Sequence[Mapping[str, object]]) -> "Audit":
    """Return the audit with the speeds that a server assumes."""
    from dataclasses import replace

    from fairlead.cli.client.speeds import workload_label

    assumed = [s for s in speeds if s["source"] == "assumed"]
    return replace(
        audited,
        believed_speeds=len(speeds),
        assumed_speeds=tuple(f"{workload_label(s)} on {s['accelerator']}" for s in assumed),
    )


def _audits(
    spec: str,
    instances: "Sequence[Path | SourceText]",
    trace: str | None,
    moment: Mapping[str, object],
    by: AuditRows | None,
    lies: int | None,
) -> "Iterator[Audit]":
    from fairlead.insight.audit.audit import audit as measure
    from fairlead.insight.audit.misreport import SOLVES
    from fairlead.policies.rules.priority import create_policy

    policy = create_policy(spec)
    for where, snap in _snapshots(spec, policy, instances, trace, moment):
        with _progress(f"{spec} on {where}") as show:
            yield measure(
                snap,
                policy,
                name=spec,
                where=where,
                by=None if by is None else ("jobs" if by is AuditRows.JOB else "tenants"),
                solves=SOLVES if lies is None else lies,
                progress=show,
            )


def _snapshots(
    spec: str,
    policy: "PriorityPolicy",
    instances: "Sequence[Path | SourceText]",
    trace: str | None,
    moment: Mapping[str, object],
) -> "Iterator[tuple[str, Snapshot]]":
    from fairlead.cli.shared.instances import snapshot_for

    if trace is not None and instances:
        raise UsageError("--trace: excludes --instance: expected one of them")
    if trace is None and not instances:
        raise UsageError("no jobs: expected --instance FILE, --live, or --trace FILE --at SECONDS")
    if trace is None:
        for option, value in moment.items():
            if value is not None:
                raise UsageError(f"{option}: needs --trace")
        for instance in instances:
            where = instance.name.removesuffix(".gz").removesuffix(".json")
            yield where, snapshot_for(policy, instance)
        return
    at = moment["--at"]
    if not isinstance(at, float):
        raise UsageError("--trace: needs --at SECONDS, the instant to audit")
    yield f"{Path(trace).name} at {at:g} s", _snapshot_at(spec, trace, at, moment)


def _snapshot_at(spec: str, trace: str, at: float, moment: Mapping[str, object]) -> "Snapshot":
    from fairlead.cli.shared.output import messages
    from fairlead.cli.shared.skipped_jobs import print_skipped, suggest_skipping
    from fairlead.insight.sim_snapshot import snapshot_at
    from fairlead.sim.runs import SimulationOptions, scenario_of

    mechanism, round_s = moment["--mechanism"], moment["--round"]
    setup = SimulationOptions(
        cluster=str(moment["--cluster"] or DEFAULT_CLUSTER),
        speeds=str(moment["--speeds"] or DEFAULT_SPEEDS),
        policy=spec,
        trace=trace,
        mechanism=None if mechanism is None else str(mechanism),
        round_s=round_s if isinstance(round_s, float) else None,
        skip_impossible=moment["--skip-impossible"] is True,
    )
    with suggest_skipping():
        scenario = scenario_of(setup)
    print_skipped(scenario.skipped, messages)
    return snapshot_at(scenario, at)


@contextmanager
def _progress(title: str) -> "Iterator[Callable[[int, int], None] | None]":
    """Show the progress of the search for misreports on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from fairlead.cli.shared.output import messages

    if not messages.is_terminal:
        yield None
        return
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task(f"misreports to {title}")
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _write_report(path: Path, audits: "Sequence[Audit]") -> None:
    from fairlead.files.parsing.text import write_text
    from fairlead.insight.audit.page import audit_page

    write_text(path, audit_page(audits))


def _print_results(
    audits: "Sequence[Audit]", policies: Sequence[str], *, markdown: bool, as_json: bool
) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results, table
    from fairlead.insight.audit.summary import (
        HEADINGS,
        assumptions,
        details,
        markdown_table,
        worst_rows,
    )

    if as_json:
        documents = [a.as_dict() for a in audits]
        print_json(documents[0] if len(documents) == 1 else {"audits": documents})
    elif markdown:
        results.print(markdown_table(audits), highlight=False, markup=False, soft_wrap=True)
    elif len(audits) == 1:
        only = audits[0]
        title = f"{only.policy} on {only.where}: {len(only.participants)} {only.participants.by}"
        table(title, ["figure", "", "witness"], details(only), figures=False)
        results.print(f"Compared with: {only.participants.feasible_set}.", soft_wrap=True)
    else:
        rows = worst_rows(audits)
        several = len(audits) > len(policies)
        table("worst of all instances" if several else audits[0].where, HEADINGS, rows)
    if not as_json and (note := assumptions(audits[0])):
        results.print(note, highlight=False, markup=False, soft_wrap=True)
