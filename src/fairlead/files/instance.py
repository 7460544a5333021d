"""Instances: one allocation problem as a JSON document."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from fairlead.files.bundled import with_known
from fairlead.files.parsing import strict_json
from fairlead.files.parsing.fields import (
    accelerator,
    name,
    number,
    quota,
    quote,
    seconds,
    speed,
    steps,
    weight,
    whole_number,
)
from fairlead.files.parsing.text import SourceText, read_text, write_text
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance, InstanceJob, Pair, check_runs
from fairlead.model.submission.skipped_job import SkippedJob
from fairlead.model.tenants.tenant import Tenant

T = TypeVar("T")
Reader = Callable[[object], object]


def read_instance(path: str | Path) -> Instance:
    """Return the allocation problem in a JSON file, gzipped or not."""
    return parse_instance(read_text(path))


def parse_instance(text: SourceText) -> Instance:
    """Return the allocation problem in a JSON text."""
    document = strict_json.parse(text.body, source=text.name)
    try:
        return _instance(document)
    except InputError as error:
        raise error.within(source=text.name) from None


def parse_possible_jobs(text: SourceText) -> tuple[Instance, tuple[SkippedJob, ...]]:
    """Return the allocation problem without the jobs that can never run, and these jobs."""
    document = strict_json.parse(text.body, source=text.name)
    skipped: list[SkippedJob] = []
    try:
        return _instance(document, skipped), tuple(skipped)
    except InputError as error:
        raise error.within(source=text.name) from None


def _instance(document: object, skipped: list[SkippedJob] | None = None) -> Instance:
    """Return the problem in a document; a list takes the jobs that can never run."""
    top = strict_json.members(
        document, required=("cluster",), optional=("jobs", "tenants", "pairs", "usd_per_hour")
    )
    prices = _at("usd_per_hour", _prices, top.get("usd_per_hour", {}))
    cluster = _at("cluster", lambda value: _cluster(value, prices), top["cluster"])
    jobs, pairs = _each("jobs", _job, top), _each("pairs", _pair, top)
    if skipped is not None:
        skipped += _impossible_jobs(jobs, cluster)
        ids = {job.id for job in skipped}
        jobs = tuple(job for job in jobs if job.id not in ids)
        pairs = tuple(pair for pair in pairs if ids.isdisjoint(pair.jobs))
    return Instance(
        cluster=cluster, jobs=jobs, tenants=_each("tenants", _tenant, top), pairs=pairs
    )


def _impossible_jobs(jobs: Iterable[InstanceJob], cluster: Cluster) -> Iterator[SkippedJob]:
    counts = cluster.count_by_name()
    for job in jobs:
        try:
            check_runs(job, counts, "jobs")
        except InputError as error:
            yield SkippedJob.of(job.id, error)


def _cluster(value: object, prices: Mapping[str, float]) -> Cluster:
    counts = {
        accelerator(label): _at(label, _count, count)
        for label, count in strict_json.mapping(value).items()
    }
    details = {label: Accelerator(label, usd_per_hour=price) for label, price in prices.items()}
    return Cluster.of(counts, details=with_known(counts, details))


def _count(value: object) -> int:
    count = whole_number(value)
    if count < 0:
        raise InputError(f"negative: {count}", fix="expected 0 devices or more")
    return count


def _prices(value: object) -> dict[str, float]:
    prices = {label: _at(label, number, x) for label, x in strict_json.mapping(value).items()}
    for label, price in prices.items():
        if price < 0:
            raise InputError(f"negative: {price}", fix="expected 0 or more", field=label)
    return prices


def _speeds(value: object) -> dict[str, float]:
    return {label: _at(label, speed, x) for label, x in strict_json.mapping(value).items()}


def _quota(value: object) -> dict[str, float]:
    held = strict_json.mapping(value).items()
    return {accelerator(label): _at(label, quota, x) for label, x in held}


def _gangs(value: object) -> dict[str, int]:
    held = strict_json.mapping(value).items()
    return {accelerator(label): _at(label, whole_number, x) for label, x in held}


def _workload(value: object) -> str:
    return "" if value == "" else name(value)


_JOB: Mapping[str, Reader] = {
    "id": name,
    "speeds": _speeds,
    "workload": _workload,
    "tenant": name,
    "gang": whole_number,
    "gangs": _gangs,
    "weight": weight,
    "steps_left": steps,
    "elapsed_s": number,
    "isolated_elapsed_s": number,
    "deadline_s": seconds,
    "priority": whole_number,
}
_TENANT: Mapping[str, Reader] = {
    "id": name,
    "weight": weight,
    "parent": name,
    "inner": name,
    "priority": whole_number,
    "guarantee": _quota,
    "guarantee_in": name,
    "limit": _quota,
}


def parse_tenants(document: object) -> tuple[Tenant, ...]:
    """Return the tenants listed under ``tenants``; errors name fields from there."""
    return _each("tenants", _tenant, strict_json.mapping(document))


def _job(value: object) -> InstanceJob:
    fields = strict_json.members(value, required=("id", "speeds"), optional=_JOB)
    return InstanceJob(**_read(fields, _JOB))  # type: ignore[arg-type]  # read field by field


def _tenant(value: object) -> Tenant:
    fields = strict_json.members(value, required=("id",), optional=_TENANT)
    return Tenant(**_read(fields, _TENANT))  # type: ignore[arg-type]  # read field by field


def _read(fields: Mapping[str, object], readers: Mapping[str, Reader]) -> dict[str, object]:
    return {key: _at(key, readers[key], value) for key, value in fields.items()}


def _pair(value: object) -> Pair:
    fields = strict_json.members(value, required=("jobs", "speeds"))
    jobs = _at("jobs", lambda held: _two(held, name), fields["jobs"])
    speeds = {
        label: _at(f"speeds.{label}", lambda held: _two(held, speed), held)
        for label, held in _at("speeds", strict_json.mapping, fields["speeds"]).items()
    }
    return Pair(jobs, speeds)


def _two(value: object, read: Callable[[object], T]) -> tuple[T, T]:
    held = strict_json.array(value)
    if len(held) != 2:
        raise InputError(f"not a pair: {quote(value)} of {len(held)}", fix="expected two")
    return read(held[0]), read(held[1])


def _each(key: str, read: Callable[[object], T], top: Mapping[str, object]) -> tuple[T, ...]:
    listed = _at(key, strict_json.array, top.get(key, []))
    return tuple(_at(f"{key}[{i}]", read, value) for i, value in enumerate(listed))


def _at(where: str, read: Callable[[object], T], value: object) -> T:
    """Return the value as ``read`` reads it; errors get ``where`` in front of their field."""
    try:
        return read(value)
    except InputError as error:
        # Tenant's checks name the field as tenants.NAME; here its index is known, too.
        inner = (error.field or "").removeprefix("tenants.")
        path = f"{where}.{inner}" if inner else where
        raise InputError(error.problem, fix=error.fix, field=path) from None


def format_instance(instance: Instance) -> str:
    """Return the instance as JSON, without members equal to their defaults."""
    cluster = instance.cluster
    prices = {
        label: known.usd_per_hour
        for label in cluster.accelerators
        if (known := cluster.details.get(label)) and known.usd_per_hour is not None
    }
    document: dict[str, object] = {
        "cluster": cluster.count_by_name(),
        "jobs": [_members(job, _JOB) for job in instance.jobs],
        "tenants": [_members(tenant, _TENANT) for tenant in instance.tenants],
        "pairs": [{"jobs": list(p.jobs), "speeds": dict(p.speeds)} for p in instance.pairs],
        "usd_per_hour": prices,
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _members(value: InstanceJob | Tenant, fields: Mapping[str, Reader]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key in fields:
        held = getattr(value, key)
        if isinstance(held, Mapping):
            if held or key == "speeds":
                members[key] = dict(held)
        elif held != type(value).__dataclass_fields__[key].default:
            members[key] = held
    return members


def write_instance(instance: Instance, path: str | Path) -> None:
    """Write the instance to a JSON file, gzipped if the name ends in .gz."""
    write_text(path, format_instance(instance))
