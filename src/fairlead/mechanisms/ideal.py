"""The fluid realisation of a share policy: every job gets exactly its shares (Gavel §7.5)."""

from dataclasses import dataclass

from fairlead.model.capabilities import Capabilities, capabilities_of
from fairlead.policies.base import Policy


@dataclass(frozen=True)
class Ideal:
    """Give every job exactly its shares at every moment, as if devices could be divided.

    No real cluster can do so; in simulation it is the yardstick of other mechanisms. The shares
    are recomputed at every arrival, completion and loss of a node, not at the end of rounds.
    """

    policy: Policy
    fluid: bool = True

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the policy."""
        return capabilities_of(self.policy)
