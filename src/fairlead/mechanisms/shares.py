"""Rounds that realise the shares of a policy (Gavel §3.2, §5), refilled as devices fall idle."""

from dataclasses import dataclass

from fairlead.mechanisms._rounds.share_rounds import JobShareRounds


@dataclass(frozen=True)
class Shares(JobShareRounds):
    """Run in each round the jobs to which time is owed most urgently.

    Time owed grows with a job's share of an accelerator and falls with the time for which it
    holds devices of it, counted in seconds from the last allocation on. A job may run ahead of
    its share by up to one round; it seldom stays behind by more. A debt from before a
    reallocation is carried over as a preference among jobs that may run, up to one round,
    except where the new share is 0. Devices that no share claims, or that fall idle in
    mid-round, go to waiting jobs, unless the policy leaves them idle on purpose.
    """
