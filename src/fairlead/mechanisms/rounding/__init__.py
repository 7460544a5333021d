"""OEF's placer (§4.3): tenants' shares in rounds of whole devices."""

from fairlead.mechanisms.rounding.mechanism import Rounding

__all__ = ["Rounding"]
