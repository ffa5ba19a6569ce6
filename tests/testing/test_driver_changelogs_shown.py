"""What a test driver's stores were written is shown before it is committed, as a query's is."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from statestore import Processor, Serdes, Stores, Topology
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.testing.driver_state import DriverState


@pytest.fixture
def state(tmp_path: Path) -> DriverState:
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.string())
    topology.add_processor("p", Processor, ["in"])
    for name in ("written", "untouched"):
        supplier = Stores.persistent_timestamped_key_value_store(name)
        builder = Stores.timestamped_key_value_store_builder(supplier, Serdes.string(), Serdes.string())
        topology.add_state_store(builder.with_caching_enabled(), "p")
    state = DriverState("app", tmp_path, {}, wall_clock_ms=0, is_kept=False)
    state.open(topology)
    return state


def test_b6_what_was_written_is_shown_once(state: DriverState) -> None:
    shown: list[tuple[str, list[ChangelogRecord]]] = []

    def watch(name: str, records: Iterable[ChangelogRecord]) -> None:
        shown.append((name, [record for _ in range(2) for record in records][len(list(records)) :]))

    state.context.timestamp_ms = 7
    state.stores["written"].put_value("a", "1")
    state.commit(None, {}, watch)
    assert shown == [("written", [ChangelogRecord(b"a", b"1", 7, b"")])]
    state.commit(None, {}, watch)
    assert len(shown) == 1
    state.stores["written"].put_value("a", None)
    state.commit(None, {}, watch)
    assert shown[1:] == [("written", [ChangelogRecord(b"a", None, 7, b"")])]
    state.close()


def test_b6_who_watches_can_end_it(state: DriverState) -> None:
    def refuse(name: str, records: Iterable[ChangelogRecord]) -> None:
        raise RuntimeError(name)

    state.context.timestamp_ms = 7
    state.stores["written"].put_value("a", "1")
    with pytest.raises(RuntimeError, match="written"):
        state.commit(None, {}, refuse)
    state.discard()
    assert state.stores["written"].get("a") is None
    assert state.logs["written"].end_offset == 0
    state.close()
