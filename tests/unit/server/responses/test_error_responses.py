"""Every refusal of the server has one form, and its message names field, problem and fix."""

import asyncio
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from fastapi import Depends, FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field

from fairlead.model.errors import InputError
from fairlead.server.api.app import add_error_handlers
from fairlead.server.json_bodies import JsonBodyMiddleware
from fairlead.server.query_parameters import refuse_unknown_parameters


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=1, max_length=5)]
    gang: Annotated[int, Field(ge=1, le=8)] = 1
    weight: Annotated[float, Field(gt=0, lt=9, allow_inf_nan=False)] = 1.0
    mode: Literal["a", "b"] = "a"
    words: tuple[str, ...] = ()
    flag: bool = False
    variables: dict[Annotated[str, Field(min_length=1)], str] = {}


@dataclass
class Job:
    __pydantic_config__ = ConfigDict(extra="forbid")
    command: tuple[str, ...]


app = FastAPI(dependencies=[Depends(refuse_unknown_parameters)])
add_error_handlers(app)


@app.post("/bodies")
@app.post("/v1/bodies")
async def bodies(body: Body) -> None:
    del body


@app.post("/jobs")
async def jobs(job: Job) -> None:
    del job


@app.get("/lists")
async def lists(
    limit: Annotated[int, Query(ge=1)] = 5, since: Annotated[float, Query(ge=0, le=9)] = 0.0
) -> None:
    del limit, since


@app.get("/v1/days")
async def days(begin: Annotated[str, Query(alias="from")] = "", limit: int = 5) -> None:
    del begin, limit


@app.get("/v1/days/{day}")
async def day(day: str) -> None:
    del day


@app.get("/refused")
async def refused() -> None:
    raise InputError("too many", fix="expected fewer", field="count")


@app.get("/bug")
async def bug() -> None:
    raise ZeroDivisionError("the traceback is for the log")


def ask(
    method: str,
    path: str,
    body: object = None,
    *,
    text: bytes | None = None,
    content_type: bytes | None = b"application/json",
) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and error of an answer; None: it has none."""
    sent: list[Any] = []
    path, _, query = path.partition("?")
    content = (b"" if body is None else json.dumps(body).encode()) if text is None else text
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [] if content_type is None else [(b"content-type", content_type)],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content}

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        asyncio.run(JsonBodyMiddleware(app)(scope, receive, send))
    except ZeroDivisionError:
        assert path == "/bug"  # raised again for the log, after the answer
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    if sent[0]["status"] == 200:
        return 200, headers, None
    answer = json.loads(sent[1]["body"])
    assert answer.keys() == {"error"}
    assert answer["error"].keys() == {"code", "message", "field"}
    return sent[0]["status"], headers, answer["error"]


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({}, "name", "name: missing: expected a value"),
        ({"name": ""}, "name", "name: too short: expected 1 or more characters"),
        ({"name": "abcdef"}, "name", "name: too long: expected at most 5 characters"),
        ({"name": 4}, "name", "name: not text: expected a string"),
        ({"name": "a", "gang": 0}, "gang", "gang: out of range: expected 1 or more"),
        ({"name": "a", "gang": 9}, "gang", "gang: out of range: expected at most 8"),
        ({"name": "a", "gang": "x"}, "gang", "gang: not a whole number: expected one such as 4"),
        ({"name": "a", "gang": 1.5}, "gang", "gang: not a whole number: expected one such as 4"),
        ({"name": "a", "weight": 0}, "weight", "weight: out of range: expected more than 0"),
        ({"name": "a", "weight": 9}, "weight", "weight: out of range: expected less than 9"),
        ({"name": "a", "weight": "x"}, "weight", "weight: not a number: expected one such as 2.5"),
        ({"name": "a", "mode": "c"}, "mode", "mode: unknown value: expected 'a' or 'b'"),
        (
            {"name": "a", "words": "x"},
            "words",
            'words: not a list: expected one such as ["a", "b"]',
        ),
        ({"name": "a", "flag": 3}, "flag", "flag: not a truth value: expected true or false"),
        (
            {"name": "a", "variables": {"": "b"}},
            "variables",
            "variables: key '': too short: expected 1 or more characters",
        ),
        ({"name": "a", "x": 3}, "x", "x: unknown field: see the schema at /openapi.json"),
        ([], None, "request: not an object: expected a JSON object"),
    ],
)
def test_an_invalid_body_is_refused_with_field_problem_and_fix(
    body: object, field: str | None, message: str
) -> None:
    status, _, error = ask("POST", "/bodies", body)
    assert (status, error["code"]) == (422, "input")
    assert (error["field"], error["message"]) == (field, message)


def test_the_fields_of_a_dataclass_are_refused_alike() -> None:
    assert ask("POST", "/jobs", {})[2]["message"] == "command: missing: expected a value"
    unknown = ask("POST", "/jobs", {"command": [], "x": 1})[2]
    assert unknown["message"] == "x: unknown field: see the schema at /openapi.json"
    assert ask("POST", "/jobs", "x")[2]["message"].startswith("request: not an object")


def test_a_body_that_is_not_json_is_refused_with_the_place() -> None:
    _, _, error = ask("POST", "/bodies", text=b"{")
    assert error["message"].startswith("request body: not JSON: ")
    assert error["message"].endswith("(at character 1)")


@pytest.mark.parametrize(
    "content_type",
    [b"application/x-www-form-urlencoded", b"text/plain", b"multipart/form-data", b"", None],
)
def test_a_body_is_json_whatever_its_type_is_said_to_be(content_type: bytes | None) -> None:
    assert ask("POST", "/v1/bodies", {"name": "a"}, content_type=content_type)[0] == 200
    _, _, error = ask("POST", "/v1/bodies", text=b"name=a", content_type=content_type)
    assert error["message"].startswith("request body: not JSON: ")


def test_paths_methods_and_queries_are_refused_with_a_hint() -> None:
    status, _, error = ask("GET", "/lists?limit=0")
    assert (status, error["message"]) == (422, "limit: out of range: expected 1 or more")
    _, _, error = ask("GET", "/lists?since=nan")
    assert error["message"] == "since: not a number: expected one such as 2.5"
    status, _, error = ask("GET", "/nothing")
    assert (status, error["code"]) == (404, "missing")
    assert error["message"] == "/nothing: no such path: see the schema at /openapi.json"
    status, headers, error = ask("DELETE", "/lists")
    assert (status, error["code"], headers["allow"]) == (405, "usage", "GET")
    assert error["message"] == "DELETE /lists: method not allowed: expected GET"


@pytest.mark.parametrize(
    ("path", "field", "expected"),
    [
        ("/v1/days?since=nan", "since", "expected one of from, limit"),
        ("/v1/days?from=1&begin=2", "begin", "expected one of from, limit"),
        ("/v1/days/1?limit=3", "limit", "expected none"),
        ("/v1/days?limit=0&=", "", "expected one of from, limit"),
    ],
)
def test_an_unknown_query_parameter_is_refused_with_the_known_ones(
    path: str, field: str, expected: str
) -> None:
    status, _, error = ask("GET", path)
    assert (status, error["code"], error["field"]) == (422, "input", field)
    assert error["message"].endswith(f"unknown parameter: {expected}")


@pytest.mark.parametrize("path", ["/v1/days?from=1&limit=2", "/lists?utm=1"])
def test_declared_parameters_and_those_outside_the_api_pass(path: str) -> None:
    assert ask("GET", path)[0] == 200


def test_errors_of_fairlead_and_bugs_have_the_same_form() -> None:
    status, _, error = ask("GET", "/refused")
    assert (status, error["field"]) == (422, "count")
    status, _, error = ask("GET", "/bug")
    assert (status, error["code"]) == (500, "internal")
    assert error["message"] == "GET /bug: internal error: see the server's log"
