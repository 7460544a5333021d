"""Every function named as a mutation target exists."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.mutations.operators import mutations
from tests.mutations.targets import TARGETS


@pytest.mark.parametrize("module", TARGETS)
def test_every_target_function_exists(module: str) -> None:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    functions = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set(TARGETS[module].split()) <= functions
    assert mutations(module)
