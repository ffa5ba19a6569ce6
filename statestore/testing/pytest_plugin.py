"""The pytest plugin of statestore: the fixture `topology_test_driver`, wherever statestore is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from statestore.processor.topology import Topology
from statestore.testing.topology_test_driver import TopologyTestDriver


@pytest.fixture
def topology_test_driver(tmp_path: Path) -> Iterator[Callable[..., TopologyTestDriver]]:
    """Make drivers: `topology_test_driver(topology, ...)` takes what TopologyTestDriver takes.

    Each has its state in a directory of its own below `tmp_path`, unless `state_dir` is given, and is closed when the
    test ends, the last one first.
    """
    with ExitStack() as drivers:
        made = 0

        def make(topology: Topology, **options: Any) -> TopologyTestDriver:
            nonlocal made
            made += 1
            options.setdefault("state_dir", tmp_path / f"statestore-{made}")
            return drivers.enter_context(TopologyTestDriver(topology, **options))

        yield make
