"""``fairlead policies NAME``: explains every policy and mechanism with its options."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead import registry
from fairlead.cli.research.policies import explain, policies
from fairlead.model.errors import UsageError
from fairlead.registry import PlugIn, available, parse_options

ROOT = Path(__file__).parents[3]
NAMES = [name for group in ("policies", "mechanisms") for name in available(group)]


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_and_mechanism_is_explained(name: str) -> None:
    explanation = explain(name)
    assert explanation["about"].endswith(".")
    undocumented = [option["name"] for option in explanation["options"] if not option["about"]]
    assert undocumented == [], "add a docstring below each of these fields"
    assert name in (ROOT / explanation["design_note"]).read_text(encoding="utf-8")


def test_an_explanation_shows_defaults_and_an_example_that_can_be_used(
    capsys: pytest.CaptureFixture[str],
) -> None:
    policies("gandiva-fair")
    text = capsys.readouterr().out
    assert "mechanism gandiva-fair: Give tenants the device time" in text
    assert "trade-devices" in text
    assert "--policy gandiva-fair:gain=0.05" in text
    assert "docs/design/gandiva-fair.md" in text
    policies("shares")
    assert "--mechanism shares:reallocate-s=3600" in capsys.readouterr().out


def test_options_after_the_name_are_ignored() -> None:
    assert explain("max-min:packed") == explain("max-min")


@pytest.mark.parametrize(
    ("name", "fix"),
    [("maxmin", "did you mean 'max-min'?"), ("zzzz", "see `fairlead policies` for all names")],
)
def test_an_unknown_name_gets_a_suggestion(name: str, fix: str) -> None:
    with pytest.raises(UsageError, match=f"name: unknown policy or mechanism '{name}': ") as error:
        explain(name)
    assert str(error.value).endswith(fix)


@dataclass(frozen=True)
class Undocumented:
    limit: int = 3

    def allocate(self) -> None:
        """Allocate nothing."""


def test_a_plug_in_of_another_package_is_explained_without_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = f"{__name__}:Undocumented"
    undocumented = PlugIn("policy", "undocumented", "an unknown package", __name__, target)
    known = {**available("policies"), "undocumented": undocumented}
    real = registry.available
    monkeypatch.setattr(
        registry, "available", lambda group: known if group == "policies" else real(group)
    )
    explanation = explain("undocumented")
    assert explanation["options"] == [{"name": "limit", "default": 3, "about": ""}]
    assert explanation["design_note"] is None
    assert parse_options("undocumented", Undocumented, "limit=4") == {"limit": 4}
