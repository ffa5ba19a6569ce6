"""A changelog that is read from the write set says what one says that was appended to, whatever spills meanwhile."""

import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.protocol import Change, RowChanges, WrittenRow
from statestore.bytestore.write_sets.spilling import SpillingWriteSet
from statestore.format.records.header_bytes import encode_headers
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored
from statestore.headers.record_columns import RecordColumns
from statestore.recovery.commit.batch_delta import BatchDelta
from statestore.recovery.commit.changelog import ChangelogRecord, batch_changelog
from statestore.recovery.commit.delta import Delta, DeltaInfo, changelog_records
from statestore.stores.layers.layer import ChangeLoggingLayer
from tests.support.recovery.spilling import small_space

Step = tuple[str, list[Change], int]
"""How to write, the changes, and the timestamp of the record that they are made for."""
INFO = DeltaInfo("state-1", 3, 7)
CHANGES = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.none() | st.binary(min_size=1, max_size=40)),
    min_size=1,
    max_size=5,
)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "write", "write_rows"]), CHANGES, st.integers(0, 9)), max_size=12)
HELD, SPILLED = 1 << 30, 1_000
DELETED_THEN_SPILLED: list[Step] = [
    ("put", [(b"a", None), (b"b", b"v" * 40), (b"c", b"v" * 40), (b"a", None)], 3),
    ("write_rows", [(b"a", None), (b"b", b"v" * 40), (b"d", None), (b"d", b"v" * 40)], 4),
    ("write", [(b"a", None), (b"b", b"v" * 40), (b"c", b"v" * 40), (b"d", None)], 5),
]


def record(timestamp_ms: int) -> WrittenRow:
    return WrittenRow(timestamp_ms, encode_headers([("at", b"%d" % timestamp_ms)]))


@dataclass
class Context:
    """The record that is being processed."""

    timestamp_ms: int = -1
    header_bytes: bytes = b""


def in_rows(changes: list[Change], first_ms: int) -> RowChanges:
    """The changes, each for a record a millisecond later than the one before."""
    keys, values = (pa.array(column, pa.binary()) for column in zip(*changes, strict=True))
    made_for = [record(first_ms + row) for row in range(len(changes))]
    times, headers = (pa.array(column) for column in zip(*made_for, strict=True))
    return RowChanges(keys, values, RecordColumns.adopt(keys, values, times, headers, None))


def last_records(
    spec: StoreSpec, steps: list[Step], limit_bytes: int, *, from_write_set: bool
) -> tuple[list[ChangelogRecord], int]:
    """Return the last record of each key in the delta of a batch that made these writes, and how often it spilled."""
    with tempfile.TemporaryDirectory() as home, small_space(Path(home) / "spill", limit_bytes) as space:
        written = SpillingWriteSet(MemoryDatabase(["s"]).family("s"), space)
        changelog = batch_changelog(spec, space.pending, written if from_write_set else None)
        context = Context()
        layer = ChangeLoggingLayer(written, spec, changelog, context)
        with closing(BatchDelta(INFO, {"s": changelog}, {}, space)) as delta:
            for operation, changes, timestamp_ms in steps:
                context.timestamp_ms, context.header_bytes = record(timestamp_ms)
                whole = [
                    (key, None if value is None else join_stored(spec.format, value, timestamp_ms, b"\x00"))
                    for key, value in changes
                ]
                if operation == "put":
                    for key, stored in whole:
                        layer.put(key, stored)
                elif operation == "write":
                    layer.write(whole)
                else:
                    layer.write_rows(in_rows(whole, timestamp_ms))
            finished = delta.finish()
            if finished is None:
                return [], space.pending.spills
            content = finished.content
            data = content if isinstance(content, pa.Buffer) else pa.py_buffer(content.read_bytes())
            records = [(one.key, one) for _, batch in Delta(data, "here").batches() for one in changelog_records(batch)]
            found = [one for place, (key, one) in enumerate(records) if key not in dict(records[place + 1 :])]
        assert {key for key, _ in written.range(None, None)} == {one.key for one in found if one.value}
        return found, space.pending.spills


@pytest.mark.parametrize("store_format", [StoreFormat.TIMESTAMPED, StoreFormat.TIMESTAMPED_WITH_HEADERS])
@pytest.mark.parametrize("limit_bytes", [HELD, SPILLED])
@given(steps=STEPS)
@example(steps=DELETED_THEN_SPILLED)
@settings(max_examples=15)
def test_what_is_read_from_the_write_set_is_what_was_logged(
    store_format: StoreFormat, limit_bytes: int, steps: list[Step]
) -> None:
    spec = StoreSpec("s", StoreKind.KEY_VALUE, store_format)
    expected, _ = last_records(spec, steps, HELD, from_write_set=False)
    found, spills = last_records(spec, steps, limit_bytes, from_write_set=True)
    assert found == expected
    if steps == DELETED_THEN_SPILLED:
        assert (spills > 0) is (limit_bytes == SPILLED)


def test_a_changelog_that_was_appended_to_goes_on_with_that(tmp_path: Path) -> None:
    spec = StoreSpec("s", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)
    with small_space(tmp_path / "spill", HELD) as space:
        written = SpillingWriteSet(MemoryDatabase(["s"]).family("s"), space)
        changelog = batch_changelog(spec, space.pending, written)
        changelog.append(b"a", join_stored(spec.format, b"1", 1, None), record(1))
        ChangeLoggingLayer(written, spec, changelog, record(2)).put(b"b", join_stored(spec.format, b"2", 2, None))
    assert [(one.key, one.value) for one in changelog.records()] == [(b"a", b"1"), (b"b", b"2")]
