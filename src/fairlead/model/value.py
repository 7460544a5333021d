"""Classes of values, which nobody changes once they are made."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a class a dataclass that the type checker takes for frozen.

    Nothing guards it at run time: of what is made at every event, such as snapshots, plans and
    commands, a frozen dataclass takes more than twice as long to make.
    """
    return dataclass(slots=True, eq=False)(cls)
