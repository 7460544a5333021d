"""Creates a mechanism from the names on the command line."""

import math
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from fairlead.mechanisms.base import FluidMechanism, Mechanism
from fairlead.model.capabilities import capabilities_of
from fairlead.model.errors import UsageError
from fairlead.policies.rules.priority import create_policy
from fairlead.registry import available, create


def create_mechanism(
    policy: str, mechanism: str | None = None, round_s: float | None = None
) -> "Mechanism[Any] | FluidMechanism":
    """Return the mechanism that ``policy`` names, or one that realises the shares it names.

    A name of the mechanisms' group needs no policy; a share policy is realised by ``mechanism``,
    or else by the one the policy prefers (``shares``).
    """
    if round_s is not None and not math.isfinite(round_s):
        raise UsageError(f"--round {round_s} is not allowed: give a finite number of seconds")
    name = policy.partition(":")[0]
    timing: dict[str, object] = {} if round_s is None else {"round_s": round_s}
    if name in available("mechanisms") and name not in available("policies"):
        if mechanism is not None:
            raise UsageError(f"{name!r} needs no mechanism: leave out --mechanism")
        return _create(policy, timing)
    if name not in available("policies"):
        raise _mechanism_takes_no_policy(name)
    shares = create_policy(policy)
    return _create(mechanism or shares.capabilities.mechanism, {"policy": shares, **timing})


def create_live_mechanism(
    policy: str, mechanism: str | None = None, round_s: float | None = None
) -> "Mechanism[Any]":
    """Return the same for real devices; refuse what only the simulator can carry out."""
    made = create_mechanism(policy, mechanism, round_s)
    if isinstance(made, FluidMechanism):
        raise UsageError("a fluid mechanism gives fractions of devices: for simulation only")
    if capabilities_of(made).forks:
        raise UsageError(
            "it forks jobs into copies, which only the simulator can merge: for simulation only"
        )
    return made


def _mechanism_takes_no_policy(name: str) -> UsageError:
    decide = [one for one in available("mechanisms") if "policy" not in _options(one)]
    known = sorted({*available("policies"), *decide})
    near = get_close_matches(name, known, n=1)
    if near:
        return UsageError(f"no policy is called {name!r}; do you mean {near[0]!r}?")
    return UsageError(f"no policy is called {name!r}; choose one of {', '.join(known)}")


def _options(mechanism: str) -> set[str]:
    return {field.name for field in fields(available("mechanisms")[mechanism].load())}


def _create(spec: str, options: dict[str, object]) -> "Mechanism[Any] | FluidMechanism":
    points = available("mechanisms")
    name = spec.partition(":")[0]
    if name in points:
        known = _options(name)
        if "policy" in known and "policy" not in options:
            raise UsageError(
                f"{name!r} realises a policy's shares: give --policy POLICY --mechanism {name}"
            )
        options = {key: value for key, value in options.items() if key in known}
    made: Mechanism[Any] | FluidMechanism = create("mechanisms", spec, **options)
    return made
