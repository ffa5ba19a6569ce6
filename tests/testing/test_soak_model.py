"""What the soak expects is what the stores hold where nothing fails: else it gives false alarms, or misses losses.

Times are few and at the borders of windows, gaps and times to live, so that records come together, late and in rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statestore import ResultOrder, Serdes, Windowed
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.soak.records import GAP_MS, START_MS, TTL_MS, WINDOW_MS, Reading, expected_contents, seeded_batches
from tests.support.soak.topology import KEY, topology

BORDERS_MS = (0, GAP_MS, WINDOW_MS, WINDOW_MS + GAP_MS, TTL_MS)
TIMES_MS = [START_MS + border_ms + step_ms for border_ms in BORDERS_MS for step_ms in (-1, 0, 1)]


def readings_at(times_ms: list[int]) -> st.SearchStrategy[list[Reading]]:
    """Draw readings of one partition at few times, so that they collide."""
    reading = st.builds(
        Reading,
        key=st.sampled_from(["a", "ü"]),
        amount=st.sampled_from([None, None, -1, 0, 7]),
        partition=st.just(0),
        offset=st.just(0),
        timestamp_ms=st.sampled_from(times_ms),
        headers=st.sampled_from([[], [("tenant", b"eu"), ("tenant", None)]]),
    )
    return st.lists(reading, min_size=4, max_size=16)


batches = st.lists(st.sampled_from(TIMES_MS), min_size=2, max_size=4, unique=True).flatmap(readings_at)


def found_contents(batch: Iterable[Reading], *, in_columns: bool = False) -> dict[str, dict[Any, Any]]:
    """Return what the topology's output and stores hold after the readings of one partition."""
    batch = list(batch)
    with TopologyTestDriver(topology(in_columns=in_columns)) as driver:
        piped = driver.create_input_topic("readings", key_serde=KEY, value_serde=Serdes.bytes())
        records = [TestRecord(reading.key, reading.value, reading.timestamp_ms, reading.headers) for reading in batch]
        if in_columns:
            piped.pipe_micro_batch(records)
        else:
            piped.pipe_record_list(records)
        written = driver.create_output_topic("out", key_serde=KEY, value_serde=KEY)
        output: dict[str, list[Any]] = {}
        for record in written.read_records_to_list():
            output.setdefault(record.key, []).append((record.value, record.timestamp_ms, pairs(record.headers)))
        stores = driver.get_all_state_stores()
        found = {name: entries(store.all()) for name, store in stores.items() if name in ("totals", "recent", "counts")}
        found["windows"] = entries(stores["windows"].all())
        found["sessions"] = entries(stores["sessions"].fetch(None, None))
        found["versions"] = {
            (key, version.timestamp_ms, version.valid_to_ms): (version.value, None, pairs(version.headers))
            for key in {reading.key for reading in batch}
            for version in stores["versions"].get(key, 0, MAX_TIME_MS, ResultOrder.ASCENDING)
        }
    return {"output": output, **found}


def entries(stored: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a scan as the soak has it: value, timestamp if the kind has one, and headers."""
    return {
        (key.key, key.start_ms, key.end_ms) if isinstance(key, Windowed) else key: (
            held.aggregation if hasattr(held, "aggregation") else held.value,
            getattr(held, "timestamp_ms", None),
            pairs(getattr(held, "headers", ())),
        )
        for key, held in stored
    }


def pairs(headers: Iterable[Any]) -> list[tuple[str, bytes | None]]:
    return [(header.key, header.value) for header in headers]


def reading(amount: int | None, at_ms: int) -> Reading:
    return Reading("a", amount, 0, 0, START_MS + at_ms, [])


@settings(max_examples=40)
@example([reading(None, 1), reading(1, 1), reading(None, 1), reading(2, 0)])
@example([reading(1, 0), reading(2, 2), reading(None, 0), reading(None, 2), reading(3, 1)])
@given(batches)
def test_stores_hold_what_the_soak_expects(batch: list[Reading]) -> None:
    expected = expected_contents(batch)
    assert found_contents(batch) == expected
    assert found_contents(batch, in_columns=True) == expected


@pytest.mark.parametrize("seed", [90_446, 92_298, 93_019])
def test_the_records_of_seeds_that_gave_false_alarms(seed: int) -> None:
    batch = [reading for batch in seeded_batches(seed) for reading in batch]
    expected: dict[str, dict[Any, Any]] = expected_contents(batch)
    found: dict[str, dict[Any, Any]] = {}
    for partition in {reading.partition for reading in batch}:
        for name, held in found_contents(one for one in batch if one.partition == partition).items():
            found.setdefault(name, {}).update(held)
    assert found == expected
