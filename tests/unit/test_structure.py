"""The layout's promises: small folders, no shared prefixes, short modules, no import cycles."""

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/fairlead", "tests", "benchmarks", "tools")
MAX_MODULES = 15
MAX_SIBLINGS_WITH_PREFIX = 2
MAX_LINES = 400
# Generated, or named by a tool.
NOT_COUNTED = {"__init__.py", "__main__.py", "conftest.py"}


def modules() -> list[Path]:
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in paths if "__pycache__" not in path.parts)


def test_no_folder_holds_more_than_fifteen_modules() -> None:
    count = Counter(path.parent for path in modules() if path.name not in NOT_COUNTED)
    crowded = {str(f.relative_to(ROOT)): n for f, n in count.items() if n > MAX_MODULES}
    assert crowded == {}


def test_no_three_siblings_share_a_file_name_prefix() -> None:
    prefixes: Counter[tuple[str, str]] = Counter()
    for path in modules():
        name = path.stem.removeprefix("test_").lstrip("_")
        if path.name not in NOT_COUNTED and "_" in name:
            prefixes[str(path.parent.relative_to(ROOT)), name.split("_")[0]] += 1
    assert {key: n for key, n in prefixes.items() if n > MAX_SIBLINGS_WITH_PREFIX} == {}


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules()
    }
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_modules_import_one_another_without_cycles() -> None:
    known = {_name(path): path for path in (ROOT / "src").rglob("*.py")}
    graph = {name: set(_imports(name, path, set(known))) for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(name: str, path: Path, known: set[str]) -> Iterator[str]:
    """Yield the modules that a module imports, in functions and for types included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            targets = [
                full if (full := f"{node.module}.{alias.name}") in known else node.module
                for alias in node.names
            ]
        else:
            continue
        yield from (target for target in targets if target in known and target != name)
