"""Check that the policy, mechanism, engine, devices and speeds named by settings can be used.

The checks are those that a start makes of its settings: `fairlead.server.serve` calls the same
functions. What depends on the machine, such as its GPUs, is for ``fairlead doctor``.
"""

from collections.abc import Callable

from fairlead.engines.plugin import ChecksSettings, EngineTraits, engine_plugin
from fairlead.files import read_cluster
from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.model.errors import FairleadError, InputError
from fairlead.server.access.separation import require_separation_for_logins
from fairlead.server.config.beliefs import believed_speeds, hidden_speeds
from fairlead.server.config.declaration import NAMES
from fairlead.server.config.loading import EffectiveSettings, with_origin
from fairlead.server.config.settings import ServeSettings

_LISTED_BY = {"policy": "see `fairlead policies`", "mechanism": "see `fairlead policies`"}
"""setting → where its values are listed"""


def verify(effective: EffectiveSettings) -> None:
    """Raise InputError for the first setting that names a missing or unusable thing."""
    attempts: dict[str, Callable[[ServeSettings], object]] = {
        "policy": lambda s: create_live_mechanism(s.policy),
        "mechanism": lambda s: create_live_mechanism(s.policy, s.mechanism, s.round_s),
        "engine": _check_engine,
        "emulate": lambda s: s.emulate and read_cluster(s.emulate),
        "speeds": believed_speeds,
        "emulated_speeds": lambda s: hidden_speeds(s, emulated=_is_emulated(s)),
    }
    for name, attempt in attempts.items():
        try:
            attempt(effective.settings)
        except InputError as error:
            if error.source is not None:  # the error names a place in the file that was read
                raise
            field = error.field if error.field in NAMES else name
            named = InputError(error.problem, fix=error.fix, field=field)
            raise with_origin(named, effective.origin(field)) from None
        except FairleadError as error:
            problem = str(error).removeprefix(f"{name}: ")
            named = InputError(problem, fix=_LISTED_BY.get(name, ""), field=name)
            raise with_origin(named, effective.origin(name)) from None


def _check_engine(settings: ServeSettings) -> None:
    """Raise FairleadError unless the engine can be opened with these settings."""
    traits = _traits(settings)
    if traits is not None and settings.oidc is not None:
        separates = traits.separates_tenants or settings.trust_jobs
        require_separation_for_logins(separates_tenants=separates)


def _is_emulated(settings: ServeSettings) -> bool:
    traits = _traits(settings)
    return traits is None or traits.emulated


def _traits(settings: ServeSettings) -> EngineTraits | None:
    """Return the traits of the engine; None if its plug-in cannot tell them beforehand."""
    plugin, options = engine_plugin(settings.engine)
    site = settings.site
    return plugin.traits(site, options) if isinstance(plugin, ChecksSettings) else None
