"""Parsers of YAML and JSON documents, before their fields are read."""

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from fairlead.files.parsing import strict_json
from fairlead.files.parsing.text import SourceText
from fairlead.model.errors import InputError

# The C parser is faster but overflows its stack on deeply nested input, which kills the process;
# this one raises RecursionError. Scalars stay text; the readers of fields convert them.
_LOADER = yaml.BaseLoader


def parse_document(text: SourceText, wanted: str) -> object:
    """Return the value of a JSON or YAML text; ``wanted`` describes its content for errors."""
    if text.body.lstrip().startswith("{"):
        return strict_json.parse(text.body, source=text.name)
    with _clear_errors(wanted):
        value: object = yaml.load(text.body, Loader=_LOADER)
    return value


def parse_nodes(text: SourceText, wanted: str) -> yaml.Node:
    """Return the root of a YAML text, whose nodes know their lines."""
    with _clear_errors(wanted):
        root: yaml.Node | None = yaml.compose(text.body, Loader=_LOADER)
    if root is None:
        raise InputError("empty", fix=f"expected {wanted}")
    return root


@contextmanager
def _clear_errors(wanted: str) -> Iterator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(
            f"invalid YAML ({error.problem})", fix="correct it there", line=line
        ) from None
    except yaml.YAMLError:
        raise InputError("invalid YAML", fix=f"expected {wanted} in YAML") from None
    except RecursionError:
        raise InputError("nested too deeply", fix=f"expected {wanted}") from None
