"""What can't travel to the workers is named when a query is made: what can't be pickled, modules that are not there."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark import cloudpickle

import statestore.connect
from statestore import Processor, Record, Serdes, Topology
from statestore.errors.run import NotPicklableError
from statestore.interception.failures import FailureHandling
from statestore.spark.code_on_workers import _is_installed, _missing, _pickled_parts, imported_modules, own_modules

TEXT = Serdes.string()
FAIL = FailureHandling()


class Pass(Processor):
    def __init__(self, model: Any = None) -> None:
        self.model = model

    def process(self, record: Record[Any, Any]) -> None:
        pass


class Model:
    def __init__(self) -> None:
        self.names = ["a"]
        self.lock = threading.Lock()

    def name(self, value: Any) -> Any:
        return value


def topology(supplier: Any = Pass, **serdes: Any) -> Topology:
    made = Topology().add_source("in", key_serde=TEXT, value_serde=TEXT, **serdes)
    return made.add_processor("p", supplier, ["in"]).add_sink("out", "out", ["p"])


def with_lock() -> Any:
    model = Model()
    return lambda: Pass(model)


@pytest.mark.parametrize(
    ("make", "attribute"),
    [
        (with_lock, "model.lock"),
        (lambda: partial(Pass, model={"all": [1, Model()]}), "keywords['model']['all'][1].lock"),
        (lambda: partial(Pass, Model().name), "args[0].__self__.lock"),
        (lambda: partial(Pass, sys.stdout.buffer), "args[0]"),
    ],
)
def test_what_cannot_be_pickled_is_named_with_its_attribute(make: Callable[[], Any], attribute: str) -> None:
    with pytest.raises(NotPicklableError, match=r"^processor 'p' can't travel.*can't be pickled.*init\(\)") as caught:
        list(_pickled_parts(topology(make()), FAIL))
    assert (caught.value.part, caught.value.attribute) == ("processor 'p'", attribute)


def test_other_parts_are_named_too() -> None:
    lock = threading.Lock()
    made = topology()
    made.sinks["out"] = made.sinks["out"].__class__("out", lambda record, metadata: str(lock), ("p",), None, None)
    with pytest.raises(NotPicklableError, match=r"^sink 'out' can't travel"):
        list(_pickled_parts(made, FAIL))
    with pytest.raises(NotPicklableError, match=r"^refusal can't travel.*'lock'"):
        list(_pickled_parts(topology(), FailureHandling(refusal=lambda failed: str(lock))))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of the user's, which only this process can import."""
    (tmp_path / "shop_of_tests.py").write_text(
        "from statestore import Processor\n\nclass Totals(Processor):\n    def process(self, record):\n        pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("shop_of_tests")
    del sys.modules["shop_of_tests"]


def test_a_module_is_found_wherever_it_is_named(shop: ModuleType) -> None:
    class Uses(Processor):
        def process(self, record: Record[Any, Any]) -> None:
            shop.Totals()

    def refers() -> Processor:
        return shop.Totals()

    for supplier in (shop.Totals, partial(shop.Totals), lambda: shop.Totals(), Uses, refers):
        found = own_modules(_pickled_parts(topology(supplier), FAIL), _is_installed)
        assert found["shop_of_tests"] == "processor 'p'"
    cloudpickle.register_pickle_by_value(shop)
    assert "shop_of_tests" not in own_modules(_pickled_parts(topology(shop.Totals), FAIL), _is_installed)
    cloudpickle.unregister_pickle_by_value(shop)


def test_texts_that_are_names_of_modules_are_none() -> None:
    assert imported_modules(cloudpickle.dumps(["json", "statestore", ("sys", "path")])) == set()
    assert "statestore.connect" in imported_modules(cloudpickle.dumps(statestore.connect))
    parts = [("it", cloudpickle.dumps([statestore.connect, pytest, sys, Path]))]
    assert own_modules(parts, _is_installed) == {}


def test_an_interpreter_like_the_workers_says_what_it_cannot_import(shop: ModuleType, tmp_path: Path) -> None:
    asked = frozenset({"shop_of_tests", "json"})
    assert _missing(asked, sys.executable, "") == {"shop_of_tests"}
    assert _missing(asked, sys.executable, str(tmp_path)) == frozenset()
    assert _missing(asked, str(tmp_path / "no-python"), "") == frozenset()  # which Spark will say
