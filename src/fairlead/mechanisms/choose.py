"""From the names on the command line to a mechanism."""

from dataclasses import fields
from typing import Any

from fairlead.mechanisms.base import Fluid, Mechanism
from fairlead.model.errors import UsageError
from fairlead.policies.ranks import policy_named
from fairlead.registry import available, create


def realise(
    policy: str, mechanism: str | None = None, round_s: float | None = None
) -> "Mechanism[Any] | Fluid":
    """Return the mechanism that ``policy`` names, or one that realises the shares it names.

    A name of the mechanisms' group decides by itself what runs; a share policy is realised by
    ``mechanism``, or else by the one the policy prefers (``shares``).
    """
    name = policy.partition(":")[0]
    timing: dict[str, object] = {} if round_s is None else {"round_s": round_s}
    if name in available("mechanisms") and name not in available("policies"):
        if mechanism is not None:
            raise UsageError(f"{name!r} decides by itself what runs; leave out --mechanism")
        return _create(policy, timing)
    shares = policy_named(policy)
    return _create(mechanism or shares.realised_by, {"policy": shares, **timing})


def realise_live(
    policy: str, mechanism: str | None = None, round_s: float | None = None
) -> "Mechanism[Any]":
    """Return the same for real devices; refuse what only the simulator can carry out."""
    made = realise(policy, mechanism, round_s)
    if isinstance(made, Fluid):
        raise UsageError("a fluid mechanism gives fractions of devices: for simulation only")
    if getattr(made, "forks", False):
        raise UsageError(
            "it forks jobs into copies, which only the simulator can merge: for simulation only"
        )
    return made


def _create(spec: str, given: dict[str, object]) -> "Mechanism[Any] | Fluid":
    points = available("mechanisms")
    name = spec.partition(":")[0]
    if name in points:
        known = {field.name for field in fields(points[name].load())}
        if "policy" in known and "policy" not in given:
            raise UsageError(
                f"{name!r} realises a policy's shares: give --policy POLICY --mechanism {name}"
            )
        given = {key: value for key, value in given.items() if key in known}
    made: Mechanism[Any] | Fluid = create("mechanisms", spec, **given)
    return made
