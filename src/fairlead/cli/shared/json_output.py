"""JSON output of commands; without Rich, which takes time to load."""

import json
import sys
from typing import Any


def print_json(value: Any) -> None:
    """Write one JSON document to stdout."""
    # json.dumps encodes without a Python call per value, unlike json.dump.
    sys.stdout.write(json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n")
