"""Instances read by commands, as snapshots for a policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.files.parsing.text import SourceText
    from fairlead.model.instance import Instance
    from fairlead.model.snapshot import Snapshot
    from fairlead.model.submission.skipped_job import SkippedJob
    from fairlead.policies.rules.priority import PriorityPolicy


def snapshot_for(policy: "PriorityPolicy", source: "Path | SourceText") -> "Snapshot":
    """Return the snapshot of an instance; raise InputError if it lacks a field of the policy."""
    from fairlead.files.instance import parse_instance

    text = _text(source)
    return _snapshot(policy, parse_instance(text), text)


def snapshot_of_possible_jobs(
    policy: "PriorityPolicy", source: "Path | SourceText"
) -> "tuple[Snapshot, Sequence[SkippedJob]]":
    """Return the snapshot without the jobs that can never run, and these jobs."""
    from fairlead.files.instance import parse_possible_jobs

    text = _text(source)
    instance, skipped = parse_possible_jobs(text)
    return _snapshot(policy, instance, text), skipped


def _text(source: "Path | SourceText") -> "SourceText":
    from fairlead.files.parsing.text import read_text

    return read_text(source) if isinstance(source, Path) else source


def _snapshot(policy: "PriorityPolicy", instance: "Instance", text: "SourceText") -> "Snapshot":
    from fairlead.model.errors import InputError
    from fairlead.model.snapshot import snapshot_of

    try:
        policy.check_lengths(instance)
    except InputError as error:
        raise error.within(source=text.name) from None
    return snapshot_of(instance)
