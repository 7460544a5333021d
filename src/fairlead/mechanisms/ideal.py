"""The fluid realisation of a share policy: every job gets exactly its shares (Gavel §7.5)."""

from dataclasses import dataclass

from fairlead.policies.base import Policy


@dataclass(frozen=True)
class Ideal:
    """Give every job exactly its shares at every moment, as if devices could be divided.

    No real cluster can do so; in simulation it is the yardstick of other mechanisms. The shares
    are computed anew at every arrival, completion and loss of a node, not at the end of rounds.
    """

    policy: Policy
    fluid: bool = True

    @property
    def takes_alternatives(self) -> bool:
        """Whether a job may need other numbers of devices on other accelerators."""
        return getattr(self.policy, "takes_alternatives", False)
