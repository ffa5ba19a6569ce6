"""Lists, and removes if asked to, what no retained version of a state needs."""

from __future__ import annotations

from collections.abc import Callable

from statestore.errors import DurableFileMissingError, LocationMismatchError
from statestore.recovery.fence import read_fences
from statestore.recovery.garbage import GarbageFile, find_garbage, remove_garbage
from statestore.recovery.location import DurableLocation
from statestore.recovery.metadata import METADATA_NAME, read_metadata
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.shard_files import delta_directory


def collect_location(
    uri: str,
    pointers: list[CommitPointer],
    *,
    retained_versions: int,
    remove: bool,
    say: Callable[[str], None] = print,
) -> bool:
    """Print each file of the state at path or URI `uri` that can be removed, and why; remove them with `remove`.

    `pointers` are those of the last committed batch; shards without one are left alone. May be called while the query
    runs. Return True. Raises StateStoreError: then nothing of that shard, and of those after it, was removed.
    """
    location = DurableLocation(uri)
    metadata = read_metadata(location)
    if metadata is None:
        raise DurableFileMissingError(location.path(METADATA_NAME), needed_by="a state location")
    found: list[GarbageFile] = []
    for pointer in pointers:
        if pointer.state_id != metadata.state_id:
            raise LocationMismatchError(str(location), recorded=pointer.state_id, found=metadata.state_id)
        fences = read_fences(location, location.names(delta_directory(pointer.shard)))
        epoch = fences[-1].epoch if fences else 0
        garbage = find_garbage(location, pointer, epoch, retained_versions)
        for file in garbage:
            say(f"{file.size_bytes:>12}  {file.name}  {file.reason}")
        if remove:
            remove_garbage(location, garbage)
        found.extend(garbage)
    size_mb = sum(file.size_bytes for file in found) / 1e6
    what = "removed" if remove else "can be removed; nothing was, give --remove for that"
    say(f"{len(found)} files, {size_mb:.1f} MB {what}")
    return True
