"""A location on this machine that the library knows as one elsewhere."""

from typing import Any

from pyarrow import fs

from statestore.recovery.location.durable_location import DurableLocation


class Renaming(DurableLocation):
    """pyarrow's local filesystem, known to us as another."""

    def open_filesystem(self) -> tuple[Any, str]:
        local, root = super().open_filesystem()
        return fs.SubTreeFileSystem("/", local), root
