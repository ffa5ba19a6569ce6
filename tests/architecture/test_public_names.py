"""A module with `__all__` is public, and promises what it lists, and no more; a module without is private.

So what users are told to import is of public modules and in their lists. Types that they meet there are, too, or stand
in the reference by themselves.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

import pytest

import statestore
import upgrade_tools
from tests.support.documentation import PAGES, ROOT, python_of
from tests.support.public_names import Source, Sources

SOURCES: Final = Sources.read()
FOR_MAINTAINERS: Final = ("docs/adr/", "docs/architecture.md")
"""Pages that say how it is made, and so name private modules."""
NAMED_FOR_SOMETHING_ELSE: Final = {
    "statestore.__version__": "the release, which no list has",
    "statestore.spark.python_daemon": "Spark starts it, by a setting",
    "statestore.spark.listener": "a logger",
}
PRIVATE_TYPES: Final = {
    "_Converter": "HeaderConverters are",
    "AggregateRule": "functions of Aggregate make aggregates",
    "Changelog": "drivers build stores",
    "CommitPointer": "tools print and read them",
    "Driver": "a driver makes its topics",
    "Expiry": "drivers build stores",
    "HeaderRows": "chains make them of columns",
    "KeptRecord": "the sink reads its markers",
    "LocalDirectory": "a local_dir is a path; tests give it faulty ones",
    "LocalDisk": "tests put faulty disks there",
    "OpenShard": "tools look into shards",
    "Operator": "made by per_key_topology, until there is an operator for users to add",
    "ProcessingContext": "drivers build stores",
    "ProcessorMetadata": "tasks make contexts",
    "Punctuations": "tasks make contexts",
    "ReadableTopic": "topics of a driver call it",
    "QueryableStoreType": "QueryableStoreTypes makes them",
    "RocksDBDatabase": "copies open databases",
    "Stage": "steps make streams and tables",
    "StateMetadata": "tools look at it",
    "StoreMetrics": "drivers build stores",
    "TablePlan": "steps make tables",
    "TableView": "a StreamsBuilder makes global tables",
    "TaskRecordContext": "tasks make contexts",
    "TimeMode": "per_key_topology takes it as a word, and makes handles",
    "TimeToLive": "states make their stores",
    "TypedStore": "all that stores have in common; each has a public class of its own",
    "VersionedParts": "builders make stores",
}
"""Types in public signatures that users neither make nor name, nor look at, and who does."""


REFERENCE: Final = {page: page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference").glob("*.md")}
SHOWN: Final = re.findall(r"^::: (\S+)$", "\n".join(REFERENCE.values()), re.MULTILINE)
"""What the reference has from docstrings: public modules, and types that these take or return."""


def documented_constants(module: ModuleType) -> Iterator[str]:
    """Yield the names that a module assigns at its top with a docstring below."""
    body = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
    for statement, below in pairwise(body):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if is_text and isinstance(below.value.value, str):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def natural_order(name: str) -> tuple[bool, list[tuple[str, int]]]:
    """Order constants before others, and numbers in names by what they are."""
    parts = re.findall(r"(\D*)(\d*)", name)
    return not name.isupper(), [(text, int(number or 0)) for text, number in parts]


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
    assert lists == SOURCES.public
    constants = {constant for module in modules.values() for constant in documented_constants(module)}
    for name, listed in lists.items():
        assert listed == sorted(set(listed), key=natural_order), f"{name}: constants first"
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


def test_types_that_users_meet_are_public_or_in_the_reference() -> None:
    private: dict[str, set[str]] = {}
    for module in SOURCES.public:
        for (where, name), users in SOURCES.private_types(module).items():
            is_shown = f"{where}.{name}" in SHOWN or (where in SHOWN and where not in SOURCES.public)
            if not is_shown:
                private.setdefault(name, set()).update(f"{where}.{name} in {module}.{user}" for user in users)
    assert {name: users for name, users in private.items() if name not in PRIVATE_TYPES} == {}
    assert set(PRIVATE_TYPES) - set(private) == set(), "these are met no more"


CODE = [
    *((f"{page.relative_to(ROOT)}:{block.line}", block.text) for page in PAGES for block in python_of(page)),
    *(
        (str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        for folder in ("docs/examples", "docs/cookbook")
        for path in sorted((ROOT / folder).glob("*.py"))
    ),
]


def test_what_pages_and_examples_import_is_public() -> None:
    assert len([where for where, text in CODE if "from statestore" in text]) > 30
    found = {where: SOURCES.unpromised_imports(text) for where, text in CODE}
    assert {where: names for where, names in found.items() if names} == {}


def unpromised_words(text: str) -> list[str]:
    return [name for name in SOURCES.unpromised_words(text) if name not in NAMED_FOR_SOMETHING_ELSE]


def test_what_pages_name_is_public() -> None:
    pages = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in {*PAGES} - {*REFERENCE}}
    found = {page: unpromised_words(text) for page, text in pages.items() if not page.startswith(FOR_MAINTAINERS)}
    assert {page: names for page, names in found.items() if names} == {}
    assert [name for name in NAMED_FOR_SOMETHING_ELSE if not any(name in text for text in pages.values())] == []


def texts_of(module: Source) -> Iterator[str]:
    """Yield what a module says: messages, help and docstrings."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_what_messages_and_docstrings_name_is_public() -> None:
    found = {
        name: [n for t in texts_of(module) for n in unpromised_words(t)] for name, module in SOURCES.modules.items()
    }
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("code", "unpromised"),
    [
        ("from statestore import Headers, Nothing", ["statestore.Nothing"]),
        ("from statestore import errors, format", ["statestore.format"]),
        ("import statestore.spark, statestore.format.serde", ["statestore.format.serde"]),
        ("def f():\n    from statestore.format.serde import Serde", ["statestore.format.serde.Serde"]),
        ("from os import path", []),
    ],
)
def test_an_import_of_what_nobody_promises_is_found(code: str, unpromised: list[str]) -> None:
    assert SOURCES.unpromised_imports(code) == unpromised


@pytest.mark.parametrize(
    ("text", "unpromised"),
    [
        ("`statestore.errors`, `statestore.errors.StoreError` and `statestore.Headers.add`", []),
        ("statestore.json, statestore.store.json and statestore/format/serde.py", []),
        ("see `statestore.format.serde`.", ["statestore.format.serde"]),
        ("all of `statestore.kip82`, none of `statestore.recovery`", ["statestore.recovery"]),
        ("`statestore.headers.Nothing`", ["statestore.headers.Nothing"]),
        ("`statestore.Nothing`", ["statestore.Nothing"]),
        ("from statestore import Headers, Nothing", ["statestore.Nothing"]),
        ("python -m statestore.testing.soak and python -m statestore.spark pointers", []),
        ("python -m statestore.headers", ["-m statestore.headers"]),
    ],
)
def test_a_mention_of_what_nobody_promises_is_found(text: str, unpromised: list[str]) -> None:
    assert SOURCES.unpromised_words(text) == unpromised
