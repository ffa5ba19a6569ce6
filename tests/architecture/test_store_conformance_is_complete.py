"""Every typed store, every factory of `Stores` and every layer is in the conformance suites."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import statestore.stores
from statestore import Stores
from statestore.bytestore.protocol import ByteStore, ByteStoreLayer
from statestore.stores.readable_store import ReadableStore, SegmentedReadableStore
from statestore.stores.typed_store import TypedStore
from tests.conformance import stacks
from tests.conformance.stacks import KINDS, Case, cases, stack_of

BYTE_STORE_METHODS = {name for name, _ in inspect.getmembers(ByteStore, inspect.isfunction) if name[0] != "_"}
CASES = [case for kind in KINDS for case in cases(kind)]


def classes() -> Iterator[type]:
    """Yield every class that is defined in statestore.stores."""
    for module in pkgutil.walk_packages(statestore.stores.__path__, "statestore.stores."):
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if found.__module__ == module.name:
                yield found


def below(store: Any) -> Iterator[Any]:
    """Yield a typed store's byte stores, from the outermost layer down."""
    found = store.stack.top
    while found is not None:
        yield found
        found = getattr(found, "inner", None)


@pytest.fixture(scope="module")
def built() -> list[tuple[Any, Any, list[type]]]:
    """Every case's store and its read-only view, with the types of the layers below."""
    found = []
    for case in CASES:
        with stack_of(case) as stack:
            store = stack.open()
            found.append((store, store.read_only(), [type(layer) for layer in below(store)]))
    return found


def test_every_typed_store_is_built(built: list[tuple[Any, Any, list[type]]]) -> None:
    bases = {ReadableStore, SegmentedReadableStore, TypedStore}
    concrete = {found for found in classes() if issubclass(found, ReadableStore)} - bases
    assert concrete == {type(one) for store, view, _ in built for one in (store, view)}


def test_every_layer_is_under_a_store(built: list[tuple[Any, Any, list[type]]]) -> None:
    layers = {found for found in classes() if set(dir(found)) >= BYTE_STORE_METHODS} - {ByteStoreLayer}
    used = {layer for _, _, types in built for layer in types if layer.__module__.startswith("statestore.stores.")}
    assert layers == used
    assert {store.metrics is None for store, _, _ in built} == {True, False}


def test_every_factory_is_called() -> None:
    factories = {getattr(Stores, name) for name in vars(Stores) if not name.startswith("_")}
    builders = {builder for kind in KINDS for builder in kind.builders.values()}
    suppliers = {supplier for kind in KINDS for supplier in kind.factories}
    assert factories == builders | suppliers


def test_every_kind_goes_through_all_its_layers_and_engines() -> None:
    for kind in KINDS:
        found = cases(kind)
        newest = max(kind.builders)
        layers = {"bare", "logged", "cached", "all"} if kind.cached else {"bare", "logged", "metered"}
        if kind is stacks.KEY_VALUE:
            layers.add("expiring")
        product = {(engine, layer) for engine in stacks.ENGINES for layer in layers}
        product -= {("task directory", layer) for layer in ("cached", "logged", "expiring")}
        fresh = {(case.engine, case.layers) for case in found if case.format is newest and case.older is None}
        assert fresh == product
        assert {case.format for case in found} == set(kind.builders)
    assert set(stacks.LAYERS) == {case.layers for case in CASES}


def test_every_upgrade_is_found_whole_and_half() -> None:
    def upgrades(case: Case) -> tuple[Any, ...]:
        return case.kind.builder(case.format).spec.kind, case.older, case.format

    for half in (False, True):
        found = {upgrades(case) for case in CASES if case.older is not None and case.half is half}
        assert len(found) == 3 + 3 + 1 + 1


def test_every_kind_has_a_suite() -> None:
    folder = Path(stacks.__file__).parent
    names = [path.stem for path in folder.glob("test_*.py")]
    suites = [importlib.import_module(f"tests.conformance.{name}").KIND for name in names]
    assert len(suites) == len(KINDS)
    assert all(any(suite is kind for suite in suites) for kind in KINDS)
