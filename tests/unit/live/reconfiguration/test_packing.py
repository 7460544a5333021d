"""Policies that pack jobs are refused where another scheduler chooses the GPUs of each lease."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.cli.client.cluster import _print_devices
from fairlead.engines.plugin import Site, engine_plugin
from fairlead.mechanisms.factory import create_live_mechanism
from fairlead.model.capabilities import capabilities_of
from fairlead.model.errors import InputError
from fairlead.server.api.views import node_views
from fairlead.server.config.scheduling import changed_scheduling_config

PACKING = ("max-min:packed", "gandiva", "gavel-gandiva", "makespan:packed", "cost:packed")
NOT_PACKING = ("max-min", "max-min:placement", "gandiva:packing=false", "hadare", "gandiva-fair")


@pytest.mark.parametrize("policy", [*PACKING, *NOT_PACKING])
def test_policies_declare_whether_they_pack(policy: str) -> None:
    mechanism = create_live_mechanism(policy, None, 60.0)
    assert capabilities_of(mechanism).packs == (policy in PACKING)


@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_slurm_and_ray_choose_the_gpus_of_each_lease(engine: str, tmp_path: Path) -> None:
    plugin, options = engine_plugin(f"{engine}:emulate")
    opened = plugin.open(Site(data=tmp_path), options)
    assert opened.device_chooser.lower() == engine


def test_a_packing_policy_is_refused_at_the_start_and_later(tmp_path: Path) -> None:
    async def start() -> None:
        async with scripted_live(tmp_path / "a", policy="gandiva", device_chooser="Slurm"):
            pass

    async def change() -> None:
        async with scripted_live(tmp_path / "b", device_chooser="Ray") as site:
            config = site.live.policy.config
            packed = changed_scheduling_config(config, policy="max-min:packed")
            try:
                await site.live.policy.request(config, packed, "operator")
            finally:
                assert site.live.policy.config is config

    for name in "ab":
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="Slurm chooses the GPUs of each lease") as refused:
        asyncio.run(start())
    assert refused.value.field == "policy"
    with pytest.raises(InputError, match="'max-min:packed' lets jobs share GPUs, but Ray"):
        asyncio.run(change())


def test_nodes_say_why_their_devices_are_never_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path, device_chooser="Slurm") as site:
            _print_devices([view.model_dump() for view in node_views(site.live)])

    asyncio.run(scene())
    reason = "no readings: Slurm chooses the GPUs of each lease: no device number names a GPU"
    assert reason in capsys.readouterr().out
