"""Facts about one setting of the server, from which its flag, variable and checks are derived."""

from typing import NamedTuple


class Option(NamedTuple):
    """Facts about one setting beyond its type and default."""

    help: str
    """help text of the flag"""
    expected: str
    """valid values, as an error message names them"""
    default: str | None = None
    """default as the help shows it, where the value itself is not telling"""
    flag: str | None = None
    """flag, where it is not the setting's name"""
    panel: str | None = None
    """group of flags in the help"""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    pattern: str | None = None
    """regular expression that a text must match"""
    may_be_file: bool = False
    """a value that names an existing file is a path"""
    has_password: bool = False
    """a URL with a password, which must not be shown"""

    @property
    def limits(self) -> dict[str, float | str]:
        """Constraints of the value, by pydantic's names."""
        names = ("ge", "gt", "le", "min_length", "pattern")
        limits = {name: getattr(self, name) for name in names}
        return {name: limit for name, limit in limits.items() if limit is not None}
