"""Fixtures of the conformance suites: a stack for each case of the kind that a suite names as its KIND."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.stacks import Case, Stack, cases, stack_of

SELECTIONS: dict[str, Callable[[Case], bool]] = {
    "stack": lambda case: True,
    "fresh": lambda case: case.older is None,
    "logged": lambda case: case.is_logged,
    "with_headers": lambda case: case.has_headers,
    "upgrading": lambda case: case.older is not None,
}

OUTERMOST = ("bare", "all", "metered")
"""Without layers, and with all that a kind has."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, wanted in SELECTIONS.items():
        if name in metafunc.fixturenames:
            selected = cases(metafunc.module.KIND, wanted)
            assert selected, f"no case of the kind is for {name}"
            metafunc.parametrize(name, [_param(case) for case in selected], indirect=True)


def _param(case: Case) -> Any:
    """At each save, what finds nothing is tried in memory and on RocksDB, without layers and with all of them."""
    is_at_each_save = case.older is None and case.engine in ("memory", "rocksdb") and case.layers in OUTERMOST
    return pytest.param(case, id=str(case), marks=[] if is_at_each_save else [pytest.mark.slow])


def _open(request: pytest.FixtureRequest) -> Iterator[Stack]:
    with stack_of(request.param) as stack:
        yield stack


stack = pytest.fixture(_open, name="stack")
fresh = pytest.fixture(_open, name="fresh")
logged = pytest.fixture(_open, name="logged")
with_headers = pytest.fixture(_open, name="with_headers")
upgrading = pytest.fixture(_open, name="upgrading")
