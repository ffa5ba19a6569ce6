"""Where the entries of a state go when it gets another number of shards, and proof that this is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import FormatError, NewStateError
from statestore.errors.new_state import KeyPlacementError, UnknownRecordKeyError
from statestore.format.keys.partitioner import Partitions, murmur2_column
from statestore.recovery.making.logical_writes import LogicalWrite
from statestore.recovery.metadata.state_metadata import StateMetadata

KeyOf: TypeAlias = Callable[[bytes], bytes]
"""From a key of a store, of windows, sessions and versions without its times, to the record's key."""


@dataclass(frozen=True)
class Placement:
    """Tells which of `shards` new shards an entry belongs to.

    `key_of` says how to find the record's key in those stores where that is known. Of any other it is taken to be the
    store's own key, which the data proves: each entry must stand in the shard of that key. One old shard proves
    nothing, so there `trust_keys` must say it. If the state keeps its shards, nothing is to be proved.
    """

    metadata: StateMetadata
    shards: int
    key_of: Mapping[str, KeyOf]
    trust_keys: bool = False
    keeps_shards: bool = False

    def check(self) -> None:
        """Raise NewStateError if records were placed by partition, and theirs can't be told from the old shards."""
        if self.metadata.shard_by == "partition" and self.metadata.shards % self.shards:
            raise NewStateError(
                f"records of this state were placed by their partition, which is not in state: {self.metadata.shards} "
                f"shards can be joined to a number that divides it, not turned into {self.shards}"
            )

    def new_shards(self, spec: StoreSpec, shard: int, writes: list[LogicalWrite]) -> list[int]:
        """Return the new shard of each entry of a store of the old `shard`.

        Raises KeyPlacementError for an entry that does not belong there, and UnknownRecordKeyError.
        """
        old = self.metadata
        if self.keeps_shards:
            return [shard] * len(writes)
        if old.shard_by == "partition":
            return [shard % self.shards] * len(writes)
        if old.shards == 1 < self.shards and spec.name not in self.key_of and not self.trust_keys:
            raise UnknownRecordKeyError(
                spec.name,
                problem="nothing proves that its keys are the keys of records, as there is one shard only. If they "
                "are, say so with trust_keys; if not, say what they are with key_of",
            )
        hashes = self._hashes(spec, writes)
        self._check_place(spec, shard, writes, hashes % old.shards)
        found: list[int] = (hashes % self.shards).tolist()
        return found

    def check_new(self, spec: StoreSpec, shard: int, writes: list[LogicalWrite]) -> None:
        """Raise KeyPlacementError if an entry does not belong to the new shard that it was found in."""
        if self.metadata.shard_by != "partition" and not self.keeps_shards:
            self._check_place(spec, shard, writes, self._hashes(spec, writes) % self.shards)

    def _hashes(self, spec: StoreSpec, writes: list[LogicalWrite]) -> Partitions:
        record_key = self.key_of.get(spec.name)
        try:
            keys = layout_of(spec).plain_keys([write.key for write in writes])
            if record_key is not None:
                keys = [record_key(key) for key in keys]
            hashes = murmur2_column(pa.array(keys, pa.binary()))
        except (FormatError, ValueError, TypeError, pa.ArrowException) as cause:
            raise UnknownRecordKeyError(spec.name, problem=f"a key has no record's key in it ({cause})") from cause
        positive: Partitions = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int32)
        return positive

    def _check_place(self, spec: StoreSpec, shard: int, writes: list[LogicalWrite], places: Partitions) -> None:
        wrong = np.nonzero(places != shard)[0]
        if wrong.size:
            first = int(wrong[0])
            raise KeyPlacementError(
                spec.name, key=writes[first].key.hex(), shard=shard, expected_shard=int(places[first])
            )
