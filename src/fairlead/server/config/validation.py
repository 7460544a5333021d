"""Check that the policy, mechanism, engine, devices and speeds named by settings can be used."""

from collections.abc import Callable

from fairlead.engines.plugin import engine_plugin
from fairlead.files import read_cluster
from fairlead.files.speeds.prior import prior_speeds
from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.model.errors import FairleadError, InputError
from fairlead.server.config.loading import EffectiveSettings, with_origin
from fairlead.server.config.settings import ServeSettings


def verify(effective: EffectiveSettings) -> None:
    """Raise InputError for the first setting that names a missing or unusable thing."""
    attempts: dict[str, Callable[[ServeSettings], object]] = {
        "policy": lambda s: create_live_mechanism(s.policy),
        "mechanism": lambda s: create_live_mechanism(s.policy, s.mechanism, s.round_s),
        "engine": lambda s: engine_plugin(s.engine),
        "emulate": lambda s: s.emulate and read_cluster(s.emulate),
        "speeds": lambda s: s.speeds and prior_speeds(s.speeds),
        "emulated_speeds": lambda s: s.emulated_speeds and prior_speeds(s.emulated_speeds),
    }
    for name, attempt in attempts.items():
        try:
            attempt(effective.settings)
        except InputError as error:
            if error.source is not None:  # the error names a place in the file that was read
                raise
            named = InputError(error.problem, fix=error.fix, field=name)
            raise with_origin(named, effective.origin(name)) from None
        except FairleadError as error:
            problem = str(error).removeprefix(f"{name}: ")
            named = InputError(problem, fix="see `fairlead policies`", field=name)
            raise with_origin(named, effective.origin(name)) from None
