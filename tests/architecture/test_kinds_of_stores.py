"""What depends on a store's kind is looked up in a table that has every kind, and not told by comparing with one."""

import ast
from collections.abc import Iterator

from statestore.bytestore.kinds.kind_layout import LAYOUTS, KindLayout
from statestore.bytestore.kinds.store_spec import FAMILIES, StoreKind, StoreType
from tests.support.sources import library_sources


def is_kind(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "StoreKind"


def trees() -> Iterator[tuple[str, ast.AST]]:
    return ((path.as_posix(), tree) for path, tree in library_sources().items())


def comparisons(tree: ast.AST) -> list[int]:
    """Return the lines in which a member of StoreKind is compared, is matched, or is listed with others for that."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            is_telling = any(map(is_kind, ast.walk(node)))
        else:  # a kind beside other things is a row of a table
            is_telling = isinstance(node, ast.Tuple | ast.List | ast.Set) and node.elts and all(map(is_kind, node.elts))
        if is_telling:
            found.append(node.lineno)
    return found


def tables(tree: ast.AST) -> list[tuple[int, set[str]]]:
    """Return line and kinds of each table by kind."""
    dicts = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    found = [node for node in dicts if any(key is not None and is_kind(key) for key in node.keys)]
    return [(node.lineno, {key.attr for key in node.keys if isinstance(key, ast.Attribute)}) for node in found]


def test_no_reader_tells_a_layout_by_comparing_kinds() -> None:
    assert {where: lines for where, tree in trees() if (lines := comparisons(tree))} == {}


def test_every_table_by_kind_has_every_kind() -> None:
    found = {f"{where}:{line}": kinds for where, tree in trees() for line, kinds in tables(tree)}
    assert len(found) > 3
    every = {kind.name for kind in StoreKind}
    assert {where: every - kinds for where, kinds in found.items() if kinds != every} == {}


def test_every_kind_says_all_of_its_layout() -> None:
    assert LAYOUTS.keys() == FAMILIES.keys() == set(StoreKind)
    facts = {fact for fact, type_ in KindLayout.__annotations__.items() if "ClassVar" in type_}
    assert facts
    for kind, layout in LAYOUTS.items():
        assert not {fact for fact in facts if not hasattr(layout, fact)}, kind
        assert not layout.__abstractmethods__


def test_every_kind_in_every_format_has_a_name() -> None:
    formats = {(kind, store_format) for kind, formats in FAMILIES.items() for store_format in formats}
    assert {(store_type.store_kind, store_type.store_format) for store_type in StoreType} == formats
