"""Origin of settings that operators can change while the server runs."""

from collections.abc import Mapping
from typing import Any


def origin_of(answer: Mapping[str, Any]) -> str:
    """Return the origin of the settings in force: those at the start, or a live change."""
    from fairlead.cli.shared.output import local_time

    if answer["set_by"] != "live":
        return "the start-up settings"
    author = f" by {answer['changed_by']}" if answer["changed_by"] else ""
    return f"a live change{author}, {local_time(answer['changed_at'])}"
