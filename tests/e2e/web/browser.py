"""A real Chromium whose pages are watched: console errors, requests to other hosts."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

Scheme = Literal["light", "dark"]
NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str | None:
    """Return the path of this machine's Chromium."""
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start this machine's Chromium, which must exist."""
    options = [*_OPTIONS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=options)
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A user of the pages, with a session of its own."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        scheme: Scheme = "light",
        width: int = 1280,
    ) -> None:
        self._context = browser.new_context(
            base_url=url,
            color_scheme=scheme,
            viewport={"width": width, "height": 900},
            reduced_motion="reduce",
        )
        self._url = url
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(60_000)
        self.errors: list[str] = []
        """errors of the console and of scripts"""
        self.foreign: list[str] = []
        """addresses of requests to other hosts"""
        self.page.on("console", self._record_message)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._record(request.url))

    def _record_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _record(self, address: str) -> None:
        if not address.startswith(f"{self._url}/"):
            self.foreign.append(address)

    def log_in(self, token: str) -> "Visitor":
        """Log in as a user does."""
        self.page.goto("/")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("navigation").wait_for()
        return self

    def log_out(self) -> None:
        """Log out as a user does."""
        self.page.get_by_role("button", name="Log out").click()
        self.page.get_by_label("Token").wait_for()

    def look(self, scheme: Scheme, width: int) -> None:
        """Use another colour scheme and width, as when a phone shows the same page."""
        self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        self.page.set_viewport_size({"width": width, "height": 900})

    def open(self, address: str) -> Page:
        """Open a page by its address, such as jobs/j1, and wait until it has its data."""
        self.page.evaluate("address => { location.hash = address; }", f"#/{address}")
        self.page.locator("main h1").first.wait_for()
        self.page.locator(".loading").first.wait_for(state="detached")
        return self.page

    def cookies(self) -> list[dict[str, object]]:
        """Return the browser's cookies, which scripts may not see."""
        return [dict(cookie) for cookie in self._context.cookies()]

    def close(self) -> None:
        """End the session's pages."""
        self._context.close()
