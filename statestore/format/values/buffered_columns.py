"""Records that wait in a buffer, as whole Arrow columns: `buffered_record` without an object a row."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import (
    Bytes,
    Flags,
    Integers,
    binary_array,
    cut_rows,
    interleave,
    is_valid,
    join_rows,
    numbers_at_each_byte,
    positions_and_bytes,
    positions_of,
    row_sizes,
    rows_of_numbers,
    varint_array,
)
from statestore.format.records.header_columns import (
    copy_entries,
    decode_header_column,
    encode_entries,
    find_entries,
    header_counts,
)
from statestore.format.values.buffered_record import (
    FIXED_BYTES,
    SAME_AS_PRIOR,
    BufferedRecord,
    decode_logged_record,
    utf16_units,
)

BUFFERED: Final = pa.schema(
    [
        ("timestamp_ms", pa.int64()),
        ("new", pa.binary()),
        ("header_bytes", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("old", pa.binary()),
        ("prior", pa.binary()),
        ("due_ms", pa.int64()),
    ]
)
"""The fields of BufferedRecord, and when each is due, in milliseconds since the epoch."""

_FRONT: Final = np.dtype([("timestamp_ms", ">i8"), ("offset", ">i8"), ("topic_size", ">i4")])
_MIDDLE: Final = np.dtype([("partition", ">i4"), ("header_count", ">i4")])
_MAX_TURNS: Final = 64
"""Columns with longer rows of headers are decoded row by row."""


def encode_logged_columns(records: pa.RecordBatch) -> pa.BinaryArray:
    """Return `encode_buffered_record` of each row of BUFFERED, with its buffer time. Raises what headers raise."""
    headers = decode_header_column(records.column("header_bytes"))
    entries, firsts = headers.flatten(), positions_of(header_counts(headers))
    names, values = entries.field("key").cast(pa.binary()), entries.field("value")
    positions, data = interleave([_sizes(names), names, _sizes(values), values], "headers")
    topics = records.column("topic").cast(pa.binary())
    fronts, middles = np.empty(records.num_rows, _FRONT), np.empty(records.num_rows, _MIDDLE)
    for name in ("timestamp_ms", "offset"):
        fronts[name] = records.column(name).to_numpy()
    fronts["topic_size"], middles["header_count"] = row_sizes(topics), np.diff(firsts)
    middles["partition"] = records.column("partition").to_numpy()
    new, old, prior = (records.column(name) for name in ("new", "old", "prior"))
    is_same = _is_same(old, prior)
    old_sizes = np.where(is_same, SAME_AS_PRIOR, _sizes_or_null(old)).astype(">i4")
    parts = [rows_of_numbers(fronts), topics, rows_of_numbers(middles), binary_array(positions[firsts * 4], data)]
    parts += [_sizes(prior), prior, rows_of_numbers(old_sizes), pc.if_else(pa.array(is_same), None, old)]
    parts += [_sizes(new), new, rows_of_numbers(records.column("due_ms").to_numpy().astype(">i8"))]
    return join_rows(parts, "buffered records")


def decode_logged_columns(stored: pa.BinaryArray) -> pa.RecordBatch:
    """Return `decode_logged_record` of each row, as BUFFERED; none is null. Raises what that raises."""
    found = _decoded(stored) if len(stored) else pa.record_batch([[]] * len(BUFFERED), schema=BUFFERED)
    if found is None:  # one by one, which says what is unsound
        rows = [decode_logged_record(each) for each in stored.to_pylist()]
        columns = zip(*((*record, due_ms) for record, due_ms in rows), strict=True)
        named = dict(zip((*BufferedRecord._fields, "due_ms"), columns, strict=True))
        return pa.record_batch([named[name] for name in BUFFERED.names], schema=BUFFERED)
    return found


def counted_bytes_of(records: pa.RecordBatch, keys: pa.BinaryArray) -> int:
    """Return the sum of `BufferedRecord.counted_bytes` of all rows, with their keys."""
    headers = decode_header_column(records.column("header_bytes")).flatten()
    new, old, prior, topic = (records.column(name) for name in ("new", "old", "prior", "topic"))
    old = old.filter(pa.array(~_is_same(old, prior)))
    sizes = [int(row_sizes(column).sum()) for column in (keys, new, old, prior, headers.field("value"))]
    return FIXED_BYTES * len(keys) + sum(sizes) + _units(topic) + _units(headers.field("key"))


def _units(texts: pa.StringArray) -> int:
    """Return how many UTF-16 units texts have together."""
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return int(row_sizes(texts).sum())
    return sum(count["counts"].as_py() * utf16_units(count["values"].as_py()) for count in pc.value_counts(texts))


def _is_same(old: pa.BinaryArray, prior: pa.BinaryArray) -> Flags:
    """Return where an old value is there and equals the prior one."""
    return np.asarray(pc.fill_null(pc.equal(old, prior), False))


def _sizes_or_null(column: pa.BinaryArray) -> Integers:
    return np.where(is_valid(column), row_sizes(column), -1)


def _sizes(column: pa.BinaryArray) -> pa.BinaryArray:
    return rows_of_numbers(_sizes_or_null(column).astype(">i4"))


def _read_sizes(data: Bytes, positions: Integers, ends: Integers) -> tuple[Integers, Integers, Flags]:
    """Do what `read_varints` does, with numbers of 32 bits."""
    return _numbers(data, positions, ">i4"), positions + 4, positions + 4 <= ends


def _numbers(data: Bytes, positions: Integers, layout: str) -> Integers:
    return numbers_at_each_byte(data, layout).take(positions, mode="clip").astype(np.int64)


def _decoded(stored: pa.BinaryArray) -> pa.RecordBatch | None:
    """Return the rows; None if not all of them can be read together."""
    positions, data = positions_and_bytes(stored)
    starts, ends = positions[:-1], positions[1:]
    if (ends - starts < _FRONT.itemsize).any():
        return None
    topic_ends = starts + _FRONT.itemsize + _numbers(data, starts + 16, ">i4")
    counts = _numbers(data, topic_ends + 4, ">i4")
    entries_at = topic_ends + _MIDDLE.itemsize
    sound = (topic_ends >= starts + _FRONT.itemsize) & (entries_at <= ends) & (counts <= _MAX_TURNS)
    if not sound.all():
        return None
    counts = np.maximum(counts, 0)
    spans, has_value, sound = find_entries(data, entries_at, ends, counts, read=_read_sizes)
    if not sound.all():
        return None
    at = entries_at.copy()
    at[counts > 0] = spans[positions_of(counts)[1:][counts > 0] - 1, 3]
    cuts: dict[str, tuple[Integers, Integers, Integers]] = {}
    for name in ("prior", "old", "new"):
        sizes, begin, is_there = _read_sizes(data, at, ends)
        at = begin + np.maximum(sizes, 0)
        sound &= is_there & (sizes >= (SAME_AS_PRIOR if name == "old" else -1)) & (at <= ends)
        cuts[name] = sizes, begin, at
    if not (sound & (at + 8 == ends)).all():
        return None
    topics = cut_rows(data, starts + _FRONT.itemsize, topic_ends, sound)
    names, values = copy_entries(data, spans, has_value)
    try:
        topics = topics.cast(pa.string())
        names.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    prior, old, new = (cut_rows(data, begin, end, sizes >= 0) for sizes, begin, end in cuts.values())
    found = {
        "timestamp_ms": _numbers(data, starts, ">i8"),
        "new": new,
        "header_bytes": encode_entries(counts, [varint_array(row_sizes(names)), names], values),
        "topic": topics,
        "partition": pa.array(_numbers(data, topic_ends, ">i4"), pa.int32()),
        "offset": _numbers(data, starts + 8, ">i8"),
        "old": pc.if_else(pa.array(cuts["old"][0] == SAME_AS_PRIOR), prior, old),
        "prior": prior,
        "due_ms": _numbers(data, at, ">i8"),
    }
    return pa.record_batch([found[name] for name in BUFFERED.names], schema=BUFFERED)
