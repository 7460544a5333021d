"""``fairlead audit``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.shared.options import Json, MechanismOption, RoundOption
from fairlead.data import DEFAULT_CLUSTER, DEFAULT_SPEEDS
from fairlead.model.errors import UsageError

if TYPE_CHECKING:
    from fairlead.files.parsing.text import Text
    from fairlead.insight.audit.audit import Audit
    from fairlead.model.snapshot import Snapshot
    from fairlead.policies.rules.priority import PriorityPolicy


class By(StrEnum):
    """Between whom fairness is measured."""

    JOB = "job"
    TENANT = "tenant"


def audit(
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="What is audited, see `fairlead policies`; repeat it to compare."),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Audit the server's jobs as they are now, by its policy."),
    ] = False,
    instance: Annotated[
        list[Path] | None,
        typer.Option(help="The jobs and devices, as JSON; repeat it for the worst of several."),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if this holds, e.g. 'envy>1e-6'. Figures: envy, pareto_slack,"
            " sharing_incentive, over_report, under_report, efficiency. May be repeated."
        ),
    ] = None,
    by: Annotated[
        By | None, typer.Option(help="Who takes part.", show_default="what the policy serves")
    ] = None,
    lies: Annotated[
        int | None,
        typer.Option(help="About how many lies are tried; 0: none.", min=0, show_default="600"),
    ] = None,
    trace: Annotated[
        str | None, typer.Option(help="Audit a moment of this simulated trace instead.")
    ] = None,
    at: Annotated[
        float | None, typer.Option(help="The moment, in seconds of the simulation.", min=0)
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="With --trace: as for `simulate`.")] = None,
    speeds: Annotated[str | None, typer.Option(help="With --trace: as for `simulate`.")] = None,
    mechanism: MechanismOption = None,
    round_s: RoundOption = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page with figures, which needs no network.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table for a page of documentation.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure how fair a policy is on an instance, with a witness for every figure.

    Pareto slack: what could be had without harm to anybody. Envy: who would rather have whose
    devices. Sharing incentive: who would be better off with an equal split. Over- and
    under-reports: what the best lie about speeds gains. Efficiency: total speed over the
    greatest there is. All in normalised speed; at most 0 is as it should be, 100 % for
    efficiency.

    Example:  fairlead audit --instance instance.json --policy oef --fail-if 'envy>1e-6'
    """
    from fairlead.insight.audit.thresholds import AuditError, Limit

    limits = [Limit.parse(text) for text in fail_if or ()]
    moment = {"--at": at, "--cluster": cluster, "--speeds": speeds, "--mechanism": mechanism,
              "--round": round_s}  # fmt: skip
    instances: Sequence[Path | Text] = instance or []
    if live:
        policy, instances = _fetch_from_server(policy, instance, trace)
    if not policy:
        raise UsageError("audit needs --policy POLICY, see `fairlead policies`")
    audits = [
        found for spec in policy for found in _audits(spec, instances, trace, moment, by, lies)
    ]
    if report is not None:
        _write_report(report, audits)
    _tell(audits, policy, markdown=markdown, as_json=as_json)
    broken = [line for limit in limits for a in audits if (line := limit.broken(a))]
    if broken:
        raise AuditError("; ".join(broken))


def _fetch_from_server(
    policy: list[str] | None, instance: list[Path] | None, trace: str | None
) -> "tuple[list[str], list[Text]]":
    """Return the policy that a server runs, unless others were named, and its jobs."""
    import json

    from fairlead.client import Client
    from fairlead.files.parsing.text import Text

    if instance or trace:
        raise UsageError("--live takes the server's jobs; leave out --instance and --trace")
    server = Client.found()
    found = server.get("/v1/instance")
    jobs = Text("the server now", json.dumps(found))
    return policy or [server.get("/v1/about")["policy"]], [jobs]


def _audits(
    spec: str,
    instances: "Sequence[Path | Text]",
    trace: str | None,
    moment: Mapping[str, object],
    by: By | None,
    lies: int | None,
) -> "Iterator[Audit]":
    from fairlead.insight.audit.audit import audit as measure
    from fairlead.insight.audit.misreport import SOLVES
    from fairlead.policies.rules.priority import policy_named

    policy = policy_named(spec)
    for where, snap in _snapshots(spec, policy, instances, trace, moment):
        with _progress(f"{spec} on {where}") as show:
            yield measure(
                snap,
                policy,
                name=spec,
                where=where,
                by=None if by is None else ("jobs" if by is By.JOB else "tenants"),
                solves=SOLVES if lies is None else lies,
                progress=show,
            )


def _snapshots(
    spec: str,
    policy: "PriorityPolicy",
    instances: "Sequence[Path | Text]",
    trace: str | None,
    moment: Mapping[str, object],
) -> "Iterator[tuple[str, Snapshot]]":
    from fairlead.cli.shared.instances import snapshot_for

    if (trace is None) == (not instances):
        raise UsageError("audit needs --instance FILE, --live, or --trace FILE --at SECONDS")
    if trace is None:
        for option, value in moment.items():
            if value is not None:
                raise UsageError(f"{option} goes with --trace; leave it out with --instance")
        for given in instances:
            where = given.name.removesuffix(".gz").removesuffix(".json")
            yield where, snapshot_for(policy, given)
        return
    at = moment["--at"]
    if not isinstance(at, float):
        raise UsageError("--trace needs --at SECONDS: the moment to audit")
    yield f"{Path(trace).name} at {at:g} s", _snapshot_at(spec, trace, at, moment)


def _snapshot_at(spec: str, trace: str, at: float, asked: Mapping[str, object]) -> "Snapshot":
    from fairlead.cli.research.runs import SimulationOptions, scenario_of
    from fairlead.insight.sim_snapshot import snapshot_at

    mechanism, round_s = asked["--mechanism"], asked["--round"]
    setup = SimulationOptions(
        cluster=str(asked["--cluster"] or DEFAULT_CLUSTER),
        speeds=str(asked["--speeds"] or DEFAULT_SPEEDS),
        policy=spec,
        trace=trace,
        mechanism=None if mechanism is None else str(mechanism),
        round_s=round_s if isinstance(round_s, float) else None,
    )
    return snapshot_at(scenario_of(setup), at)


@contextmanager
def _progress(what: str) -> "Iterator[Callable[[int, int], None] | None]":
    """Show on a terminal how far the search for lies has come."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from fairlead.cli.shared.output import messages

    if not messages.is_terminal:
        yield None
        return
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task(f"lies to {what}")
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _write_report(path: Path, audits: "Sequence[Audit]") -> None:
    from fairlead.files.parsing.text import write_text
    from fairlead.insight.audit.page import audit_page

    write_text(path, audit_page(audits))


def _tell(
    audits: "Sequence[Audit]", policies: Sequence[str], *, markdown: bool, as_json: bool
) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results, table
    from fairlead.insight.audit.summary import (
        HEADINGS,
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
        title = f"{only.policy} on {only.where}: {len(only.parties)} {only.parties.by}"
        table(title, ["figure", "", "what shows it"], details(only), figures=False)
        results.print(f"Compared with: {only.parties.feasible_set}.", soft_wrap=True)
    else:
        rows = worst_rows(audits)
        several = len(audits) > len(policies)
        table("the worst of all instances" if several else audits[0].where, HEADINGS, rows)
