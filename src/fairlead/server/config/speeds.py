"""Settings of the speeds that decisions use."""

from dataclasses import dataclass
from typing import Annotated

from fairlead.server.config.option import Option


@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class SpeedSettings:
    """Settings of believed and emulated speeds."""

    speeds: Annotated[
        str | None,
        Option(
            help="Speeds to start from, until jobs have measured theirs: a table, CSV or Gavel"
            " JSON; guess: data sheets; none: all accelerators are equal.",
            expected="a speeds table, CSV or Gavel JSON, guess or none",
            default="a bundled table",
            may_be_file=True,
        ),
    ] = None
    plan_on: Annotated[
        float,
        Option(
            help="Quantile of estimated speeds that decisions use, a fraction: above 0.5, jobs try"
            " accelerators that may be fast, until they have measured their speed there.",
            expected="a fraction from 0.01 to 0.99",
            ge=0.01,
            le=0.99,
        ),
    ] = 0.5
    explore: Annotated[
        bool,
        Option(
            help="Try a job on an accelerator where the measured speed is expected to be worth"
            " more, over the work that its workload has left, than the trial costs.",
            expected="true or false",
            default="no",
        ),
    ] = False
    emulated_speeds: Annotated[
        str | None,
        Option(
            help="True speeds of emulated devices, which the server learns as it does those of"
            " real ones: a table, CSV or Gavel JSON.",
            expected="a speeds table, CSV or Gavel JSON",
            default="the believed speeds",
            may_be_file=True,
        ),
    ] = None
