"""Parsers of YAML and JSON documents, before their fields are read.

Every YAML document is read here: duplicate keys, deep nesting, documents that contain themselves
and aliases that multiply are refused before a reader walks the document.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from fairlead.files.parsing import strict_json
from fairlead.files.parsing.fields import quote
from fairlead.files.parsing.text import SourceText
from fairlead.model.errors import InputError

_MAX_CHARACTERS = 16 << 20
_MAX_VALUES = 4_000_000
"""maximum number of values of a document, with every alias expanded"""
_MAX_DEPTH = 64
_OPENED = re.compile(rf"(?:[\[{{]\s*){{{_MAX_DEPTH + 1}}}")
"""more brackets opened in a row than levels are allowed"""


def parse_document(text: SourceText, wanted: str) -> object:
    """Return the value of a JSON or YAML text; ``wanted`` describes its content for errors."""
    if text.body.lstrip().startswith("{"):
        return strict_json.parse(text.body, source=text.name)
    return _plain(parse_nodes(text, wanted))


def parse_nodes(text: SourceText, wanted: str) -> yaml.Node:
    """Return the root of a YAML text, whose nodes know their lines; no key occurs twice."""
    if len(text.body) > _MAX_CHARACTERS:
        limit = f"expected at most {_MAX_CHARACTERS >> 20} MiB of YAML"
        raise InputError(f"{len(text.body):,} characters", fix=limit)
    if brackets := _OPENED.search(text.body):  # the scanner would take long to find out
        raise _too_deep(text.body.count("\n", 0, brackets.start()) + 1)
    with _clear_errors(wanted):
        root: yaml.Node | None = yaml.compose(text.body, Loader=_ShallowLoader)
    if root is None:
        raise InputError("empty", fix=f"expected {wanted}")
    if _Bounds().values(root) > _MAX_VALUES:
        fix = f"expected at most {_MAX_VALUES:,} values, with aliases expanded"
        raise InputError("too many values", fix=fix)
    return root


class _ShallowLoader(yaml.BaseLoader):
    """A loader that stops at deep nesting, for which it would take quadratic time.

    The C parser is faster but overflows its stack on such input, which kills the process. Scalars
    stay text; the readers of fields convert them.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node of the document."""
        if self._depth > _MAX_DEPTH:
            event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML has no types
            raise _too_deep(event.start_mark.line + 1)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Bounds:
    """Counts the values of a document; visits each node once, however often it is aliased."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._open: set[int] = set()

    def values(self, node: yaml.Node) -> int:
        """Return the number of values in a node; raise InputError for what is never valid."""
        if isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) in self._open:
            raise _at(node, "a value that contains itself", "remove the alias")
        if id(node) not in self._counts:
            if len(self._open) >= _MAX_DEPTH:
                raise _too_deep(node.start_mark.line + 1)
            self._open.add(id(node))
            self._counts[id(node)] = 1 + sum(map(self.values, _children(node)))
            self._open.discard(id(node))
        return self._counts[id(node)]


def _children(node: yaml.Node) -> list[yaml.Node]:
    """Return keys and values of a mapping, or the items of a list; no key occurs twice."""
    if not isinstance(node, yaml.MappingNode):
        return list(node.value)
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _at(key, "a key that is not plain text", "expected name: value")
        if key.value in seen:
            raise _at(key, f"duplicate field {quote(key.value)}", "remove one")
        seen.add(key.value)
    return [part for pair in node.value for part in pair]


def _plain(node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return {key.value: _plain(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item) for item in node.value]
    return node.value


def _too_deep(line: int) -> InputError:
    return InputError("nested too deeply", fix=f"expected at most {_MAX_DEPTH} levels", line=line)


def _at(node: yaml.Node, problem: str, fix: str) -> InputError:
    return InputError(problem, fix=fix, line=node.start_mark.line + 1)


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
