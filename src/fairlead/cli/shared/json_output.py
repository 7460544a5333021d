"""How commands speak to programs; without Rich, which takes time to load."""

import json
import sys
from typing import Any


def print_json(value: Any) -> None:
    """Write one JSON document to stdout."""
    # Unlike json.dump, json.dumps encodes without a Python call for every value.
    sys.stdout.write(json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n")
