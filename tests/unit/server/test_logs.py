"""Log lines as text: no value can forge a line, a field or a terminal sequence."""

import json

import pytest
import structlog

from fairlead.server.logs import format_text_line, redact, redact_secrets

HOSTILE = [
    "x\n2026-01-01T00:00:00Z info    server.stopped",
    "x\r\nforged",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "a\u2028b\u2029c\x85d\x0bd\x0cd\x1ed",
    "\u202egnp.exe",
    "\x00\x7f",
    "\ud800",
]


def line(**fields: object) -> str:
    return format_text_line(None, "", {"timestamp": "T", "level": "info", **fields})


@pytest.mark.parametrize("value", HOSTILE)
def test_control_characters_are_escaped_in_every_part_of_a_line(value: str) -> None:
    text = line(event=value, path=value, exception=f"Traceback\nValueError: {value}")
    first, *rest = text.split("\n")
    assert first.isprintable()
    assert all(each.startswith("  ") and each.isprintable() for each in rest)
    text.encode()


def test_values_keep_their_meaning() -> None:
    assert line(event="request", path="/v1/jobs/ä", status=200, job=None) == (
        "T info    request path=/v1/jobs/ä status=200"
    )
    assert line(event="e", name="a\nb").endswith(r"name=a\nb")


def test_a_value_cannot_forge_another_field() -> None:
    text = line(event="request", job='x" status=200 user="admin', status=403)
    assert text == 'T info    request job="x\\" status=200 user=\\"admin" status=403'
    assert line(event="e", job="a \\", status=403).endswith('job="a \\\\" status=403')


def test_json_lines_escape_control_characters() -> None:
    render = structlog.processors.JSONRenderer()
    for value in HOSTILE[:-1]:
        text = render(None, "", {"event": value})
        assert isinstance(text, str)
        assert "\n" not in text
        assert "\x1b" not in text
        assert json.loads(text)["event"] == value


def test_signed_tokens_are_redacted() -> None:
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
    fields = redact_secrets(None, "", {"path": f"/v1/{token}/x", "event": "request"})
    assert fields["path"] == "/v1/eyJ…/x"
    assert redact("fl_0123456789ab_s3cret") == "fl_…"
