"""What one module alone does, so that a change of it is a change in one place."""

import ast
import importlib
import inspect
import pkgutil

import pytest

from statestore import stores
from statestore.bytestore.protocol import ByteStoreLayer
from statestore.bytestore.write_sets.write_set import WriteSet
from tests.support.sources import library_sources


def importers(name: str) -> set[str]:
    """Return the modules of the library and its tools that import a name from another one."""
    return {
        ".".join(path.with_suffix("").parts)
        for path, tree in library_sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names)
    }


@pytest.mark.parametrize("step", ["write_initial_pointer", "turn", "ShardFilling"])
def test_a_state_is_made_by_one_maker(step: str) -> None:
    makers = {module for module in importers(step) if not module.startswith("statestore.recovery.making.")}
    assert makers <= {"upgrade_tools.changelogs.to_state"}, "who is handed a filling may name its type"
    assert "statestore.recovery.making.new_state" in importers(step)


def test_layers_of_stores_are_stacked_in_one_place() -> None:
    rooms = (
        importlib.import_module(room.name) for room in pkgutil.walk_packages(stores.__path__, "statestore.stores.")
    )
    layers = {
        name
        for room in rooms
        for name, kind in inspect.getmembers(room, inspect.isclass)
        if issubclass(kind, (ByteStoreLayer, WriteSet)) and kind not in (ByteStoreLayer, WriteSet)
    }
    assert layers == {"RetainingLayer", "ChangeLoggingLayer", "CachingLayer", "ExpiringLayer", "IndexedLayer"}
    assert {name: importers(name) for name in layers} == {name: {"statestore.stores.builder"} for name in layers}
