"""Documents that people write, in YAML or JSON, before anybody looks at their fields."""

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from fairlead.files.parsing import strict_json
from fairlead.files.parsing.text import Text
from fairlead.model.errors import InputError

# The C parser is faster but overflows its stack on deeply nested input, which kills the process;
# this one raises RecursionError. Scalars stay text, which the fields' readers take as numbers
# where they want these.
_LOADER = yaml.BaseLoader


def parse_document(text: Text, wanted: str) -> object:
    """Return the value of a JSON or YAML text, which should hold what is ``wanted``."""
    if text.body.lstrip().startswith("{"):
        return strict_json.parse(text.body, source=text.name)
    with _clear_errors(wanted):
        found: object = yaml.load(text.body, Loader=_LOADER)
    return found


def parse_nodes(text: Text, wanted: str) -> yaml.Node:
    """Return the root of a YAML text, whose nodes know their lines."""
    with _clear_errors(wanted):
        found: yaml.Node | None = yaml.compose(text.body, Loader=_LOADER)
    if found is None:
        raise InputError("it is empty", fix=f"give {wanted}")
    return found


@contextmanager
def _clear_errors(wanted: str) -> Iterator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(
            f"it is not YAML ({error.problem})", fix="correct it there", line=line
        ) from None
    except yaml.YAMLError:
        raise InputError("it is not YAML", fix=f"give {wanted} in YAML") from None
    except RecursionError:
        raise InputError("it is nested too deeply", fix=f"give {wanted}") from None
