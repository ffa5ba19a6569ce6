"""What `top` shows of a query's heads: its latest batches, its stores, and the shards that took longest."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.text import Text

from statestore.errors.readable import without_secrets
from statestore.recovery.commit.figures import SizeFigures, total
from statestore.recovery.heads.figures import LastCall, RecentBatch
from statestore.recovery.heads.head import Head
from upgrade_tools.cli.printing.output import cells, plain_table, printable

_PHASES: Final = 3


def board(where: str, heads: Sequence[Head], problem: str | None, rows: int) -> RenderableType:
    """Return what is shown of the heads of a query's stages, in at most about so many rows. Times are UTC."""
    first = heads[0]
    age_s = max(0, time.time_ns() // 1_000_000 - first.time_ms) // 1_000
    lines: list[RenderableType] = [
        Text(printable(f"{without_secrets(where)}: batch {first.batch} of query {first.query}, {age_s:,} s ago"))
    ]
    if problem is not None:
        lines.append(Text(printable(problem), style="bold red"))
    stores = _sizes(heads)
    left = max(4, rows - len(lines) - len(stores) - 7)
    lines += [Text(), _batches(heads, left // 2), Text(), _stores(stores), Text(), _shards(heads, left - left // 2)]
    return Group(*lines)


def _batches(heads: Sequence[Head], most: int) -> RenderableType:
    table = plain_table("batch", "time", "records", "records/s", "ms", "written", "where the time went, ms")
    written: dict[int, int] = defaultdict(int)
    times: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for head in heads:
        for batch in head.figures.recent:
            written[batch.batch] += batch.delta_bytes
            for phase, ms in batch.times.items():
                times[batch.batch][phase] += ms
    for batch in list(reversed(heads[0].figures.recent))[:most]:
        table.add_row(*cells(*_batch(batch), decimal(written[batch.batch]), _longest(times[batch.batch])))
    return table


def _batch(batch: RecentBatch) -> Iterator[object]:
    yield batch.batch
    yield time.strftime("%H:%M:%S", time.gmtime(batch.time_ms / 1_000))
    yield batch.records
    yield round(1_000 * batch.records / batch.duration_ms) if batch.duration_ms else ""
    yield batch.duration_ms


def _longest(times: Mapping[str, int]) -> str:
    longest = sorted(times.items(), key=lambda phase: -phase[1])[:_PHASES]
    return ", ".join(f"{phase} {ms:,}" for phase, ms in longest if ms)


def _sizes(heads: Sequence[Head]) -> dict[str, SizeFigures]:
    """Return how large each store is in all shards, as far as their last calls told."""
    known: dict[str, list[SizeFigures]] = defaultdict(list)
    for head in heads:
        for store, sizes in head.figures.sizes().items():
            known[store] += sizes.values()
    return {store: total(SizeFigures, sizes) for store, sizes in sorted(known.items())}


def _stores(sizes: Mapping[str, SizeFigures]) -> RenderableType:
    table = plain_table("store", "entries, about", "bytes, about", "of headers")
    for store, figures in sizes.items():
        share = f"{figures.header_bytes / figures.size_bytes:.0%}" if figures.size_bytes else ""
        table.add_row(*cells(store, figures.entries, decimal(figures.size_bytes), share))
    return table


def _shards(heads: Sequence[Head], most: int) -> RenderableType:
    table = plain_table("slowest shards", "ms", "in batch", "version", "deltas", "of bytes", "snapshot of")
    called = [
        (call, head, shard, stage) for stage, head in enumerate(heads) for shard, call in head.figures.calls.items()
    ]
    for call, head, shard, stage in sorted(called, key=lambda each: -each[0].duration_ms)[:most]:
        name = str(shard) if len(heads) == 1 else f"{shard} of stage {stage}"
        table.add_row(*cells(name, *_shard(call, head, shard)))
    return table


def _shard(call: LastCall, head: Head, shard: int) -> Iterator[object]:
    pointer = head.pointers[shard]
    yield call.duration_ms
    yield call.batch
    yield pointer.version
    yield len(pointer.deltas)
    yield decimal(sum(delta.size_bytes for delta in pointer.deltas))
    yield max((snapshot.version for snapshot in pointer.snapshots), default="none")
