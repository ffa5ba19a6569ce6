"""Every implementation of ByteStore is in the conformance suite."""

import importlib
import inspect
import pkgutil

import pytest

import statestore
from statestore.bytestore.engines.scans import ScannedStore
from statestore.bytestore.protocol import ByteStore, RowStore
from tests.bytestore.test_byte_store_conformance import ENGINES, InOneSegment

OF_WHICH_OTHERS_ARE = (ByteStore, RowStore, ScannedStore)
METHODS = {name for name, _ in inspect.getmembers(ByteStore, inspect.isfunction) if not name.startswith("_")}


def implementations() -> set[str]:
    found = set()
    for module in pkgutil.walk_packages(statestore.__path__, "statestore."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind not in OF_WHICH_OTHERS_ARE and set(dir(kind)) >= METHODS and kind.__module__ == module.name:
                found.add(kind.__name__)
    return found


@pytest.mark.spark  # it imports every module
def test_every_byte_store_is_listed(tmp_path) -> None:
    listed = set()
    for name, make in ENGINES.items():
        store, close = make(tmp_path / name)
        listed.add(type(store.inner if isinstance(store, InOneSegment) else store).__name__)
        close()
    assert implementations() == listed
