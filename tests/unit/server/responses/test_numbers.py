"""Every number of a request is a number: true, "5" and NaN are refused, as in files."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError

from fairlead.model.submission.new_job import NewJob
from fairlead.server.api.app import ROUTERS
from fairlead.server.api.routes.limits import LimitsChange
from fairlead.server.api.schemas import Renewal
from fairlead.server.invalid_request import problem_of


def with_number(hint: Any, number: object) -> Any:
    """Return a value of a type with this in place of its number; None for a type without one."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return with_number(inner[0], number)
    if origin in (Union, UnionType):
        values = [with_number(each, number) for each in inner if each is not bool]
        return next((value for value in values if value is not None), None)
    if origin in (list, tuple):
        value = with_number(inner[0], number)
        return None if value is None else [value]
    if origin in (dict, Mapping):
        value = with_number(inner[1], number)
        return None if value is None else {"v100": value}
    return number if hint in (int, float) else None


def messages_of(hint: Any) -> Iterator[type]:
    """Yield the messages that a type of a request's body consists of."""
    if isinstance(hint, type) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint)):
        yield hint
        for inner in get_type_hints(hint, include_extras=True).values():
            yield from messages_of(inner)
    for inner in get_args(hint):
        yield from messages_of(inner)


def numbers() -> dict[str, Any]:
    """Return message.field → its type, for each number in the body of a request."""
    bodies = [
        route.body_field.field_info.annotation
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and route.body_field is not None
    ]
    owners = {owner for body in [*bodies, NewJob] for owner in messages_of(body)}
    return {
        f"{owner.__name__}.{name}": hint
        for owner in owners
        for name, hint in get_type_hints(owner, include_extras=True).items()
        if with_number(hint, True) is not None
    }


NUMBERS = numbers()
LIMITED = sorted(NUMBERS.keys() - {"Renewal.metrics"})


def test_all_requests_are_tried() -> None:
    known = ("LimitsChange.requests_per_s", "NewJob.gang", "NewJob.speeds", "TenantView.limit")
    assert {*known, "WhatIf.devices", "JobChange.weight", "Renewal.metrics"} <= NUMBERS.keys()


def problem_with(name: str, number: object) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(NUMBERS[name]).validate_python(with_number(NUMBERS[name], number))
    return problem_of(caught.value.errors()[0])


@pytest.mark.parametrize("number", [True, "5", "x"])
@pytest.mark.parametrize("name", LIMITED)
def test_a_truth_value_or_a_text_is_no_number(name: str, number: object) -> None:
    assert problem_with(name, number).startswith("not a ")


@pytest.mark.parametrize("name", LIMITED)
def test_nan_is_outside_of_the_whole_range(name: str) -> None:
    form = r"out of range: nan: expected (at least|more than) \S+ and (at most|less than) \S+"
    assert re.fullmatch(form, problem_with(name, math.nan))


def test_the_problem_names_what_is_expected() -> None:
    with pytest.raises(ValidationError) as caught:
        LimitsChange.model_validate_json('{"requests_per_s": true, "requests_burst": true}')
    assert [(error["loc"], problem_of(error)) for error in caught.value.errors()] == [
        (("requests_per_s",), "not a number: expected one such as 2.5"),
        (("requests_burst",), "not a whole number: expected one such as 4"),
    ]


def test_a_metric_may_be_true() -> None:
    body = {"rank": 0, "started": 1, "steps": 2, "metrics": {"done": True}}
    assert Renewal.model_validate_json(json.dumps(body)).metrics == {"done": 1.0}


def test_the_schema_keeps_the_limits_of_numbers() -> None:
    fields = LimitsChange.model_json_schema()["properties"]
    assert fields["requests_burst"]["anyOf"][0] == {
        "type": "integer",
        "minimum": 10,
        "maximum": 10**9,
    }
