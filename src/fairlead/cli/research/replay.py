"""``fairlead replay``: from a log of events back to the scheduler's state."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import Json


def replay(
    log: Annotated[Path, typer.Argument(help="A file written by `simulate --log`.")],
    as_json: Json = False,
) -> None:
    """Rebuild the scheduler's state from a log of events, without clock or solver.

    Prints the SHA-256 of the state, and fails unless it is the one that the run ended in.

    Example:  fairlead replay events.jsonl
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.model.errors import InputError
    from fairlead.sim.run_log import replay_file

    found = replay_file(log)
    ended = found.logged_sha256 is not None
    if as_json:
        print_json(
            {
                "events": found.events,
                "state_sha256": found.sha256,
                "logged_sha256": found.logged_sha256,
                "same": found.same,
            }
        )
    else:
        verdict = ", the same as the run's" if found.same else ""
        results.print(
            f"{found.events} events lead to state {found.sha256}{verdict}", soft_wrap=True
        )
    if not found.same:
        raise InputError(
            f"the run ended in another state, {found.logged_sha256}"
            if ended
            else "the log ends before the run did: it has no end line",
            fix="replay it with the version of Fairlead that wrote it, unchanged"
            if ended
            else "give the whole log of a run that has ended",
            source=str(log),
        )
