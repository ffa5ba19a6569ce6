"""A name that modules offer stands for one thing: two classes have two names, and so have two values."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.support.sources import library_sources


def top_level() -> Iterator[tuple[str, ast.stmt]]:
    for path, tree in library_sources().items():
        for statement in tree.body:
            yield str(path), statement


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path, statement in top_level():
        if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
            places[statement.name].append(path)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_constant_has_two_values() -> None:
    values = defaultdict(dict)
    for path, statement in top_level():
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets = [statement.target]
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_"):
                values[target.id].setdefault(ast.unparse(statement.value), path)
    assert {name: found for name, found in values.items() if len(found) > 1} == {}
