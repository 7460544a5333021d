"""Readers and writers of files, one module per format; every fault is one InputError."""

from fairlead.files.bundled import gandiva_packing, known_accelerators
from fairlead.files.clusters.cluster import (
    format_cluster,
    parse_cluster,
    read_cluster,
    write_cluster,
)
from fairlead.files.clusters.node_events import read_node_events
from fairlead.files.instance import format_instance, read_instance, write_instance
from fairlead.files.speeds.table import format_speeds, read_speeds, write_speeds
from fairlead.files.tenants import TenantsFile, read_tenants
from fairlead.files.traces.jobs import Trace
from fairlead.files.traces.trace import format_trace, read_trace, write_trace
from fairlead.files.traces.validation import check_trace, skip_impossible

__all__ = [
    "TenantsFile",
    "Trace",
    "check_trace",
    "format_cluster",
    "format_instance",
    "format_speeds",
    "format_trace",
    "gandiva_packing",
    "known_accelerators",
    "parse_cluster",
    "read_cluster",
    "read_instance",
    "read_node_events",
    "read_speeds",
    "read_tenants",
    "read_trace",
    "skip_impossible",
    "write_cluster",
    "write_instance",
    "write_speeds",
    "write_trace",
]
