"""Condition of devices for clients and Prometheus: readings of their drivers, and faults."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlead.live.driver import Live
from fairlead.model.cluster import Node
from fairlead.server.api.schemas import DeviceHealthView

_GAUGES = (
    ("memory_used_gib", "Memory in use.", "memory_used_gib"),
    ("memory_gib", "Memory.", "memory_gib"),
    ("utilisation", "Fraction of the last second or so with computation.", "utilisation"),
    ("temperature_celsius", "Temperature.", "temperature_c"),
    ("uncorrectable_ecc_errors", "Memory errors since the last reset.", "uncorrectable_ecc"),
)
"""name, description and field of the gauges by device"""
_LABELS = ("node", "device", "accelerator")


def health_views(live: Live, node: Node) -> list[DeviceHealthView]:
    """Return the devices of a node that have readings or a fault."""
    health, views = live.nodes.health, []
    for number, accelerator in enumerate(node.devices):
        reading = health.readings.get((node.id, number))
        fault = health.faults.get((node.id, number))
        if reading is None and fault is None:
            continue
        view = DeviceHealthView(
            number=number, accelerator=accelerator, fault=None if fault is None else fault.reason
        )
        if reading is not None:
            view.memory_used_gib, view.memory_gib = reading.memory_used_gib, reading.memory_gib
            view.utilisation, view.temperature_c = reading.utilisation, reading.temperature_c
            view.uncorrectable_ecc = reading.uncorrectable_ecc
            view.throttled = list(reading.throttled)
        views.append(view)
    return views


def device_metrics(live: Live) -> Iterator[Metric]:
    """Yield the gauges of devices with readings or faults."""
    views = [
        ((status.node.id, str(view.number), view.accelerator), view)
        for status in live.queries.node_statuses()
        for view in health_views(live, status.node)
    ]
    for name, about, field in _GAUGES:
        gauge = GaugeMetricFamily(f"fairlead_device_{name}", about, labels=_LABELS)
        for labels, view in views:
            if (value := getattr(view, field)) is not None:
                gauge.add_metric(labels, value)
        yield gauge
    about = "1 while the device's clocks are reduced."
    throttled = GaugeMetricFamily("fairlead_device_throttled", about, labels=_LABELS)
    about = "1 while the device is drained because of a fault."
    faulty = GaugeMetricFamily("fairlead_device_faulty", about, labels=_LABELS)
    for labels, view in views:
        throttled.add_metric(labels, float(bool(view.throttled)))
        faulty.add_metric(labels, float(view.fault is not None))
    yield throttled
    yield faulty
