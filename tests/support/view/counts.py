"""A state with one store, of counts, and how views read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from statestore import Serdes, Stores
from statestore.format.keys.partitioner import partition_of
from statestore.recovery.local.local_directory import try_lock
from statestore.recovery.location.durable_location import DurableLocation

COUNTS: Final = Stores.key_value_store_builder(
    Stores.persistent_key_value_store("counts"), Serdes.string(), Serdes.int64()
)
AS_COUNTS: Final[dict[str, Any]] = {"key_serde": Serdes.string(), "value_serde": Serdes.int64()}


def put(shards: int = 2, **counts: int | None) -> Callable[[int, Any], None]:
    """Put each count in the shard of its key."""

    def write(shard: int, stores: Any) -> None:
        for key, count in counts.items():
            if partition_of(key.encode(), shards) == shard:
                stores["counts"].put(key, count)

    return write


class RecordedReads(DurableLocation):
    """A location that remembers which files were read."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.names_read: list[str] = []

    def read(self, name: str, max_bytes: int) -> pa.Buffer | None:
        self.names_read.append(name)
        return super().read(name, max_bytes)


def open_copies(local_dir: Path) -> set[int]:
    """Return the shards of which somebody holds a copy."""
    held = set()
    for copy in local_dir.glob("*/*/shard-*/copy-0"):
        with try_lock(copy) as was_free:
            if not was_free:
                held.add(int(copy.parent.name.removeprefix("shard-")))
    return held
