"""What the shards of keys had seen before the state was rescaled: what came late there comes late after it."""

from __future__ import annotations

from typing import Any

import numpy as np

from statestore.dsl.windowed_serdes import WindowedSerde
from statestore.errors import TopologyError
from statestore.format.binary_columns import Integers
from statestore.format.serde import Serde, columns_of
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.earlier_times import NOWHERE, UNSEEN_MS
from statestore.processor.record import Record


class EarlierTimesOfKeys:
    """The latest time that a clock had shown in the shard that a record's key was in, in ms; -1 if the present one has.

    `kind` and `name` are those of `ProcessorContext._earlier_times`, `key_serde` that of the keys of the clock's store.
    """

    def __init__(self, context: ProcessorContext, kind: str, name: str, key_serde: Serde[Any]) -> None:
        self._times = context._earlier_times(kind, name)
        self._context, self._key_serde = context, key_serde

    def of(self, record: Record[Any, Any]) -> int:
        """Return the time for a record, also of a windowed key."""
        if self._times is None or record.key is None:
            return UNSEEN_MS
        key, serde = record.key, self._key_serde
        while isinstance(serde, WindowedSerde):
            key, serde = key.key, serde.layout.inner
        metadata = self._context.record_metadata
        return self._times.of(serde.serialize(key), NOWHERE if metadata is None else metadata.partition)

    def of_many(self, records: RecordColumns) -> Integers:
        """Return the time for each record, which have keys."""
        if self._times is None:
            return np.full(len(records), UNSEEN_MS, np.int64)
        keys, serde = records.key, self._key_serde
        while isinstance(serde, WindowedSerde):
            keys, serde = keys.storage.field("key"), serde.layout.inner
        partitions = records.partition
        places = np.full(len(records), NOWHERE) if partitions is None else partitions.to_numpy()
        return self._times.of_many(columns_of(serde, "key", TopologyError).serialize(keys), places)
