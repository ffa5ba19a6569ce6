"""The in-memory stores of a shard, kept by the process from batch to batch.

They are in the shard's local copy too, like all stores: there they are caught up when a snapshot is made, and a process
that has no image of them loads it from there. Otherwise the next batch of the shard in the same process only applies to
its image what was committed since. A batch takes the image out while it uses it: another attempt of the same shard in
this process makes its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.from_deltas import CommittedStore, WrittenDelta, restore

_IMAGE_BYTES: Final = 4_096
"""What an image takes beside its entries, so that empty ones don't pile up without end."""


@dataclass(frozen=True)
class MemoryImage:
    """The in-memory stores of a shard at the version that the delta `head` made."""

    stores: tuple[StoreSpec, ...]
    head: str
    database: MemoryDatabase

    @property
    def held_bytes(self) -> int:
        """About how much memory it takes."""
        return self.database.held_bytes + _IMAGE_BYTES


_images: OrderedDict[tuple[str, int], MemoryImage] = OrderedDict()


def take_memory_image(pointer: CommitPointer, stores: Sequence[StoreSpec]) -> MemoryImage | None:
    """Return this process's image of these stores if it can be brought to the version of `pointer`, else None."""
    image = _images.pop((pointer.state_id, pointer.shard), None)
    usable = image is not None and image.stores == tuple(stores) and image.head in pointer.chain
    return image if usable else None


@contextmanager
def open_memory_image(
    location: DurableLocation,
    pointer: CommitPointer,
    stores: Sequence[StoreSpec],
    image: MemoryImage | None,
    copied: Mapping[str, CommittedStore],
    space: SpillSpace,
    local: LocalDirectory,
) -> Iterator[dict[str, CommittedStore]]:
    """Hand out the in-memory stores of the shard at exactly the version of `pointer`, of `image` or else `copied`.

    Kept are the last used images that the memory budget of `local` has room for, always the last one of all.
    """
    database = MemoryDatabase([spec.name for spec in stores]) if image is None else image.database
    committed = {spec.name: CommittedStore(spec, database.family(spec.name)) for spec in stores}
    if image is not None:
        written = WrittenDelta(local.shard(pointer.state_id, pointer.shard))
        restore(location, pointer, pointer.chain.index(image.head), committed, space, None, written)
    else:
        for name, store in committed.items():
            store.bytes.write(copied[name].bytes.range(None, None))
            store.restored_records, store.restore_ns = copied[name].restored_records, copied[name].restore_ns
    try:
        yield committed
    finally:
        # A batch that fails has written to its write sets only: the image still is that version.
        _images[pointer.state_id, pointer.shard] = MemoryImage(tuple(stores), pointer.head, database)
        kept = sum(image.held_bytes for image in _images.values())
        while kept > local.memory.kept_images_bytes and len(_images) > 1:
            _, evicted = _images.popitem(last=False)
            kept -= evicted.held_bytes
