"""Faults that axe finds on a page."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

_RUN = """() => axe.run({ resultTypes: ["violations"] }).then(({ violations }) => violations
  .filter(({ impact }) => impact === "serious" || impact === "critical")
  .map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html)]))"""


def serious_faults(page: Page) -> list[Any]:
    """Return the serious and critical faults: the rule, and the elements that break it."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    faults: list[Any] = page.evaluate(_RUN)
    return faults
