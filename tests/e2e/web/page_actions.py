"""Actions on the pages and conditions that several tests share."""

from typing import Any

from playwright.sync_api import Page, Position, expect
from tests.e2e.support.live_server import LiveServer
from tests.e2e.web.browser import Visitor


def opens_a_job(page: Page, row: int, device: dict[str, Any]) -> bool:
    """Click a row of the timeline if a job holds its device now; return whether its page opens."""
    chart, hint = page.get_by_role("application"), page.locator(".hint")
    box = chart.bounding_box()
    assert box is not None
    place: Position = {"x": box["width"] - 3, "y": 30 + 18 * row}
    chart.hover(position=place)
    expect(hint).to_contain_text(f"{device['node']}, device {device['number']} ")
    if " of " in hint.inner_text():
        chart.click(position=place)
    return bool(page.evaluate("location.hash.startsWith('#/jobs/')"))


def apply(page: Page, values: dict[str, str]) -> None:
    """Fill in the policy room, look at the consequences and apply them."""
    for label, value in values.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="Show consequences").click()
    expect(page.get_by_role("heading", name=f"→ {values['Policy']}")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Applied.")).to_be_visible()


def tenant_of(server: LiveServer, id_: str) -> dict[str, Any]:
    return next(tenant for tenant in server.client.get("/v1/tenants") if tenant["id"] == id_)


def colours_in_the_last_columns(page: Page) -> int:
    """Return the number of rows of the timeline whose last pixels have a tenant's colour."""
    return int(
        page.evaluate(
            """() => {
              const canvas = document.querySelector(".timeline canvas");
              const context = canvas.getContext("2d");
              const free = context.getImageData(canvas.width - 4, 2, 1, 1).data.join();
              return [0, 1, 2, 3].filter((row) => {
                const y = 24 + 18 * row + 9;
                return context.getImageData(canvas.width - 4, y, 1, 1).data.join() !== free;
              }).length;
            }"""
        )
    )


def log_in_as(visitor: Visitor, server: LiveServer, **token: object) -> None:
    """Log in with a new token."""
    visitor.log_in(server.client.post("/v1/tokens", {"name": "visitor", **token})["token"])
