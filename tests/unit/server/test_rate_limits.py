"""Rate limits and redaction of secrets in logs."""

import pytest

from fairlead.server.access import rate_limits as module
from fairlead.server.access.rate_limits import RateLimitedError, TokenBuckets, retry_after
from fairlead.server.logs import redact_secrets


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(buckets: TokenBuckets, key: str, times: int) -> int:
    count = 0
    for _ in range(times):
        try:
            buckets.take(key)
            count += 1
        except RateLimitedError:
            pass
    return count


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    clock = Clock()
    buckets = TokenBuckets(10.0, 50, clock)
    assert taken(buckets, "a", 80) == 50
    clock.now += 2.0
    assert taken(buckets, "a", 80) == 20
    clock.now += 1000.0
    assert taken(buckets, "a", 80) == 50


def test_each_key_has_a_separate_limit() -> None:
    buckets = TokenBuckets(1.0, 5, Clock())
    assert taken(buckets, "a", 9) == 5
    assert taken(buckets, "b", 9) == 5


def test_a_request_after_the_reported_wait_succeeds() -> None:
    clock = Clock()
    buckets = TokenBuckets(0.25, 2, clock)
    taken(buckets, "a", 2)
    with pytest.raises(RateLimitedError, match=r"^rate limit exceeded; retry in 4 s$") as caught:
        buckets.take("a")
    assert retry_after(caught.value) == "4"
    clock.now += caught.value.wait_s
    buckets.take("a")


def test_memory_is_bounded_and_the_emptiest_buckets_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MAX_KEYS", 100)
    clock = Clock()
    buckets = TokenBuckets(1.0, 50, clock)
    taken(buckets, "greedy", 50)
    for i in range(1000):
        buckets.take(f"client {i}")
    assert len(buckets._full_at) <= 100
    assert taken(buckets, "greedy", 1) == 0


def test_secrets_are_redacted_in_log_lines() -> None:
    fields = {
        "event": "request",
        "path": "/v1/tokens/fl_0123456789ab_abcDEF-_123",
        "url": "postgresql+psycopg://me:hunter2@db/x",
        "token": "abc",
        "status": 200,
    }
    assert redact_secrets(None, "info", fields) == {
        "event": "request",
        "path": "/v1/tokens/fl_…",
        "url": "postgresql+psycopg://me:…@db/x",
        "token": "…",
        "status": 200,
    }


def test_a_request_for_many_jobs_makes_later_requests_wait() -> None:
    now = [0.0]
    buckets = TokenBuckets(10.0, 5.0, lambda: now[0])
    buckets.take("a")
    buckets.charge("a", 20)  # accepted, though only four were left
    with pytest.raises(RateLimitedError, match=r"retry in 1\.7 s"):
        buckets.take("a")
    buckets.take("b")
    now[0] = 1.7
    buckets.take("a")
    buckets.charge("a", 10_000)
    with pytest.raises(RateLimitedError, match=r"retry in 30"):
        buckets.take("a")
    now[0] = 31.8
    buckets.take("a")
