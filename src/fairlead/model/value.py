"""Classes of values, which are never changed after construction."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Return the class as a dataclass that is frozen for the type checker only.

    Construction of a frozen dataclass takes more than twice as long, which counts for values that
    are constructed at every event, such as snapshots, plans and commands.
    """
    return dataclass(slots=True, eq=False)(cls)
