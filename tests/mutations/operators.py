"""Mutation operators: flip comparisons, negate conditions, leave out statements."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.mutations.targets import EQUIVALENT, IGNORED, ONE_WAY, TARGETS

_FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutation:
    """One small change in one function."""

    module: str
    number: int
    line: int
    what: str

    @property
    def name(self) -> str:
        """The key that ``--one`` takes."""
        return f"{self.module}:{self.number}"

    @property
    def text(self) -> str:
        """Description without the line number."""
        return f"{self.module} {self.what}"


def mutations(module: str) -> list[Mutation]:
    """Return all mutations of a module's target functions."""
    tree = _parse(module)
    return [
        Mutation(module, number, line, what)
        for number, (line, what, _) in enumerate(_places(tree, module))
        if not any(text in what for text in EQUIVALENT)
    ]


def mutated(module: str, number: int) -> ast.Module:
    """Return the module with one mutation."""
    tree = _parse(module)
    for index, (_, _, change) in enumerate(_places(tree, module)):
        if index == number:
            change()
            return ast.fix_missing_locations(tree)
    raise SystemExit(f"{module} has no mutation {number}")


def _parse(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _places(tree: ast.Module, module: str) -> Iterator[tuple[int, str, Any]]:
    """Yield line, description and a call that applies the change, for every place."""
    wanted = TARGETS[module].split()
    for function in ast.walk(tree):
        if (
            isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            and function.name in wanted
        ):
            for node in _walk(function):
                yield from _of_node(node, function.name)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants, without the unreachable branch of one-way conditions."""
    if isinstance(node, ast.If) and any(word in ast.unparse(node.test) for word in ONE_WAY):
        taken = node.body if ast.unparse(node.test) == "self.simple" else node.orelse
        for statement in taken:
            yield from _walk(statement)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.keyword) and child.arg == "strict"):
            yield from _walk(child)


def _of_node(node: ast.AST, where: str) -> Iterator[tuple[int, str, Any]]:
    text = _text(node)
    # A block may still contain relevant code: its parts are visited separately.
    block = isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try)
    if not block and any(word in text for word in IGNORED):
        return
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        flip = _FLIPS[type(node.ops[0])]
        yield node.lineno, f"{where}: {text} → {flip.__name__}", _setter(node, "ops", [flip()])
    if isinstance(node, ast.If | ast.While) and not isinstance(
        node.test, ast.Compare | ast.Constant
    ):
        test = _text(node.test)
        if not any(word in test for word in IGNORED):
            negated = ast.UnaryOp(ast.Not(), node.test)
            yield node.lineno, f"{where}: not ({test})", _setter(node, "test", negated)
    if isinstance(node, ast.BoolOp):
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node.lineno, f"{where}: and/or in {text}", _setter(node, "op", other)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        swap = {"max": "min", "min": "max"}.get(node.func.id)
        if swap:
            yield node.lineno, f"{where}: {text} → {swap}", _setter(node.func, "id", swap)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node.lineno, f"{where}: {text} → not", _setter(node, "value", not node.value)
    yield from _dropped(node, where)


def _dropped(node: ast.AST, where: str) -> Iterator[tuple[int, str, Any]]:
    """Yield mutations that leave out one statement of a block."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if not isinstance(block, list):
            continue
        for index, statement in enumerate(block):
            text = _text(statement)
            if isinstance(statement, ast.Delete) and isinstance(statement.targets[0], ast.Name):
                continue  # unbinding a name has no effect
            droppable = isinstance(statement, ast.Raise | ast.AugAssign | ast.Delete) or (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Call | ast.Await)
            )
            if isinstance(statement, ast.Assign):
                droppable = all(
                    isinstance(target, ast.Attribute | ast.Subscript)
                    for target in statement.targets
                )
            if droppable and not any(word in text for word in IGNORED):
                drop = _dropper(block, index)
                yield statement.lineno, f"{where}: without {text}", drop


def _setter(node: ast.AST, name: str, value: object) -> Any:
    return lambda: setattr(node, name, value)


def _dropper(block: list[ast.stmt], index: int) -> Any:
    return lambda: block.__setitem__(index, ast.copy_location(ast.Pass(), block[index]))


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split()) if isinstance(node, ast.expr | ast.stmt) else ""
    return text if len(text) < 100 else text[:97] + "…"
