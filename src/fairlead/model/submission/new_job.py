"""The declaration of a job's fields: types, units, limits, defaults and help.

Everything else about a submitted job follows from `NewJob`: the options of ``fairlead submit``
(`fairlead.cli.client.job_options`), the keys of a job file (`fairlead.files.job_file`), the body
of ``POST /v1/jobs`` and its OpenAPI schema (pydantic validates JSON directly into `NewJob`), the
stored specification (`fairlead.live.job_spec`), and from that the scheduler's `Job` and the
engine's `LaunchOrder`. To add a field, declare it here and use it in one of the last two.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Interval, Len

from fairlead.model.errors import InputError
from fairlead.model.submission import bounds
from fairlead.model.submission.container import check_image
from fairlead.model.submission.fields import About, JsonNumber, Matches, declared_fields
from fairlead.model.submission.progress_pattern import MAX_LENGTH, check_progress_pattern
from fairlead.model.submission.secrets import MAX_NAME, MAX_PER_JOB, parse_secrets

Name = Annotated[str, Len(1, 128), Matches(r"^[^\x00-\x1f\x7f]+$")]
Label = Annotated[str, Len(0, 128), Matches(r"^[^\x00-\x1f\x7f]*$")]
Seconds = Annotated[float, Interval(ge=bounds.MIN_SECONDS, le=bounds.MAX_SECONDS), JsonNumber()]
Grace = Annotated[float, Interval(ge=bounds.MIN_SECONDS, le=bounds.MAX_GRACE_S), JsonNumber()]
Gibibytes = Annotated[float, Interval(ge=bounds.MIN_GIB, le=bounds.MAX_GIB), JsonNumber()]
Gang = Annotated[int, Interval(ge=1, le=100_000), JsonNumber()]
Copies = Annotated[int, Interval(ge=1, le=1000), JsonNumber()]
Steps = Annotated[int, Interval(ge=1, le=bounds.MAX_STEPS), JsonNumber()]
Weight = Annotated[float, Interval(ge=bounds.MIN_WEIGHT, le=bounds.MAX_WEIGHT), JsonNumber()]
Speed = Annotated[float, Interval(ge=bounds.MIN_SPEED, le=bounds.MAX_SPEED), JsonNumber()]
Priority = Annotated[int, Interval(ge=-(10**6), le=10**6), JsonNumber()]
Retries = Annotated[int, Interval(ge=0, le=1000), JsonNumber()]
Text = Annotated[str, Len(0, 4096)]
Digest = Annotated[str, Len(0, 64), Matches(r"^([0-9a-f]{64})?$")]
Preemption = Literal["auto", "yes", "no"]
Switch = Literal["auto", "exit"]
MAX_DEPENDENCIES = 100
MAX_HYPERPARAMETERS = 100
MAX_SPEEDS = 64
"""accelerators with an expected speed"""

_RESOURCES, _SCHEDULING, _EXECUTION = "Resources", "Scheduling", "Execution"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to submit."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    command: Annotated[
        tuple[Text, ...], Len(1), About("Command to run: a Python file or a program.")
    ]
    name: Annotated[Label, About("Name shown in lists.")] = ""
    tenant: Annotated[
        Name | None, About("Tenant that the job belongs to.", default="the token's tenant")
    ] = None
    workload: Annotated[
        Label,
        About(
            "Workload, such as model and batch size: its jobs share their speeds.",
            default="script and arguments",
        ),
    ] = ""
    gang: Annotated[Gang, About("Devices needed at once.", _RESOURCES)] = 1
    min_gang: Annotated[Gang | None, About("Minimum devices of an elastic job.", _RESOURCES)] = (
        None
    )
    max_gang: Annotated[Gang | None, About("Maximum devices of an elastic job.", _RESOURCES)] = (
        None
    )
    max_copies: Annotated[
        Copies | None,
        About(
            "Number of copies that may train at once on nodes of different speed under the"
            " policy hadare, which averages their parameters after every round.",
            _RESOURCES,
        ),
    ] = None
    multijob: Annotated[
        Name | None, About("Name of the hyperparameter search the job is part of.", _SCHEDULING)
    ] = None
    steps: Annotated[
        Steps | None,
        About("Total training steps; without it, the job has finished when it exits with 0."),
    ] = None
    weight: Annotated[Weight, About("Entitlement relative to other jobs.", _SCHEDULING)] = 1.0
    priority: Annotated[
        Priority, About("Jobs with a higher priority are served first.", _SCHEDULING)
    ] = 0
    deadline_s: Annotated[
        Seconds | None, About("Deadline in seconds from now.", _SCHEDULING, "--deadline")
    ] = None
    after: Annotated[
        tuple[Name, ...],
        Len(0, MAX_DEPENDENCIES),
        About(
            "Id or name of a job of the same tenant that must finish before this one starts; if"
            " it fails or is cancelled, this one fails.",
            _SCHEDULING,
            is_repeatable=True,
        ),
    ] = ()
    after_any: Annotated[
        tuple[Name, ...],
        Len(0, MAX_DEPENDENCIES),
        About(
            "Id or name of a job of the same tenant that must end, in any state, before this one"
            " starts.",
            _SCHEDULING,
            is_repeatable=True,
        ),
    ] = ()
    start_from: Annotated[
        Name | None,
        About(
            "Id or name of a job of the same tenant whose last checkpoint this one starts from.",
            _SCHEDULING,
        ),
    ] = None
    accelerators: Annotated[
        tuple[Name, ...] | None,
        About(
            "Accelerators the job may use, such as v100; k80=2 needs two devices there.",
            _RESOURCES,
            default="all",
        ),
    ] = None
    memory_gib: Annotated[
        Gibibytes | None, About("Memory a device must have, in GiB.", _RESOURCES, "--memory")
    ] = None
    speeds: Annotated[
        Mapping[Name, Speed],
        Len(0, MAX_SPEEDS),
        About(
            "Expected steps per second on an accelerator, such as v100=3.2; counts until the job"
            " has measured its own, unless the server's table has one.",
            _SCHEDULING,
            "--speed",
        ),
    ] = field(default_factory=dict)
    directory: Annotated[
        Text, About("Working directory.", _EXECUTION, default="here", is_path=True)
    ] = ""
    environment: Annotated[
        Mapping[Name, Annotated[str, Len(0, 32_768)]],
        About("Environment variables of the processes.", _EXECUTION, "--env"),
    ] = field(default_factory=dict)
    secrets: Annotated[
        tuple[Annotated[str, Len(1, 2 * MAX_NAME + 1)], ...],
        Len(0, MAX_PER_JOB),
        About(
            "Secret of the tenant, put into an environment variable: NAME or NAME=VARIABLE.",
            _EXECUTION,
            "--secret",
            is_repeatable=True,
        ),
    ] = ()
    preempt: Annotated[
        Preemption,
        About(
            "Whether a running job may be preempted: yes, no, or auto, which spares programs"
            " that do not checkpoint with fairlead.job.",
            _EXECUTION,
        ),
    ] = "auto"
    switch: Annotated[
        Switch,
        About(
            "Way to give up a device: auto, which keeps the process in host memory where the"
            " server offers that, or exit.",
            _EXECUTION,
        ),
    ] = "auto"
    allow_short: Annotated[
        bool,
        About("Accept an exit with status 0 before the declared number of steps.", _EXECUTION),
    ] = False
    retries: Annotated[Retries, About("Number of retries after failures.", _EXECUTION)] = 3
    grace_s: Annotated[
        Grace,
        About("Seconds between a stop request and the kill.", _EXECUTION, "--grace"),
    ] = 30.0
    host_memory_gib: Annotated[
        Gibibytes | None,
        About(
            "Host memory of all processes in GiB; killed above it.", _RESOURCES, "--host-memory"
        ),
    ] = None
    time_limit_s: Annotated[
        Seconds | None,
        About(
            "Seconds for which the job may hold devices, over all of its leases; then it gets"
            " SIGTERM, has its grace, and fails.",
            _EXECUTION,
            "--time-limit",
        ),
    ] = None
    progress_pattern: Annotated[
        Annotated[str, Len(0, MAX_LENGTH)] | None,
        About(
            r"Regular expression with one group, the steps made, such as 'step (\d+)'; for"
            " programs that do not use fairlead.job.",
            _EXECUTION,
            "--progress",
        ),
    ] = None
    container: Annotated[
        Text,
        About(
            "Container image to run the command in, with apptainer, podman or docker.",
            _EXECUTION,
        ),
    ] = ""
    notify: Annotated[
        Annotated[str, Len(0, 2048)],
        About(
            "URL that the server posts to when the job has finished, failed or been cancelled;"
            " the operator must have allowed it.",
            _EXECUTION,
        ),
    ] = ""
    notify_preemptions: Annotated[
        bool, About("Post to the URL of --notify at every preemption, too.", _EXECUTION)
    ] = False
    hyperparameters: Annotated[
        Mapping[Name, Annotated[str, Len(0, 256)]],
        Len(0, MAX_HYPERPARAMETERS),
        About("Hyperparameters of a trial, to be shown beside its metrics.", is_option=False),
    ] = field(default_factory=dict)
    code_snapshot: Annotated[
        Digest,
        About("SHA-256 of the uploaded code snapshot that the job runs in.", is_option=False),
    ] = ""
    code_commit: Annotated[
        Label, About("Git commit that the code snapshot was made from.", is_option=False)
    ] = ""
    code_dirty: Annotated[
        bool, About("Whether the code snapshot differs from its commit.", is_option=False)
    ] = False
    idempotency_key: Annotated[
        Label,
        About(
            "Text by which the server recognises a repeated submission: the second one of a"
            " tenant returns the job of the first.",
            is_option=False,
        ),
    ] = ""

    def __post_init__(self) -> None:
        if not self.command:
            raise InputError("empty", fix="expected a program and its arguments", field="command")
        for item in _CHECKED:
            item.check(getattr(self, item.name))
        self.check_pattern()
        self._check_secrets()
        self._check_speeds()
        self._check_copies()
        check_image(self.container)

    def check_pattern(self) -> None:
        """Raise InputError unless the progress pattern is usable."""
        if self.progress_pattern is not None:
            check_progress_pattern(self.progress_pattern)

    def _check_secrets(self) -> None:
        """Raise InputError unless each secret has a name and a variable of its own."""
        if both := sorted(parse_secrets(self.secrets).keys() & self.environment.keys()):
            fix = "expected the variable in one of the two"
            raise InputError(f"{both[0]!r} is also in environment", fix=fix, field="secrets")

    def _check_speeds(self) -> None:
        """Raise InputError unless every expected speed is within its limits."""
        if len(self.speeds) > MAX_SPEEDS:
            fix = f"expected at most {MAX_SPEEDS} accelerators"
            raise InputError(f"{len(self.speeds)} entries", fix=fix, field="speeds")
        for accelerator, speed in self.speeds.items():
            if not bounds.MIN_SPEED <= speed <= bounds.MAX_SPEED:
                raise InputError(
                    f"out of range: {accelerator}={speed!r}",
                    fix=f"expected steps per second from {bounds.MIN_SPEED:g} to"
                    f" {bounds.MAX_SPEED:g}",
                    field="speeds",
                )

    def _check_copies(self) -> None:
        """Raise InputError if the job cannot be divided into copies."""
        if self.max_copies is None or self.max_copies == 1:
            return
        fix = "expected it with --steps, a gang of 1 and no container"
        if self.steps is None:
            raise InputError("steps are missing, which copies divide", fix=fix, field="max_copies")
        if (self.gang, self.max_gang or 1) != (1, 1):
            raise InputError("a gang of several devices", fix=fix, field="max_copies")
        if self.container:
            raise InputError("a container", fix=fix, field="max_copies")

    def message(self) -> dict[str, Any]:
        """Return the body of the REST request: the fields that differ from their defaults."""
        return {
            item.name: getattr(self, item.name)
            for item in declared_fields(NewJob)
            if item.default is MISSING or getattr(self, item.name) != item.default
        }


_CHECKED = tuple(item for item in declared_fields(NewJob) if item.limits or item.choices)
