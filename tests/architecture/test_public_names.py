"""What is public is listed, and what is listed is there: as httpx does it, for every package and module with a list."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import statestore
import upgrade_tools


def documented_constants(module: ModuleType) -> Iterator[str]:
    """Yield the names that a module assigns at its top with a docstring below."""
    body = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
    for statement, below in pairwise(body):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if is_text and isinstance(below.value.value, str):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def public(module: ModuleType) -> set[str]:
    """Return what importing a module offers beside its submodules."""
    names = {name for name in vars(module) if name.isidentifier() and name[0] != "_"}  # pytest adds others
    names.discard("annotations")  # from __future__
    return {name for name in names if f"{module.__name__}.{name}" not in sys.modules}


@pytest.fixture(scope="module")
def modules() -> dict[str, ModuleType]:
    names = ["statestore", "upgrade_tools"]
    for package in (statestore, upgrade_tools):
        names += [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return {name: importlib.import_module(name) for name in names if not name.endswith(".__main__")}  # which runs


@pytest.mark.spark  # it imports every module
def test_lists_of_public_names_are_sorted_and_documented(modules: dict[str, ModuleType]) -> None:
    lists = {name: list(module.__all__) for name, module in modules.items() if hasattr(module, "__all__")}
    assert {"statestore", "statestore.spark", "statestore.testing", "upgrade_tools.states"} <= set(lists)
    constants = {constant for module in modules.values() for constant in documented_constants(module)}
    for name, listed in lists.items():
        assert listed == sorted(set(listed)), name
        for public_name in listed:
            assert hasattr(modules[name], public_name), f"{name} has no {public_name}"
            found = getattr(modules[name], public_name)
            is_documented = found.__doc__ if isinstance(found, type | FunctionType) else public_name in constants
            assert is_documented, f"{name}.{public_name} has no docstring"


@pytest.mark.spark
def test_a_package_offers_what_it_lists_and_no_more(modules: dict[str, ModuleType]) -> None:
    packages = [module for module in modules.values() if hasattr(module, "__path__")]
    assert len(packages) > 20
    unlisted = {module.__name__: public(module) - set(getattr(module, "__all__", [])) for module in packages}
    assert {name: names for name, names in unlisted.items() if names} == {}


def test_the_core_does_not_import_spark() -> None:
    code = "import statestore, sys; print([m for m in ('pyspark', 'pandas') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
