"""Instances read by commands, as snapshots for a policy."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.files.parsing.text import SourceText
    from fairlead.model.snapshot import Snapshot
    from fairlead.policies.rules.priority import PriorityPolicy


def snapshot_for(policy: "PriorityPolicy", source: "Path | SourceText") -> "Snapshot":
    """Return the snapshot of an instance; raise InputError if it lacks a field of the policy."""
    from fairlead.files.instance import parse_instance
    from fairlead.files.parsing.text import read_text
    from fairlead.model.errors import InputError
    from fairlead.model.snapshot import snapshot_of

    text = read_text(source) if isinstance(source, Path) else source
    instance = parse_instance(text)
    try:
        policy.check_lengths(instance)
    except InputError as error:
        raise error.within(source=text.name) from None
    return snapshot_of(instance)
