"""No modules or folders import each other in a circle, not for their types alone either, nor inside of functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    module_name(path): path
    for folder in ("statestore", "upgrade_tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
PACKAGES = sorted(name for name, path in SOURCES.items() if path.name == "__init__.py")


def imports_of(text: str, modules: set[str]) -> Iterator[str]:
    """Yield which of the modules a source imports anywhere."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports have the whole name"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            yield from submodules
            # The package itself gives the other names.
            if len(submodules) < len(node.names) and node.module in modules:
                yield node.module


def circle(imports: Graph) -> list[str]:
    """Return the modules of one circle, the first one twice; empty if there is none."""
    try:
        TopologicalSorter({name: found - {name} for name, found in imports.items()}).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


@pytest.fixture(scope="module")
def imports() -> Graph:
    return {name: set(imports_of(path.read_text(encoding="utf-8"), set(SOURCES))) for name, path in SOURCES.items()}


def test_no_modules_import_each_other_in_a_circle(imports: Graph) -> None:
    assert circle(imports) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_members_of_a_package_import_each_other_in_a_circle(package: str, imports: Graph) -> None:
    def member(name: str) -> str | None:
        """Return the module or the folder of the package that a module is, or is in."""
        below = name.removeprefix(f"{package}.")
        return None if below == name else below.partition(".")[0]

    members: Graph = {}
    for name, found in imports.items():
        at = member(name)
        if at is not None:
            members.setdefault(at, set()).update(to for to in map(member, found) if to is not None)
    assert circle(members) == []


def test_a_circle_is_found_wherever_its_imports_are() -> None:
    modules = {"package", "package.a", "package.b", "package.c"}
    for_types = "if TYPE_CHECKING:\n    from package.b import B"
    in_a_function = "def f():\n    from package import c"
    assert set(imports_of(for_types, modules)) == {"package.b"}
    assert set(imports_of(in_a_function, modules)) == {"package.c"}
    assert set(imports_of("import package.a\nfrom package import a, B\nimport os", modules)) == {"package", "package.a"}
    found = circle({"package.a": {"package.b"}, "package.b": {"package.c"}, "package.c": {"package.a"}})
    assert set(found) == {"package.a", "package.b", "package.c"}
