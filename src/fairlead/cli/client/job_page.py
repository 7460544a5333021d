"""The page of one job: its fields, its leases and the last lines of its log."""

from typing import Any

from fairlead.cli.shared.output import (
    counts_text,
    duration,
    local_time,
    pluralise,
    printable,
    results,
    table,
)
from fairlead.client import Client, job_path

_SHOWN_LEASES = 10
_USUAL = {("partners", "0"), ("code_dirty", "False"), ("suspicious_reports", "0")}
"""values that the page leaves out, as it does empty ones"""


def print_job(server: Client, job: dict[str, Any]) -> None:
    """Print a job with its last leases and the last lines of its log."""
    fields = {key: value for key, value in job.items() if key not in ("log_tail", "signal")}
    if job.get("signal"):
        codes = " ".join(map(str, job["exit_codes"]))
        fields["exit_codes"] = f"{codes} ({job['signal']})"
    rows = [[key, _format_field(key, value)] for key, value in fields.items()]
    rows = [[key, text] for key, text in rows if text and (key, text) not in _USUAL]
    table(f"job {job['id']}", ["", "value"], rows, figures=False)
    _print_speeds(server.get(job_path(job["id"], "speeds")))
    if job["leases"]:
        _print_leases(server.get(job_path(job["id"], "leases")))
    if job.get("log_tail"):
        results.print("last lines of its log:")
        for line in job["log_tail"]:
            results.print(f"  {printable(line)}", highlight=False, soft_wrap=True)


def _print_speeds(speeds: list[dict[str, Any]]) -> None:
    """Print the speeds that the scheduler believes of a job that has not ended."""
    if not speeds:
        return
    rows = [
        [
            speed["accelerator"],
            str(speed["gang"]),
            f"{speed['steps_per_s']:.4g}",
            speed["source"],
            "" if speed["age_s"] is None else f"{speed['age_s']:.0f} s",
        ]
        for speed in speeds
    ]
    table("believed speeds", ["accelerator", "gang", "steps/s", "source", "age"], rows)


def _print_leases(answer: dict[str, Any]) -> None:
    shown = answer["ended"][-_SHOWN_LEASES:]
    if not shown:
        return
    rows = [
        [
            str(lease["lease"]),
            counts_text(lease["accelerators"]),
            ", ".join(lease["nodes"]),
            local_time(lease["started_at"]),
            duration(lease["ended_at"] - lease["started_at"]),
            lease["ending"],
            f"{lease['steps']:g}",
            _switch(lease["began"], lease["start_s"]),
            _switch(lease["left"], lease["end_s"]),
            _seconds(lease["lost_s"]),
        ]
        for lease in shown
    ]
    heads = ["lease", "devices", "nodes", "started", "held", "ending", "steps", "began", "left"]
    heads.append("lost")
    ended = pluralise(len(answer["ended"]), "ended lease")
    part = f"last {len(shown)} of {ended}" if len(shown) < len(answer["ended"]) else ended
    table(f"{part}, {answer['device_hours']:.3g} device hours in all", heads, rows)
    for lease in shown:
        if switch := lease.get("switch"):
            line = f"lease {lease['lease']}: {printable(switch)}"
            results.print(line, highlight=False, markup=False, soft_wrap=True)


def _switch(way: str, seconds: float | None) -> str:
    """Return how a lease got or gave up its devices, and the seconds without a step meanwhile."""
    return _seconds(seconds) if not way else f"{way} {_seconds(seconds)}"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f} s"


def _format_field(key: str, value: object) -> str:
    if isinstance(value, float) and key.endswith("_at"):
        return local_time(value)
    if isinstance(value, dict):
        return " ".join(f"{name}={_format_field('', entry)}" for name, entry in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
