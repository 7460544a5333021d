"""Mechanisms by name: which of them realise a policy's shares, and which schedule alone."""

import json
from collections.abc import Callable

import pytest

from fairlead.mechanisms.factory import (
    create_live_mechanism,
    create_mechanism,
    mechanisms_without_policy,
)
from fairlead.mechanisms.hadar.mechanism import Hadar
from fairlead.model.errors import UsageError
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.server.config.scheduling import (
    build_scheduling_config,
    changed_scheduling_config,
    load_scheduling_config,
    plan_lead_s,
)


@pytest.mark.parametrize("mechanism", sorted(mechanisms_without_policy()))
@pytest.mark.parametrize("create", [create_mechanism, create_live_mechanism])
def test_a_policy_beside_a_mechanism_that_realises_none_is_refused(
    create: Callable[[str, str], object], mechanism: str
) -> None:
    with pytest.raises(UsageError, match=f"mechanism: '{mechanism}'.*: --policy {mechanism}$"):
        create("fifo", mechanism)


def test_the_options_of_such_a_mechanism_stay_in_the_advice() -> None:
    with pytest.raises(UsageError, match=r"'hadar' realises no policy.*--policy hadar:eta=2$"):
        create_mechanism("fifo", "hadar:eta=2")


def test_a_stored_configuration_with_an_ignored_policy_still_loads() -> None:
    table = SpeedTable({SpeedKey("w", 1, "v100"): 1.0})
    stored = json.loads(build_scheduling_config("fifo", None, 60.0, table).text)
    loaded = load_scheduling_config(json.dumps({**stored, "mechanism": "hadar"}))
    assert (loaded.policy, loaded.mechanism_name) == ("hadar", None)
    assert isinstance(loaded.mechanism, Hadar)


@pytest.mark.parametrize(
    ("round_s", "lead_s", "early_s"),
    [(4.0, 1.0, 2.0), (20.0, 5.0, 10.0), (40.0, 10.0, 15.0), (100.0, 25.0, 25.0), (600.0, 30, 30)],
)
def test_plans_are_requested_earlier_where_processes_of_moves_start_meanwhile(
    round_s: float, lead_s: float, early_s: float
) -> None:
    assert plan_lead_s(round_s) == lead_s
    assert plan_lead_s(round_s, hands_over=True) == early_s
    config = build_scheduling_config("max-min", None, round_s, SpeedTable({}), hands_over=True)
    assert config.plan_lead_s == early_s
    changed = changed_scheduling_config(config, policy="fifo")
    assert (changed.plan_lead_s, changed.hands_over) == (early_s, True)
    assert load_scheduling_config(config.text).plan_lead_s == lead_s
    assert load_scheduling_config(config.text, hands_over=True) == config


def test_logs_of_earlier_versions_charge_pinned_devices_as_these_did() -> None:
    config = build_scheduling_config("max-min", None, 60.0, SpeedTable({}))
    assert load_scheduling_config(config.text) == config
    earlier = {k: v for k, v in json.loads(config.text).items() if k != "charges_active"}
    loaded = load_scheduling_config(json.dumps(earlier, separators=(",", ":")))
    assert (config.charges_idle, loaded.charges_idle) == (False, True)
    assert json.loads(loaded.text) == earlier
    assert not changed_scheduling_config(loaded, policy="fifo").charges_idle
