"""Instances that commands put before a policy."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.files.parsing.text import Text
    from fairlead.model.snapshot import Snapshot
    from fairlead.policies.rules.priority import PriorityPolicy


def snapshot_for(policy: "PriorityPolicy", given: "Path | Text") -> "Snapshot":
    """Return the snapshot of an instance that tells all that the policy reads."""
    from fairlead.files.instance import parse_instance
    from fairlead.files.parsing.text import read_text
    from fairlead.model.errors import InputError
    from fairlead.model.snapshot import snapshot_of

    text = read_text(given) if isinstance(given, Path) else given
    instance = parse_instance(text)
    try:
        policy.check_lengths(instance)
    except InputError as error:
        raise error.within(source=text.name) from None
    return snapshot_of(instance)
