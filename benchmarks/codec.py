"""The codecs by themselves: microseconds a record, scalar and over columns, with 3 headers and a 100-byte value.

    python benchmarks/codec.py [ROWS]

The best of several rounds, because whatever disturbs a round makes it slower.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat

import pyarrow as pa

from statestore import Header, Headers
from statestore.format.records.header_bytes import decode_headers, encode_headers
from statestore.format.records.header_columns import decode_header_column, encode_header_column
from statestore.format.values.stored_columns import join_columns, split_columns
from statestore.format.values.value_timestamp_headers import (
    encode_value_timestamp_headers,
    plain_value,
    split_value_timestamp_headers,
    timestamped_value,
)
from turns import Clock, best, mean_us

ROUNDS = 9
TIMESTAMP_MS = 1_700_000_000_000
VALUE = b"v" * 100


def codec_runs(rows: int, clock: Clock = time.perf_counter) -> dict[str, Callable[[], float]]:
    """Return rounds of each codec over `rows` rows: a call returns microseconds a row."""
    pairs: list[list[tuple[str, bytes | None]]] = [
        [("trace-id", b"%020d" % row), ("tenant", b"tenant-%013d" % (row % 100)), ("schema-id", b"%020d" % (row % 9))]
        for row in range(rows)
    ]
    encoded = [encode_headers(row) for row in pairs]
    encoded_column = pa.array(encoded, pa.binary())
    header_column = decode_header_column(encoded_column)
    timestamps = pa.array(range(TIMESTAMP_MS, TIMESTAMP_MS + rows), pa.int64())
    values = pa.array([VALUE] * rows, pa.binary())
    stored_column = join_columns(values, timestamps, encoded_column)
    stored: list[bytes] = stored_column.to_pylist()

    calls: dict[str, Callable[[], object]] = {
        "encode_headers": lambda: exhaust(map(encode_headers, pairs)),
        "decode_headers": lambda: exhaust(map(decode_headers, encoded)),
        "Headers.from_bytes": lambda: exhaust(map(Headers.from_bytes, encoded)),
        "... and last_header": lambda: exhaust(map(look_up, encoded)),
        "... and add, to_bytes": lambda: exhaust(map(append, encoded)),
        "encode_value_timestamp_headers": lambda: exhaust(
            map(encode_value_timestamp_headers, repeat(VALUE), repeat(TIMESTAMP_MS), encoded)
        ),
        "split_value_timestamp_headers": lambda: exhaust(map(split_value_timestamp_headers, stored)),
        "plain_value": lambda: exhaust(map(plain_value, stored)),
        "timestamped_value": lambda: exhaust(map(timestamped_value, stored)),
        "encode_header_column": lambda: encode_header_column(header_column),
        "decode_header_column": lambda: decode_header_column(encoded_column),
        "join_columns": lambda: join_columns(values, timestamps, encoded_column),
        "split_columns": lambda: split_columns(stored_column),
    }
    return {name: partial(mean_us, call, rows, clock) for name, call in calls.items()}


def main(rows: int) -> None:
    print(f"{rows} rows with 3 headers, best of {ROUNDS}, us a record")
    for name, record_us in best(codec_runs(rows), ROUNDS).items():
        print(f"  {name:32}{record_us:6.3f}")


def look_up(header_bytes: bytes) -> Header | None:
    return Headers.from_bytes(header_bytes).last_header("tenant")


def append(header_bytes: bytes) -> bytes:
    return Headers.from_bytes(header_bytes).add("hop", b"").to_bytes()


def exhaust(results: Iterable[object]) -> None:
    """Make all results and keep none."""
    deque(results, maxlen=0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
