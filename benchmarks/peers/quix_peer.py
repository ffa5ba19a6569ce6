"""What CountAndKeep of benchmarks/workload.py does, in Quix Streams: bytes in its state, with a changelog topic.

    python quix_peer.py BOOTSTRAP INPUT OUTPUT SCRATCH RECORDS_PER_BATCH

It runs in the benchmark's own environment (environment.py), which has neither Spark nor this project, until killed.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application

STATE = "kept"
SIZE_BYTES = 2


def packed(timestamp_ms: int, headers: list[tuple[str, bytes]]) -> bytes:
    """Return timestamp and headers, each name and value with its size before it."""
    parts = [timestamp_ms.to_bytes(8, "big")]
    for name, content in headers:
        for part in (name.encode(), content):
            parts += [len(part).to_bytes(SIZE_BYTES, "big"), part]
    return b"".join(parts)


def count_and_keep(value: bytes, key: bytes, timestamp_ms: int, headers: Any, state: Any) -> bytes:
    """Count a key's records; keep the latest one's value, timestamp and headers."""
    seen = state.get_bytes(STATE)
    count = 1 if seen is None else int.from_bytes(seen[:8], "big") + 1
    counted = count.to_bytes(8, "big") + value
    state.set_bytes(STATE, counted + packed(timestamp_ms, headers or []))
    return counted


def main() -> None:
    servers, input_topic, output_topic, scratch, _ = sys.argv[1:]
    application = Application(
        broker_address=servers, consumer_group=output_topic, state_dir=f"{scratch}/state", auto_offset_reset="earliest"
    )
    source = application.topic(input_topic, key_deserializer="bytes", value_deserializer="bytes")
    sink = application.topic(output_topic, key_serializer="bytes", value_serializer="bytes")
    frame = application.dataframe(source)
    frame.apply(count_and_keep, stateful=True, metadata=True).to_topic(sink)
    application.run()


if __name__ == "__main__":
    main()
