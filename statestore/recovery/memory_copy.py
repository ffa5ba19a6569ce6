"""The in-memory stores of a shard: restored from its deltas, and kept by the process from batch to batch.

A process keeps what it restored, so that the next batch of the shard in it only applies what was committed since. A
batch takes the copy out while it uses it: another attempt of the same shard in this process makes its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from statestore.bytestore.memory import MemoryDatabase
from statestore.bytestore.store_spec import StoreSpec
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.restore import CommittedStore, restore

_KEPT_COPIES = 64
"""A process keeps the copies of this many shards, the last used ones: shards move between processes."""


@dataclass(frozen=True)
class _MemoryCopy:
    stores: tuple[StoreSpec, ...]
    head: str
    database: MemoryDatabase


_copies: OrderedDict[tuple[str, int], _MemoryCopy] = OrderedDict()


@contextmanager
def open_memory_copy(
    location: DurableLocation, pointer: CommitPointer, stores: Sequence[StoreSpec]
) -> Iterator[dict[str, CommittedStore]]:
    """Hand out the in-memory stores of the shard at exactly the version of `pointer`.

    Raises DurableFileMissingError or DurableFileCorruptedError if the durable location can't give that version.
    """
    if not stores:
        yield {}
        return
    copy = _copies.pop((pointer.state_id, pointer.shard), None)
    chain = ["", *(delta.name for delta in pointer.deltas)]
    if copy is None or copy.stores != tuple(stores) or copy.head not in chain:
        copy = _MemoryCopy(tuple(stores), "", MemoryDatabase([spec.name for spec in stores]))
    committed = {spec.name: CommittedStore(spec, copy.database.family(spec.name)) for spec in stores}
    restore(location, pointer, chain.index(copy.head), committed)
    try:
        yield committed
    finally:
        # A batch that fails has written to its write sets only: the copy still is that version.
        _copies[pointer.state_id, pointer.shard] = _MemoryCopy(copy.stores, pointer.head, copy.database)
        while len(_copies) > _KEPT_COPIES:
            _copies.popitem(last=False)
