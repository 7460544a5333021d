"""``fairlead replay``: rebuilds the scheduler's state from an event log."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import Json


def replay(
    log: Annotated[Path, typer.Argument(help="Event log written by `simulate --log`.")],
    as_json: Json = False,
) -> None:
    """Rebuild the scheduler's state from an event log, without clock or solver.

    Prints the SHA-256 of the state and fails if it differs from the final state of the run.

    Example:  fairlead replay events.jsonl
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.model.errors import InputError
    from fairlead.sim.run_log import replay_file

    outcome = replay_file(log)
    ended = outcome.logged_sha256 is not None
    if as_json:
        print_json(
            {
                "events": outcome.events,
                "state_sha256": outcome.sha256,
                "logged_sha256": outcome.logged_sha256,
                "same": outcome.same,
            }
        )
    else:
        verdict = ", same as the run" if outcome.same else ""
        results.print(
            f"{outcome.events} events lead to state {outcome.sha256}{verdict}", soft_wrap=True
        )
    if not outcome.same:
        raise InputError(
            f"replay differs from the run's final state {outcome.logged_sha256}"
            if ended
            else "no end line",
            fix="expected an unchanged log and the version of Fairlead that wrote it"
            if ended
            else "expected the whole log of a completed run",
            source=str(log),
        )
