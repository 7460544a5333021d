"""Physics files: named values, overrides and errors."""

from pathlib import Path

import pytest

from fairlead.model.errors import InputError
from fairlead.sim.physics.effects import (
    Locality,
    Topology,
)
from fairlead.sim.physics.gandiva import gandiva_physics
from fairlead.sim.physics.reader import read_physics

# -- files --------------------------------------------------------------------------------------


def test_file_overrides_named_values_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "base: gandiva\neffects: [costs, locality]\ntopology: {per_socket: 4}\n"
        "workloads:\n  '*': {costs: {resume_s: 2}}\n  VGG16: {locality: {nodes: 0.3}}\n"
    )
    physics = read_physics(str(path))
    assert physics is not None
    assert physics.effects == {"costs", "locality"}
    assert physics.topology == Topology(per_switch=2, per_socket=4)
    assert physics.of("anything").costs.resume_s == 2.0
    assert physics.of("VGG16").locality == Locality(switches=0.8, sockets=0.6, nodes=0.3)
    assert physics.of("LanguageModel").switch.sensitivity == 0.19


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("effects: [gravity]", "gravity"),
        ("base: newton", "newton"),
        ("workloads: {VAE: {packed: 0}}", "workloads.VAE.packed"),
        ("workloads: {VAE: {locality: {nodes: 1.5}}}", "workloads.VAE.locality.nodes"),
        ("workloads: {VAE: {locality: {moon: 1}}}", "moon"),
        ("topology: {per_switch: 0}", "per_switch"),
        ("effects: costs", "not a list"),
        ("a: [", "invalid YAML"),
    ],
)
def test_invalid_file_is_rejected_with_its_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_physics(str(path))
    assert message in str(caught.value)


def test_named_physics_are_none_and_gandiva() -> None:
    assert read_physics("none") is None
    assert read_physics("gandiva") is gandiva_physics()
