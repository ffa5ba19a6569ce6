"""Figures of every batch, which reach the driver as Spark's observed metrics.

    shard call ── ShardFigures, as JSON beside its last blob ──> observe(a list of them) ──> StreamingQueryProgress

So they count what Spark counts: of several attempts at a task, the one that succeeded. Names must be unique in a query,
so each `stateful()` operator has metrics named by its state. Spark observes a list, and Python adds it up: every
aggregate would cost Spark milliseconds of planning and compiling in each batch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import Any, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryProgress

from statestore.errors.state import LocationSharedError
from statestore.recovery.commit.figures import CommitFigures, F, SizeFigures, StoreFigures, total
from statestore.recovery.metadata.state_metadata import stage_of

FIGURES: Final = "figures"
"""The column of a shard's figures as JSON: in one row of each shard call, else null."""
METRICS_PREFIX: Final = "statestore-"
"""The name of observed metrics is this and the id of the state."""
_DUPLICATE: Final = "DUPLICATED_METRICS_NAME"
"""Spark's condition for two operators with one state in a query."""


class RecordFigures(NamedTuple):
    """What went through the topology."""

    process_total: int = 0
    """Records that came in, including those dropped."""
    dropped_records_total: int = 0
    """Records that no serde could read, left out by FailureHandling.deserialization."""
    punctuate_total: int = 0
    """Calls of punctuators."""
    records_produced_total: int = 0
    """Records that sinks put out, and dead letters."""
    refused_records_total: int = 0
    """Records that interceptors refused, left out by FailureHandling.refusal."""
    failed_records_total: int = 0
    """Records that processors failed on or sinks could not write, left out as FailureHandling says."""
    dead_letters_total: int = 0
    """Records that were left out and put out as dead letters."""


class TimeFigures(NamedTuple):
    """Where the time of the shard calls went. Calls run side by side, so a sum may exceed the batch's duration."""

    open_ms: float = 0.0
    """To bring the shard to its committed version; includes restores."""
    process_ms: float = 0.0
    """In the topology, without waiting for Spark."""
    commit_ms: float = 0.0
    """To write the delta, and to begin or finish snapshots."""
    upgrade_ms: float = 0.0
    """To move entries of older formats that no record touches."""
    close_ms: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CallFigures(CommitFigures):
    """The figures of shard calls: of one, or the sums of several."""

    records: RecordFigures = field(default_factory=RecordFigures)
    times: TimeFigures = field(default_factory=TimeFigures)
    failures: Mapping[str, int] = field(default_factory=dict)
    """Of the records that were left out, how many failed with each class of error."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """What processors have counted, by `<node>.<what>`: see `ProcessorContext.count`."""


BY_STORE: Final[Mapping[str, Any]] = {"stores": StoreFigures, "sizes": SizeFigures}
"""The fields of CallFigures that are mappings from stores to figures."""
_BY_NAME: Final = ("failures", "counted")
"""Those that are mappings from other names to numbers."""
TOPICS: Final[Mapping[str, Any]] = {
    topic.name: topic.default_factory for topic in fields(CallFigures) if topic.name not in (*BY_STORE, *_BY_NAME)
}
"""All others, each with its class."""


@dataclass(frozen=True, kw_only=True)
class ShardFigures(CallFigures):
    """The figures of one shard in one batch."""

    shard: int
    version: int
    """The version of the shard that the batch commits; it grows by one with each batch that changes the shard."""

    @property
    def elapsed_ms(self) -> float:
        """How long the shard call took, without waiting for Spark."""
        return sum(self.times)

    def to_json(self, **beside: str) -> str:
        """Return a JSON object of objects, without zeros, and with `beside`, which the driver needs too."""
        found: dict[str, Any] = {"shard": self.shard, "version": self.version}
        found.update((name, _not_zero(getattr(self, name))) for name in TOPICS if any(getattr(self, name)))
        found.update((name, dict(getattr(self, name))) for name in _BY_NAME if getattr(self, name))
        found["stores"] = {name: _not_zero(store) for name, store in self.stores.items() if any(store)}
        if self.sizes:
            found["sizes"] = {name: _not_zero(store) for name, store in self.sizes.items()}
        found.update(beside)
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ShardFigures:
        """Return the figures that `to_json` wrote."""
        found = json.loads(text)
        topics = {name: kind(**found.get(name, {})) for name, kind in TOPICS.items()}
        for topic, kind in BY_STORE.items():
            topics[topic] = {name: kind(**store) for name, store in found.get(topic, {}).items()}
        topics.update((name, found.get(name, {})) for name in _BY_NAME)
        return cls(shard=found["shard"], version=found["version"], **topics)


@dataclass(frozen=True, kw_only=True)
class BatchFigures(CallFigures):
    """The figures of one `stateful()` operator in one micro-batch; those of all shards are sums."""

    query_id: str
    run_id: str
    query_name: str | None
    batch_id: int
    timestamp: str
    """When Spark began the batch, as Spark writes it (ISO 8601, UTC)."""
    duration_ms: int
    """How long the whole batch took, other operators included."""
    state_id: str
    state_location: str
    shards: tuple[ShardFigures, ...]
    """Each shard that was called, because it had records or a punctuation by the wall clock was due."""

    def __post_init__(self) -> None:
        # The sums are always those of the shards. A frozen class has no other way to set them.
        vars(self).update(_sums(self.shards))

    @property
    def stage(self) -> str | None:
        """The stage of a query that has several, as its directory in the state location is called; None of others."""
        return stage_of(self.state_location)

    def __str__(self) -> str:
        query = f"query {self.query_name or self.query_id}, batch {self.batch_id}"
        query = query if self.stage is None else f"{query}, {self.stage}"
        records, slowest, changed = self.records, self.slowest, total(StoreFigures, self.stores.values())
        if slowest is None:
            return f"{query}: no shard was called"
        parts = [
            f"{query}: {records.process_total} records in, {records.records_produced_total} out",
            f"{changed.entries_put} entries put, {changed.entries_deleted} deleted, "
            f"{size_text(changed.header_bytes)} of headers, {size_text(self.delta.size_bytes)} of deltas",
            f"shards: {len(self.shards)}, version {self.version}, the slowest {slowest.shard} "
            f"({slowest.elapsed_ms:.0f} ms)",
        ]
        restore, snapshot, upgrade = self.restore, self.snapshot, self.upgrade
        if self.sizes:
            held = total(SizeFigures, self.sizes.values())
            parts.append(f"about {held.entries} entries held, in {size_text(held.size_bytes)} of disk and memory")
        if restore.shards:
            restored = f"{restore.restore_total} entries, {size_text(restore.size_bytes)}, {restore.elapsed_ms:.0f} ms"
            parts.append(f"shards restored: {restore.shards} ({restored})")
        if snapshot.finished:
            parts.append(f"snapshots finished: {snapshot.finished} ({size_text(snapshot.uploaded_bytes)} uploaded)")
        if any(upgrade):
            parts.append(f"entries upgraded: {upgrade.entries_moved} (about {upgrade.entries_left} left)")
        return "; ".join(parts)

    def _repr_html_(self) -> str:
        """Return the line and a table of stores, for notebooks."""
        head = "store", "entries, about", "size, about", "headers, about", "put", "deleted", "headers put"
        rows = []
        for name in sorted({*self.stores, *self.sizes}):
            held, put = self.sizes.get(name, SizeFigures()), self.stores.get(name, StoreFigures())
            sizes = map(size_text, (held.size_bytes, held.header_bytes))
            changed = put.entries_put, put.entries_deleted, size_text(put.header_bytes)
            rows.append((name, held.entries, *sizes, *changed))
        return f"<p>{escape(str(self))}</p>{_html_table(head, rows)}"

    @property
    def version(self) -> int:
        """The highest version of a shard that was called, 0 if none was."""
        return max((figures.version for figures in self.shards), default=0)

    @property
    def slowest(self) -> ShardFigures | None:
        """The shard whose call took the longest, None if none was called."""
        return max(self.shards, key=lambda figures: figures.elapsed_ms, default=None)


def observe_figures(output: DataFrame, state_id: str, state_location: str) -> DataFrame:
    """Observe the figures in the output of shard calls. Raises LocationSharedError for two operators of one state."""
    try:
        return output.observe(
            METRICS_PREFIX + state_id,
            f.lit(state_location).alias("state_location"),
            f.collect_list(FIGURES).alias("shards"),  # without the nulls
        )
    except AnalysisException as cause:
        if cause.getCondition() != _DUPLICATE:
            raise
        raise LocationSharedError(state_location) from cause


def batch_figures(progress: StreamingQueryProgress) -> list[BatchFigures]:
    """Return the figures of each `stateful()` operator in a query's progress, as a listener or the query has it.

    Empty for a trigger that ran no batch, and for queries without such an operator.
    """
    return [state_figures(progress, state_id, metrics) for state_id, metrics in observed_states(progress)]


def observed_states(progress: StreamingQueryProgress) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the id of each `stateful()` operator's state, with its observed metrics by name."""
    for name, metrics in progress.observedMetrics.items():
        if name.startswith(METRICS_PREFIX):
            yield name.removeprefix(METRICS_PREFIX), _by_name(metrics)


def _by_name(metrics: Row) -> dict[str, Any]:
    """Return observed metrics by name. A query of Spark Connect has them as `values` and their `schema`."""
    found = metrics.asDict()
    if found.keys() != {"values", "schema"}:
        return found
    return dict(zip((column["name"] for column in found["schema"]["fields"]), found["values"], strict=True))


def state_figures(progress: StreamingQueryProgress, state_id: str, metrics: Mapping[str, Any]) -> BatchFigures:
    """Return the figures of the `stateful()` operator with these observed metrics."""
    # If Spark loses a task's output, it runs the task again and has the same figures twice.
    found = (ShardFigures.from_json(shard) for shard in metrics["shards"])
    shards = {(figures.shard, figures.version, figures.records): figures for figures in found}.values()
    return BatchFigures(
        query_id=str(progress.id),
        run_id=str(progress.runId),
        query_name=progress.name,
        batch_id=progress.batchId,
        timestamp=progress.timestamp,
        duration_ms=progress.batchDuration,
        state_id=state_id,
        state_location=metrics["state_location"],
        shards=tuple(sorted(shards, key=lambda figures: figures.shard)),
    )


def _sums(calls: Collection[ShardFigures]) -> dict[str, Any]:
    """Return the sums of the calls' figures as fields of CallFigures."""
    sums = {name: total(kind, (getattr(call, name) for call in calls)) for name, kind in TOPICS.items()}
    for name in _BY_NAME:
        by_name: Counter[str] = Counter()
        for call in calls:
            by_name.update(getattr(call, name))
        sums[name] = dict(by_name)
    # A shard that was called twice still holds its entries once.
    once = {call.shard: call for call in calls}.values()
    sums["stores"] = sums_by_store(StoreFigures, (call.stores for call in calls))
    sums["sizes"] = sums_by_store(SizeFigures, (call.sizes for call in once))
    return sums


def sums_by_store(kind: Callable[..., F], calls: Iterable[Mapping[str, F]]) -> dict[str, F]:
    """Return each store's sum over all calls that have figures of it."""
    found: dict[str, list[F]] = {}
    for call in calls:
        for name, figures in call.items():
            found.setdefault(name, []).append(figures)
    return {name: total(kind, figures) for name, figures in sorted(found.items())}


def size_text(size_bytes: float) -> str:
    """Return a size in three digits and its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 999.5:  # 999.5 would be rounded to 1,000
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1_000
    return f"{size_bytes:.3g} TB"


def _html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def row(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


def _not_zero(figures: Any) -> dict[str, int | float]:
    return {name: round(figure, 3) for name, figure in figures._asdict().items() if figure}
