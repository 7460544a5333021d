"""Declared features of policies and mechanisms."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features of a policy or mechanism that the rest of the scheduler takes into account.

    A mechanism that realises a policy forwards the policy's capabilities and replaces the fields
    in which it differs. The defaults are those of a plug-in that declares nothing.
    """

    reads_progress: bool = True
    """uses the steps that jobs have made; otherwise an allocation stands until jobs or devices
    change, and progress need not be reported"""
    reads_progress_without_deadline: bool = True
    """uses the steps left of every job, not only of jobs with a deadline"""
    per_accelerator_gangs: bool = False
    """honours gangs that differ by accelerator (``snap.gang_on``); otherwise jobs with such gangs
    are rejected"""
    mixed_gangs: bool = False
    """places one gang on devices of several accelerators; gangs larger than any one accelerator
    are then accepted"""
    divides_among_tenants: bool = False
    """honours the weights of tenants, not only those of jobs"""
    fills_idle: bool = True
    """lets waiting jobs use devices that no share claims"""
    ends_early: bool = False
    """lets rounds run jobs ahead of their shares: first those that need all of the time, since
    they cannot make up for a lost round, then those with the least time left; for objectives by
    the last job to end"""
    trades_accelerators: bool = False
    """lets rounds with gangs make up for time owed on one accelerator by time on others, by the
    job's relative speeds; for objectives by the progress of jobs, wherever they run; with
    ``ends_early``, lets rounds reserve any devices for long gangs instead"""
    keeps_places: bool = False
    """lets running gangs keep their devices while an allocation stands and restarts cost nothing,
    unless many rounds are owed to others; for objectives that are a total, to which turns between
    divided jobs add nothing"""
    mechanism: str = "shares"
    """name of the mechanism that realises the policy by default"""
    reads_measured: bool = False
    """uses the measurements that jobs report (``snap.measured``)"""
    reads_restarts: bool = False
    """weighs the measured costs of restarts (``snap.restart_s``)"""
    starvation_free: bool = False
    """lets no runnable job wait forever; the conformance suite checks this promise"""
    stops_jobs: bool = True
    """preempts running jobs; otherwise a guarantee waits until borrowed devices are idle"""
    packs: bool = False
    """lets jobs share devices; the engine must start leases on the devices that the plan names"""
    forks: bool = False
    """starts several copies of a job, whose steps add up and whose states are averaged"""


_UNDECLARED = Capabilities()


def capabilities_of(plugin: object) -> Capabilities:
    """Return the capabilities of a policy or mechanism; the defaults if it declares none.

    This is the only place with a fallback. Every round calls it, so it checks no protocol.
    """
    capabilities: Capabilities = getattr(plugin, "capabilities", _UNDECLARED)
    return capabilities
