"""The pytest plugin of statestore: the fixture `topology_test_driver`.

A package of its own beside statestore: pytest imports plugins at every start, and importing anything in statestore
brings pyarrow and RocksDB with it. Those are imported when a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from statestore import Topology
    from statestore.testing import TopologyTestDriver


@pytest.fixture
def topology_test_driver(tmp_path: Path) -> Iterator[Callable[..., TopologyTestDriver]]:
    """Make drivers: `topology_test_driver(topology, ...)` takes what TopologyTestDriver takes.

    Each has its state in a directory of its own below `tmp_path`, unless `state_dir` is given, and is closed when the
    test ends, the last one first.
    """
    from statestore.testing import TopologyTestDriver

    with ExitStack() as drivers:
        made = 0

        def make(topology: Topology, **options: Any) -> TopologyTestDriver:
            nonlocal made
            made += 1
            options.setdefault("state_dir", tmp_path / f"statestore-{made}")
            return drivers.enter_context(TopologyTestDriver(topology, **options))

        yield make
