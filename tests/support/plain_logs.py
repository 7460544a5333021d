"""Log lines with plain tracebacks.

structlog's default renders tracebacks with all variables, which took a third of the time of the
fault simulation.
"""

import structlog


def use_plain_tracebacks() -> None:
    """Print log lines as structlog does by default, without colours and variables."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    )
