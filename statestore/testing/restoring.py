"""Restores a store of a test driver from its changelog."""

from __future__ import annotations

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.format.values.stored_value import upgrade_between
from statestore.recovery.commit.changelog import restored_changes
from statestore.recovery.restore.from_deltas import replay_versions
from statestore.testing.topic_logs import StoreLog


def restore_store(log: StoreLog, spec: StoreSpec, store: ByteStore, offset: int, stream_time_ms: int) -> int:
    """Apply the changelog from `offset` on to `store`, let expire, and return the store's stream time afterwards.

    `stream_time_ms` is its stream time before. Values of an older format are upgraded as they would be in place. Those
    of a newer one lose what the older has no room for: so Kafka Streams restores, from any changelog.
    """
    pending, layout = WriteSet(store), layout_of(spec)
    for written_as, records in log.written_by_format(offset):
        readable = written_as is spec.format or upgrade_between(written_as, spec.format) is not None
        source_format = written_as if readable else spec.format
        if layout.keeps_versions:
            stream_time_ms = replay_versions(spec, pending, source_format, stream_time_ms, records)
            continue
        pending.write(restored_changes(spec, source_format, records))
        stream_time_ms = max([stream_time_ms, *(layout.put_time_ms(record.key) for record in records)])
    if spec.kind.is_segmented:
        Segments(pending, *spec.retention).advance(stream_time_ms)
    pending.apply_to(store)
    return stream_time_ms
