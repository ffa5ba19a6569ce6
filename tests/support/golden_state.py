"""Writes tests/golden/state-1: a state location in format 1, and the commit pointers that Spark would hold.

Run once for each format, never again for one that was released: `python tests/support/golden_state.py DIRECTORY`.
"""

import json
import sys
from pathlib import Path

from shards import TOTALS, Shard, stored
from statestore.format.header_bytes import encode_headers
from statestore.processor.context import TaskRecordContext
from statestore.recovery.metadata import StateMetadata, settle_metadata

TOPOLOGY = (
    {"type": "source", "name": "in", "topics": None},
    {"type": "processor", "name": "p", "parents": ["in"], "stores": ["totals"]},
)


def main(home: Path) -> None:
    """Three batches on shard 0: puts, an overwrite, a tombstone with the headers of the record that caused it."""
    shard = Shard(home)
    settle_metadata(shard.state.location, StateMetadata("state-1", 1, "key", (0,), (TOTALS,), TOPOLOGY))
    headers = encode_headers([("trace", b"\x00\xff"), ("trace", None), ("ä", b"")])
    first = shard.batch(
        shard.start(), {b"a": stored(b"1", 5, headers), b"b": stored(b"", -1), b"": stored(b"empty key")}
    )
    second = shard.batch(first, {b"a": stored(b"2", 6, encode_headers([("n", b"%d" % n) for n in range(70)]))})
    context = TaskRecordContext()
    context.timestamp_ms = 7
    context.headers.add("why", b"deleted")
    with shard.open(second, context) as batch:
        batch.stores["totals"].put(b"b", None)
        third = batch.commit(skipped_records=2, stream_time_ms=7)
    pointers = [json.loads(pointer.to_json()) for pointer in (first, second, third)]
    (home / "pointers.json").write_text(json.dumps(pointers, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
