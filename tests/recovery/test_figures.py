"""The figures of a shard's batch: what they count is what was written, read, and kept."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from statestore import Headers
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import batch_changelog
from statestore.recovery.commit.delta import DeltaInfo, encode_delta
from statestore.recovery.commit.figures import (
    CommitFigures,
    DeltaFigures,
    RestoreFigures,
    SnapshotFigures,
    SpillFigures,
    Stopwatch,
    StoreFigures,
    UpgradeFigures,
    total,
)
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery.shards import TOTALS, LoggedBatch, Shard, stored, wait_for_uploads
from tests.support.recovery.spilling import SMALL

TRACE = Headers([("trace-id", b"0123456789abcdef"), ("tenant", None)])
TRACE_BYTES = TRACE.to_bytes()
EVERY_3 = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000)


def run(
    shard: Shard, pointer: CommitPointer, changes: dict[bytes, bytes | None]
) -> tuple[CommitPointer, CommitFigures]:
    """Run a batch, whose records have the headers TRACE; return its pointer and its figures."""
    context = TaskRecordContext()
    context.enter_record(5, TRACE, None)
    with shard.open(pointer, context) as logged:
        logged.stores["totals"].write(changes.items())
        return logged.commit_batch()


def numbered(number: int) -> dict[bytes, bytes | None]:
    return {b"key-%d" % number: stored(b"%d" % number, 5, TRACE_BYTES)}


def run_to(shard: Shard, pointer: CommitPointer, versions: range) -> tuple[CommitPointer, list[CommitFigures]]:
    """Run the batches that make these versions, and let snapshots be finished after each."""
    all_figures = []
    for version in versions:
        pointer, figures = run(shard, pointer, numbered(version))
        wait_for_uploads()
        all_figures.append(figures)
    return pointer, all_figures


def test_what_was_put_and_deleted_is_counted_with_its_bytes(shard: Shard) -> None:
    start, _ = run(shard, shard.start(), {b"old": stored(b"value")})
    pointer, figures = run(shard, start, {b"a": stored(b"1234", 5, TRACE_BYTES), b"bb": stored(b"1"), b"old": None})
    # A delete has the headers of its record.
    assert figures.stores == {"totals": StoreFigures(2, 1, 1 + 2 + 3, 4 + 1, 2 * len(TRACE_BYTES))}
    assert figures.delta == DeltaFigures(1, pointer.deltas[-1].size_bytes)
    assert figures.delta.size_bytes == shard.delta_file(pointer).stat().st_size
    nothing_else = CommitFigures(stores=figures.stores, sizes=figures.sizes, delta=figures.delta)
    assert figures == nothing_else, "no restore, spill, snapshot or upgrade"


def test_a_batch_that_writes_nothing_has_no_figures(shard: Shard) -> None:
    pointer, _ = run(shard, shard.start(), numbered(1))
    after, figures = run(shard, pointer, {})
    assert (after, replace(figures, sizes={})) == (pointer, CommitFigures())


def test_what_the_state_takes_is_about_what_was_put(shard: Shard) -> None:
    value, pointer = b"v" * 400, shard.start()
    for part in range(4):
        written = {b"%06d" % number: stored(value, 5, TRACE_BYTES) for number in range(part * 500, (part + 1) * 500)}
        pointer, figures = run(shard, pointer, written)
        size, entry_bytes = figures.sizes["totals"], 6 + len(value) + len(TRACE_BYTES)
        assert size.entries == 500 * (part + 1)
        assert 0 <= size.size_bytes - size.entries * entry_bytes < 3 << 19, "a block of a write buffer is a MiB"
        assert size.header_bytes == pytest.approx(size.size_bytes * len(TRACE_BYTES) / entry_bytes, rel=0.01)
    _, figures = run(shard, pointer, {b"000000": None})
    assert figures.sizes["totals"].entries == 1_999


@pytest.mark.parametrize(
    ("kind", "store_format", "header_bytes"),
    [
        (StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS, 4 * len(TRACE_BYTES)),
        (StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED, 0),
        (StoreKind.KEY_VALUE, StoreFormat.PLAIN, 0),
        (StoreKind.VERSIONED, StoreFormat.WITH_HEADERS, 5 * len(TRACE_BYTES)),
    ],
)
def test_every_kind_of_store_is_counted_alike(kind: StoreKind, store_format: StoreFormat, header_bytes: int) -> None:
    spec = StoreSpec("store", kind, store_format, *((10_000, 1_000) if kind is StoreKind.VERSIONED else ()))
    changelog = batch_changelog(spec)
    context = TaskRecordContext()
    context.enter_record(5, TRACE, None)
    for number, value in enumerate([b"one", b"two", None, b"three", b"four"]):
        key = b"key-%d" % min(number, 3)
        changelog.append(key, value and join_stored(store_format, value, 5, TRACE_BYTES), context, number)
    _, figures = encode_delta(DeltaInfo("state", 0, 1), {"store": changelog}, {})
    writes = len(changelog)
    assert writes == (5 if kind is StoreKind.VERSIONED else 4), "of a key's writes the last one, but every version"
    values = [b"one", b"two", b"three", b"four"] if writes == 5 else [b"one", b"two", b"four"]
    assert figures == {"store": StoreFigures(writes - 1, 1, 5 * writes, len(b"".join(values)), header_bytes)}


def test_large_batches_are_counted_to_the_end(shard: Shard) -> None:
    # More than one record batch of a delta has.
    changes: dict[bytes, bytes | None] = {b"%06d" % number: stored(b"v", 5, TRACE_BYTES) for number in range(10_000)}
    _, figures = run(shard, shard.start(), changes)
    assert figures.stores["totals"] == StoreFigures(10_000, 0, 60_000, 10_000, 10_000 * len(TRACE_BYTES))


def test_one_delta_behind_is_no_restore_and_a_lost_disk_is(shard: Shard) -> None:
    pointer, all_figures = run_to(shard, shard.start(), range(1, 5))
    assert {figures.restore for figures in all_figures} == {RestoreFigures()}
    shutil.rmtree(shard.home / "local")
    pointer, figures = run(shard, pointer, numbered(5))
    read_bytes = sum(delta.size_bytes for delta in pointer.deltas[:4])
    assert figures.restore[:3] == (1, 4, read_bytes)
    assert figures.restore.elapsed_ms > 0
    assert run(shard, pointer, numbered(6))[1].restore == RestoreFigures()


def test_a_restore_from_a_snapshot_reads_its_files(tmp_path: Path) -> None:
    shard = Shard(tmp_path, recovery=EVERY_3)
    pointer, _ = run_to(shard, shard.start(), range(1, 6))
    shutil.rmtree(shard.home / "local")
    (snapshot,) = pointer.snapshots
    manifest = read_manifest(shard.state.location, pointer, snapshot)
    _, figures = run(shard, pointer, numbered(6))
    deltas_since = pointer.deltas[3:]
    assert len(deltas_since) == 2
    assert figures.restore.size_bytes == manifest.size_bytes + sum(delta.size_bytes for delta in deltas_since)
    assert figures.restore.restore_total == manifest.entries["totals"] + 2


def test_snapshots_are_counted_when_they_begin_and_when_a_pointer_names_them(tmp_path: Path) -> None:
    shard = Shard(tmp_path, recovery=EVERY_3)
    pointer, all_figures = run_to(shard, shard.start(), range(1, 7))
    begun, finished = all_figures[3].snapshot, all_figures[4].snapshot
    assert [figures.snapshot for figures in all_figures if any(figures.snapshot)] == [begun, finished]
    assert begun == SnapshotFigures(begun=1)
    directory = (shard.home / "state" / pointer.snapshots[0].manifest.name).parent
    assert finished.uploaded_bytes == sum(path.stat().st_size for path in directory.iterdir())
    assert finished == SnapshotFigures(
        finished=1, uploaded_bytes=finished.uploaded_bytes, elapsed_ms=finished.elapsed_ms
    )
    assert finished.elapsed_ms > 0


def test_tables_that_a_snapshot_shares_are_not_uploaded_bytes(tmp_path: Path) -> None:
    shard = Shard(tmp_path, recovery=EVERY_3)
    pointer, all_figures = run_to(shard, shard.start(), range(1, 9))
    second = pointer.snapshots[1]
    manifest = read_manifest(shard.state.location, pointer, second)
    shared = [
        file.durable for file in manifest.files if Path(file.durable.name).parent != Path(second.manifest.name).parent
    ]
    assert shared
    whole_bytes = manifest.size_bytes + second.manifest.size_bytes
    assert all_figures[-1].snapshot.uploaded_bytes == whole_bytes - sum(file.size_bytes for file in shared)


def test_a_snapshot_that_fails_is_counted_by_the_next_batch(tmp_path: Path) -> None:
    shard = Shard(tmp_path, recovery=EVERY_3)
    pointer, _ = run_to(shard, shard.start(), range(1, 4))
    in_the_way = shard.home / "state/shards/0000/snapshots"
    in_the_way.touch()
    pointer, all_figures = run_to(shard, pointer, range(4, 7))
    assert [(figures.snapshot.begun, figures.snapshot.failed) for figures in all_figures] == [(1, 0), (0, 1), (0, 1)]
    in_the_way.unlink()
    pointer, all_figures = run_to(shard, pointer, range(7, 10))
    counted = [(figures.snapshot.finished, figures.snapshot.failed) for figures in all_figures]
    assert counted == [(0, 1), (1, 0), (0, 0)]
    assert len(pointer.snapshots) == 1


def test_a_spill_is_counted_and_so_is_what_it_wrote(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    shard.state = replace(shard.state, local=LocalDirectory(tmp_path / "local", memory=SMALL))
    value = b"v" * 1_000
    many = 3 * SMALL.pending_bytes // len(value)
    changes = [(b"%06d" % number, stored(value, 5, TRACE_BYTES)) for number in range(many)]
    with shard.open(shard.start()) as logged:
        for key, change in chain(changes, changes[:10]):
            logged.stores["totals"].put(key, change)
        pointer, figures = logged.commit_batch()
    assert figures.spill.spills >= 2
    assert figures.spill.size_bytes > pointer.deltas[0].size_bytes, "the delta, and the writes beside it"
    # Those that were written again after a spill have another record.
    again = StoreFigures(10, 0, 60, 10 * len(value), 10 * len(TRACE_BYTES))
    once = StoreFigures(many, 0, 6 * many, many * len(value), many * len(TRACE_BYTES))
    assert figures.stores["totals"] == total(StoreFigures, (once, again))
    assert run(shard, pointer, numbered(1))[1].spill == SpillFigures()


def test_an_upgrade_is_counted_until_it_is_through(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    newer, timed = shard.state, StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)
    shard.state = replace(newer, stores=(timed,))
    changes = {b"%d" % n: join_stored(StoreFormat.TIMESTAMPED, b"value", 5, b"") for n in range(10)}
    pointer, _ = run(shard, shard.start(), changes)
    pointer, _ = run(shard, pointer, {})  # what is committed is applied
    shard.state = replace(newer, stores=(TOTALS,))

    def upgrade(batch: LoggedBatch, reads: int, budget_ms: float) -> UpgradeFigures:
        for number in range(reads):
            assert batch.stores["totals"].get(b"%d" % number) is not None
        batch.commit()
        return batch.batch.finish_upgrades(budget_ms)

    def in_a_batch(reads: int, budget_ms: float) -> object:
        return shard.run(pointer, lambda batch: upgrade(batch, reads, budget_ms))

    moved, left = in_a_batch(3, 0)
    assert moved == 3
    assert left >= 1, "an estimate"
    assert in_a_batch(0, 60_000) == UpgradeFigures(7, 0)
    assert in_a_batch(3, 60_000) == UpgradeFigures(0, 0)


def test_a_stopwatch_leaves_out_what_goes_by_in_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    times_ns = iter([0, 2_000_000, 5_000_000, 6_000_000, 7_500_000])
    monkeypatch.setattr("statestore.recovery.commit.figures.time.perf_counter_ns", lambda: next(times_ns))
    watch = Stopwatch()
    with watch.paused():
        pass
    assert (watch.lap_ms(), watch.lap_ms()) == (3.0, 1.5)
