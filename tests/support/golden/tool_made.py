"""Writes tests/golden/tool-made-N: a state's location as a tool makes it, of stores alone.

Run once for each format, never again for one that was released: `python -m tests.support.golden.tool_made DIRECTORY`.
"""

import sys
from pathlib import Path

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.keys.window_key import encode_session_key, encode_window_key
from statestore.format.records.header_bytes import encode_headers
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import LogicalWrite
from statestore.recovery.making.new_state import NewState
from statestore.recovery.making.state_filling import ShardFilling
from statestore.recovery.metadata.state_metadata import metadata_of_stores

TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)
WINDOWS = StoreSpec("windows", StoreKind.WINDOW, StoreFormat.TIMESTAMPED_WITH_HEADERS, 120_000, 60_000, 10_000)
SESSIONS = StoreSpec("sessions", StoreKind.SESSION, StoreFormat.WITH_HEADERS, 120_000, 60_000)
VERSIONS = StoreSpec("versions", StoreKind.VERSIONED, StoreFormat.PLAIN, 300_000, 100_000)
STORES = (TOTALS, WINDOWS, SESSIONS, VERSIONS)
HEADERS = encode_headers([("tenant", b"eu"), ("trace-id", None), ("tenant", b"us")])

Writes = dict[str, list[LogicalWrite]]


def writes_of(number: int) -> Writes:
    """Return what each store of shard `number` is to hold; versioned is a value, a tombstone and a value."""
    key, time_ms = f"key-{number}".encode(), 60_000 * number + 5
    headed = join_stored(StoreFormat.TIMESTAMPED_WITH_HEADERS, b"value", time_ms, HEADERS)
    session = join_stored(StoreFormat.WITH_HEADERS, b"session", 0, HEADERS)
    return {
        "totals": [LogicalWrite(key, headed, None)],
        "windows": [LogicalWrite(encode_window_key(key, time_ms), headed, None)],
        "sessions": [LogicalWrite(encode_session_key(key, time_ms, time_ms + 7), session, None)],
        "versions": [LogicalWrite(key, stored, time_ms + step) for step, stored in enumerate((b"old", None, b"new"))],
    }


def filling_of(made: NewState) -> ShardFilling:
    """Return what `writes_of` each shard was put into."""
    filling = made.filling()
    for shard in range(made.metadata.shards):
        for store, writes in writes_of(shard).items():
            filling.put(shard, store, writes)
    return filling


def main(directory: Path) -> None:
    """Write a state of two shards."""
    made = NewState.claim(DurableLocation(directory), metadata_of_stores(STORES, 2, "partition"), "nothing")
    made.complete(made.read_back(filling_of(made)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
