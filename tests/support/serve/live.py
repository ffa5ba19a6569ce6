"""A state with heads that goes on batch by batch, as a query takes it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from statestore import Headers, Processor, Stores, Topology, ValueTimestampHeaders
from statestore.recovery.heads.figures import HeadFigures
from statestore.recovery.heads.head import Head, write_head
from tests.support.golden.state import STRING
from tests.support.recovery.rescaling import Idle, States, fill

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE_KEY = f"evil\x1b[31m\u202e{SCRIPT}"
LARGE = "x" * (1 << 20)


class Count(Processor):
    """Has stores, and does nothing."""

    def process(self, record: Any) -> None:
        """Do nothing."""


def word_counts(*indexed: str) -> Topology:
    """A topology of two processors, with a store of counts, of which these headers are indexed, and one of windows."""
    topology = Topology()
    topology.add_source("lines", key_serde=STRING, value_serde=STRING)
    topology.add_processor("split", Idle, ["lines"])
    topology.add_processor("count", Count, ["split"])
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("counts")
    counts = Stores.timestamped_key_value_store_with_headers_builder(supplier, STRING, STRING)
    topology.add_state_store(counts.with_header_index(*indexed) if indexed else counts, "count")
    windows = Stores.persistent_timestamped_window_store_with_headers("per-minute", 3_600_000, 60_000, False, 600_000)
    topology.add_state_store(Stores.timestamped_window_store_with_headers_builder(windows, STRING, STRING), "count")
    topology.add_sink("totals", "totals", ["count"], key_serde=STRING, value_serde=STRING)
    return topology


def headers(**values: str) -> Headers:
    """Headers of these names and values."""
    made = Headers()
    for name, value in values.items():
        made.add(name.replace("_", "-"), value.encode())
    return made


class Live(States):
    """Commits batches of all shards, and publishes a head after each."""

    batch = -1

    def commit(self, entries: Mapping[str, Any], *, store: str = "counts", publish: bool = True) -> None:
        """Commit a batch that puts these values, None to delete, each into the shard of its key."""

        def put(stores: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
            for key, value in mine.items():
                stores[store].put(key, value)

        self.change(put, entries, publish=publish)

    def change(
        self,
        operations: Callable[[Mapping[str, Any], Mapping[str, Any]], None],
        entries: Mapping[str, Any],
        *,
        publish: bool = True,
    ) -> None:
        """Commit a batch of these operations, which are called for each shard with its part of the entries."""
        before = {shard: self.pointer(shard).head for shard in range(self.shards)}
        for shard in range(self.shards):
            mine = {key: value for key, value in entries.items() if self.shard_of(key) == shard}
            if mine:
                self.run(shard, lambda stores, mine=mine: operations(stores, mine))  # type: ignore[misc]
        self.batch += 1
        if publish:
            self.publish([shard for shard, head in before.items() if self.pointer(shard).head != head])

    def publish(self, changed: list[int], figures: HeadFigures | None = None) -> None:
        """Publish what is committed, with figures if a query would tell some."""
        pointers = tuple(self.pointer(shard) for shard in range(self.shards))
        time_ms = 1_764_000_000_000 + 1_000 * self.batch
        head = Head(
            self.metadata.state_id,
            "query",
            "run-1",
            self.batch,
            time_ms,
            pointers,
            tuple(changed),
            figures or HeadFigures(),
        )
        write_head(self.location, 1, head)


def counted(value: str, time_ms: int, **values: str) -> ValueTimestampHeaders[str]:
    """A value with its time and headers."""
    return ValueTimestampHeaders(value, time_ms, headers(**values))


def counting(home: Path, shards: int = 2, *indexed: str) -> Live:
    """A state of word counts, after three batches: written by two services, with something hostile."""
    live = Live(home, word_counts(*indexed), shards)
    words = {
        f"word-{number:03}": counted("1", 1_000 + number, source="import", tenant=f"t{number % 3}")
        for number in range(120)
    }
    live.commit({**words, "alpha": counted("1", 1_000, source="import"), "gone": counted("1", 1_000, source="import")})
    live.commit(
        {"alpha": counted("2", 2_000, source="orders", trace_id="abc"), "gone": None, "large": counted(LARGE, 2_000)}
    )
    hostile = headers(source="orders")
    hostile.add(f"x-{SCRIPT}", b"\x00\xff")
    hostile.add("plain", SCRIPT.encode())
    live.commit(
        {
            HOSTILE_KEY: ValueTimestampHeaders(SCRIPT, 3_000, hostile),
            "alpha": counted("3", 3_000, source="orders", trace_id="def"),
        }
    )
    return live


def of_every_kind(home: Path, topology: Topology, shards: int = 2) -> Live:
    """A state with a store of each kind, after two batches."""
    live = Live(home, topology, shards)
    for time_ms in (50, 90):
        live.change(_fill, {f"key-{number}": time_ms + number for number in range(20)})
    return live


def _fill(stores: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    for key, time_ms in mine.items():
        fill(stores, key, time_ms)
