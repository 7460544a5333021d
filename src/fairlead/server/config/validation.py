"""Whether settings can be served: the policy, devices and speeds they name exist and fit."""

from collections.abc import Callable

from fairlead.engines.plugin import engine_plugin
from fairlead.files import read_cluster, read_speeds
from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.model.errors import FairleadError, InputError
from fairlead.server.config.settings import Effective, ServeSettings, placed


def verify(found: Effective) -> None:
    """Raise InputError for the first setting that names what does not exist or cannot be used."""
    settings = found.settings
    tries: dict[str, Callable[[ServeSettings], object]] = {
        "policy": lambda s: create_live_mechanism(s.policy),
        "mechanism": lambda s: create_live_mechanism(s.policy, s.mechanism, s.round_s),
        "engine": lambda s: engine_plugin(s.engine),
        "emulate": lambda s: s.emulate and read_cluster(s.emulate),
        "speeds": lambda s: s.speeds and read_speeds(s.speeds),
    }
    for name, try_ in tries.items():
        try:
            try_(settings)
        except InputError as error:
            if error.source is not None:  # a file of its own, which says where it is wrong
                raise
            named = InputError(error.problem, fix=error.fix, field=name)
            raise placed(named, found.origin(name)) from None
        except FairleadError as error:
            named = InputError(str(error), fix="see `fairlead policies`", field=name)
            raise placed(named, found.origin(name)) from None
