"""Design notes of the policies and mechanisms of Fairlead."""

_NOTES = {
    "policies.md": (
        *("cost", "cost-slo", "fifo", "finish-time", "hierarchical", "isolated"),
        *("makespan", "max-min", "sjf", "throughput"),
    ),
    "fairlead-policy.md": ("fairlead",),
    "tenants.md": ("oef", "oef-cooperative", "tenant-max-min", "trading", "tenants"),
    "rounds.md": ("gavel", "ideal", "shares", "units"),
    "oef-placement.md": ("rounding",),
    "gandiva-fair.md": ("gandiva-fair", "lottery"),
    "gandiva.md": ("gandiva", "gavel-gandiva"),
    "hadar.md": ("hadar", "hadare"),
    "baselines.md": ("allox", "capacity", "srtf", "themis", "tiresias"),
}
"""file in ``docs/design`` → policies and mechanisms that it describes"""


def design_note(name: str) -> str | None:
    """Return the path of the design note of a policy or mechanism, None if it has none."""
    notes = (note for note, names in _NOTES.items() if name in names)
    return next((f"docs/design/{note}" for note in notes), None)
