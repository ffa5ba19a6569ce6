"""Errors travel between processes whole, say what they know, and belong to who raises them."""

import ast
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import upgrade_tools.errors  # noqa: F401  # its classes are below the root, too
from statestore import errors
from statestore.errors.readable import record_place
from tests.support.documentation import ROOT

LIBRARY = ROOT / "statestore"
COMMANDS = ("statestore/spark/__main__.py", "statestore/testing", "statestore/errors/harness.py")
"""What has, or speaks of, a command line of its own."""


def every_error(package: str = "statestore.errors.") -> list[type[errors.StateStoreError]]:
    """Every class of the errors of a package's modules, and the root, in order of their definition."""
    found, left = [], [errors.StateStoreError]
    while left:
        found.append(left.pop())
        left += [kind for kind in found[-1].__subclasses__() if kind not in found]
    return [kind for kind in found if kind.__module__.startswith(package)]


def texts(path: Path) -> Iterator[str]:
    """What a module says: its string constants, but docstrings; parts of a formatted string are one text."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            for part in node.values:
                part.value = None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def made(kind: type[errors.StateStoreError]) -> errors.StateStoreError:
    if kind.__init__ is Exception.__init__:
        return kind("message")
    parameters = list(inspect.signature(kind).parameters.values())
    values = {"int": 7, "int | None": None, "list[str]": ["x", "y"], "BaseException": OSError("why")}
    arguments = [values.get(str(p.annotation), "text") for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = {p.name: values.get(str(p.annotation), "text") for p in parameters if p.kind is p.KEYWORD_ONLY}
    return kind(*arguments, **named)


@pytest.mark.parametrize("kind", [*every_error(), *every_error("upgrade_tools.errors")], ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_with_message_and_fields(kind: type[errors.StateStoreError]) -> None:
    error = made(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert {name: str(value) for name, value in vars(again).items()} == {
        name: str(value) for name, value in vars(error).items()
    }


def test_the_page_says_what_to_do_about_every_public_error() -> None:
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    assert {name for name in errors.__all__ if f"`{name}`" not in page} == set()
    assert set(re.findall(r"`(\w+(?:Error|Exception))`", page)) - set(errors.__all__) == {"ValueError", "TypeError"}


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_can_be_caught_by_a_public_name(kind: type[errors.StateStoreError]) -> None:
    public = [base for base in kind.__mro__ if base.__name__ in errors.__all__]
    assert kind is errors.StateStoreError or public[0] is not errors.StateStoreError


def test_the_library_raises_each_of_its_errors() -> None:
    modules = [path for path in LIBRARY.rglob("*.py") if LIBRARY / "errors" not in path.parents]
    named = {
        word for path in modules for word in re.findall(r"\w+(?:Error|Exception)\b", path.read_text(encoding="utf-8"))
    }
    bases = {base.__name__ for kind in every_error() for base in kind.__mro__[1:]}
    assert {kind.__name__ for kind in every_error()} - named - bases == set()


def test_the_library_names_no_option_of_a_command_line_but_in_a_whole_command() -> None:
    for path in LIBRARY.rglob("*.py"):
        if path.relative_to(ROOT).as_posix().startswith(COMMANDS):
            continue
        for text in texts(path):
            assert not re.search(r"(?<![-\w])--[a-z]", re.sub(r"`[^`]*`", "", text)), (path, text)


@pytest.mark.parametrize(
    ("offset", "place"),
    [
        (17, "record orders-0 at offset 17"),
        (10**15 - 1, "record orders-0 at offset 999999999999999"),
        (10**18, "record orders-0 at offset 1000000000000000000"),
        (
            1_767_603_600_000_000,
            "record orders-0 at offset 1767603600000000 (2026-01-05 09:00:00 UTC in microseconds)",
        ),
    ],
)
def test_an_offset_that_was_made_of_a_time_is_told_as_that_too(offset: int, place: str) -> None:
    assert record_place("orders", 0, offset) == place
