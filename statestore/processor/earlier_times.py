"""The stream times that shards had seen before the state was rescaled to its present number of shards.

A shard that is made of several begins with the earliest of their times. So what is late is judged by the time of the
earlier shard of a record's key as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from statestore.format.binary_columns import Integers
from statestore.format.keys.entry_key import before_times
from statestore.format.keys.partitioner import murmur2_column
from statestore.recovery.commit.pointer_fields import Clock, EarlierShards

_POSITIVE = np.uint32(0x7FFFFFFF)
UNSEEN_MS: Final = -1
"""The time of a shard that had seen none, or nothing that the present shard has not seen."""
NOWHERE: Final = -1
"""The partition of a record that came from no topic, or of which only the key is known."""


class EarlierTimes:
    """The latest time that one clock had shown in the earlier shard of each record, in ms since the epoch.

    It is asked with keys that have the times of windows behind them, `times_behind_keys` of them.
    """

    def __init__(self, earlier: Iterable[EarlierShards], clock: Clock, times_behind_keys: int) -> None:
        self._times_behind_keys = times_behind_keys
        self._earlier = [
            (shards, by, {shard: times_ms[clock] for shard, times_ms in seen.items() if clock in times_ms})
            for shards, by, seen in earlier
        ]

    def of(self, key: bytes, partition: int) -> int:
        """Return the time of a record; -1 if its shard had seen none, or nothing that the present one has not seen."""
        return int(self.of_many(pa.array([key], pa.binary()), np.array([partition]))[0])

    def of_many(self, keys: pa.BinaryArray, partitions: Integers) -> Integers:
        """Return the time of each record; the partition of one that came from no topic is -1."""
        found, keys = np.full(len(keys), UNSEEN_MS, np.int64), before_times(keys, self._times_behind_keys)
        for shards, by, times_ms in self._earlier:
            places = partitions if by == "partition" else (murmur2_column(keys) & _POSITIVE).astype(np.int64)
            numbers, rows = np.unique(np.where(places < 0, NOWHERE, places % shards), return_inverse=True)
            seen = np.array([times_ms.get(number, UNSEEN_MS) for number in numbers.tolist()], np.int64)
            found = np.maximum(found, seen[rows])
        return found


def earlier_times(earlier: Iterable[EarlierShards], clock: Clock, times_behind_keys: int = 0) -> EarlierTimes | None:
    """Return what a clock showed in earlier shards; None if the present shard has seen as much."""
    known = [each for each in earlier if any(clock in times for times in each.seen.values())]
    return EarlierTimes(known, clock, times_behind_keys) if known else None
