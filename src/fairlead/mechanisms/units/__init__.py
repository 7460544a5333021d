"""Units of one or more jobs in rounds: space sharing realised (Gavel §5)."""

from fairlead.mechanisms.units.mechanism import Units

__all__ = ["Units"]
