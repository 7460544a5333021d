"""Creates a mechanism from the names on the command line."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from fairlead.mechanisms.base import FluidMechanism, ForksDeclaredJobs, Mechanism
from fairlead.model.capabilities import capabilities_of
from fairlead.model.errors import UsageError
from fairlead.model.submission.bounds import ROUND_RANGE
from fairlead.policies.rules.priority import create_policy
from fairlead.registry import PlugIn, available, create, is_available, load, plug_in


def create_mechanism(
    policy: str, mechanism: str | None = None, round_s: float | None = None
) -> "Mechanism[Any] | FluidMechanism":
    """Return the mechanism that ``policy`` names, or one that realises the shares it names.

    A name of the mechanisms' group needs no policy; a share policy is realised by ``mechanism``,
    or else by the one the policy prefers (``shares``).
    """
    if round_s is not None:
        ROUND_RANGE.check("round_s", round_s)
    name = policy.partition(":")[0]
    timing: dict[str, object] = {} if round_s is None else {"round_s": round_s}
    is_policy = is_available("policies", name)
    if not is_policy and is_available("mechanisms", name):
        if mechanism is not None:
            raise UsageError(f"{name!r} needs no mechanism: leave out --mechanism")
        return _create(policy, timing)
    if not is_policy:
        raise _mechanism_takes_no_policy(name)
    if mechanism is not None and not realises_policies(mechanism):
        label = mechanism.partition(":")[0]
        raise UsageError(
            f"mechanism: {label!r} realises no policy: name it as the policy instead:"
            f" --policy {mechanism}"
        )
    shares = create_policy(policy)
    return _create(mechanism or shares.capabilities.mechanism, {"policy": shares, **timing})


def create_live_mechanism(
    policy: str, mechanism: str | None = None, round_s: float | None = None
) -> "Mechanism[Any]":
    """Return the same for real devices; refuse what only the simulator can carry out."""
    made = create_mechanism(policy, mechanism, round_s)
    if isinstance(made, FluidMechanism):
        raise UsageError("a fluid mechanism gives fractions of devices: for simulation only")
    if isinstance(made, ForksDeclaredJobs):
        made = made.forking_declared_jobs()
    elif capabilities_of(made).forks:
        raise UsageError("it forks jobs that are not made for it into copies: for simulation only")
    _check_initial_memory(made, plug_ins(policy, mechanism)[-1])
    return made


def plug_ins(policy: str, mechanism: str | None = None) -> tuple[PlugIn, ...]:
    """Return the plug-ins that decide: the policy, if there is one, and the mechanism."""
    name = policy.partition(":")[0]
    if not is_available("policies", name):
        return (plug_in("mechanisms", policy),)
    preferred = create_policy(policy).capabilities.mechanism
    return plug_in("policies", policy), plug_in("mechanisms", mechanism or preferred)


def _check_initial_memory(made: Mechanism[Any], described: PlugIn) -> None:
    """Raise UsageError if a plug-in cannot even return its first memory."""
    try:
        made.initial()
    except Exception as error:
        if described.built_in:
            raise
        raise UsageError(
            f"{described} has no initial memory: {type(error).__name__}: {error}:"
            " update the package"
        ) from error


def _mechanism_takes_no_policy(name: str) -> UsageError:
    known = sorted({*available("policies"), *mechanisms_without_policy()})
    near = get_close_matches(name, known, n=1)
    if near:
        return UsageError(f"policy: unknown name {name!r}: did you mean {near[0]!r}?")
    return UsageError(f"policy: unknown name {name!r}: expected one of {', '.join(known)}")


def mechanisms_without_policy() -> Iterator[str]:
    """Yield the names of mechanisms that realise no policy; broken plug-ins are left out."""
    for name in available("mechanisms"):
        with suppress(UsageError):
            if not realises_policies(name):
                yield name


def realises_policies(mechanism: str) -> bool:
    """Return whether a mechanism takes a policy; an unknown name counts as one that does."""
    name = mechanism.partition(":")[0]
    return not is_available("mechanisms", name) or "policy" in _options(name)


def stored_names(policy: str, mechanism: str | None) -> tuple[str, str | None]:
    """Return the names that decided in a stored run: earlier versions ignored such a policy."""
    if mechanism is None or realises_policies(mechanism):
        return policy, mechanism
    return mechanism, None


def _options(mechanism: str) -> set[str]:
    return {field.name for field in fields(load("mechanisms", mechanism)[0])}


def _create(spec: str, options: dict[str, object]) -> "Mechanism[Any] | FluidMechanism":
    name = spec.partition(":")[0]
    if is_available("mechanisms", name):
        known = _options(name)
        if "policy" in known and "policy" not in options:
            raise UsageError(
                f"{name!r} realises a policy's shares: give --policy POLICY --mechanism {name}"
            )
        options = {key: value for key, value in options.items() if key in known}
    made: Mechanism[Any] | FluidMechanism = create("mechanisms", spec, **options)
    return made
