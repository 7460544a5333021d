"""Metrics: the documentation lists all of them, and the labels of tenants are bounded."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.engines.base import DeviceReading, DevicesRead
from fairlead.live.history import tenant_totals
from fairlead.server.api.metrics import render

_PAGE = Path(__file__).parents[3] / "docs/operate/metrics.md"
_HISTOGRAM = re.compile("_(bucket|count|sum)$")
_READING = DeviceReading(
    number=0,
    memory_used_gib=6.0,
    memory_gib=12.0,
    utilisation=0.5,
    temperature_c=41.0,
    uncorrectable_ecc=0,
)


def test_documentation_lists_every_metric_and_counters_survive_a_restart(tmp_path: Path) -> None:
    async def scene() -> str:
        async with scripted_live(tmp_path) as site:
            job = await site.submit(tenant="vision", preempt="yes")
            await site.lease(job)
            await site.live.jobs.cancel(job, "tester")
            await site.lease(await site.submit(tenant="nlp"))
            site.live._report(DevicesRead("k80-0", (_READING,)))
            # Plug-ins have a label before their first failure.
            before = render(site.live).decode()
        async with scripted_live(tmp_path) as site:
            after = render(site.live).decode()
        for line in (
            'fairlead_jobs_submitted_total{tenant="vision"} 1.0',
            'fairlead_jobs_cancelled_total{tenant="vision"} 1.0',
            'fairlead_jobs_cancelled_total{tenant="nlp"} 0.0',
            'fairlead_queue_wait_seconds_bucket{le="+Inf"} 2.0',
        ):
            assert line in before
            assert line in after
        return before

    text = asyncio.run(scene())
    names = re.findall(r"^(fairlead_\w+)(?:\{.*\})? \S+$", text, re.M)
    rendered = {_HISTOGRAM.sub("", name) for name in names}
    rows = [line for line in _PAGE.read_text().splitlines() if line.startswith("| `fairlead_")]
    documented = {name for row in rows for name in re.findall(r"`(fairlead_\w+)`", row)}
    assert rendered == documented


def test_further_tenants_share_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_totals, "MAX_LABELS", 2)
    totals = tenant_totals.TenantTotals()
    for number in range(5):
        totals.of(f"t{number}").finished = number
    assert totals.labels()["t4"] == tenant_totals.OTHERS
    counts = {label: counts.finished for label, counts in totals.by_label().items()}
    assert counts == {"t0": 0, "t1": 1, tenant_totals.OTHERS: 9}
