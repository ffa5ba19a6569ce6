"""The last delta that this machine wrote for a shard, on its own disk: the next batch need not fetch it.

    LOCAL_DIR/STATE_ID/shard-NNNN/written-delta.arrow

Any attempt may put its own in the place of what is there, and what is there counts only if it is the file that a commit
pointer names, by size and checksum. So it needs no lock, no sync, and no clearing away.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors import LocalDirectoryError
from statestore.errors.state import LocalDiskFullError
from statestore.recovery.commit.pointer import DurableFile
from statestore.recovery.location.digests import digest
from statestore.recovery.location.durable_location import DurableLocation

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class WrittenDelta:
    """What is kept in the directory of a shard on this machine."""

    shard_dir: Path

    def keep(self, location: DurableLocation, content: pa.Buffer | Path, space: SpillSpace) -> None:
        """Keep a delta that was written to `location`, unless that is on this machine itself.

        A file at a path is moved from there; it is in `space`. What goes wrong is logged: the delta is durable.
        """
        if location.is_local:
            return
        try:
            if isinstance(content, Path):
                path = content
            else:
                path = space.make_directory() / self._path.name
                path.write_bytes(content)
            os.replace(path, self._path)
        except (OSError, LocalDiskFullError, LocalDirectoryError) as cause:
            _LOG.warning("the next batch will fetch its delta: it can't be kept at %s: %s", self._path, cause)

    def read(self, file: DurableFile) -> pa.Buffer | None:
        """Return the content of the delta `file`, mapped, None if it is not the one that is kept here."""
        try:
            with pa.memory_map(str(self._path)) as mapped:
                content = mapped.read_buffer() if mapped.size() == file.size_bytes else None
        except OSError:
            return None
        return content if content is not None and digest(content) == file.digest else None

    @property
    def _path(self) -> Path:
        return self.shard_dir / "written-delta.arrow"
