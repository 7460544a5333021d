"""The names in the lists of the mutation test exist."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.mutations.operators import mutations
from tests.mutations.targets import IGNORED, TARGETS


@pytest.mark.parametrize("module", TARGETS)
def test_every_target_function_exists(module: str) -> None:
    tree = ast.parse(_source(module))
    functions = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set(TARGETS[module].split()) <= functions
    assert mutations(module)


def test_every_ignored_phrase_occurs_in_a_target_module() -> None:
    # As the operators see it: source that ast has formatted.
    text = "\n".join(ast.unparse(ast.parse(_source(module))) for module in TARGETS)
    assert [phrase for phrase in IGNORED if phrase not in text] == []


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
