"""Delta files, read one by one by their names."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from statestore.errors import StateDirectoryError
from statestore.errors.state import DurableFileMissingError
from statestore.recovery.commit.delta import Delta
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import DELTA_SUFFIX
from statestore.recovery.restore.restore import delta_content


@contextmanager
def read_delta(file: str) -> Iterator[Delta]:
    """Hand out the delta at path or URI `file`.

    Raises StateDirectoryError for a file whose name is not a delta's, such as a fence, DurableFileMissingError, and
    DurableFileCorruptedError.
    """
    directory, slash, name = file.rpartition("/")
    location = DurableLocation(directory or slash or ".")
    if not name.endswith(DELTA_SUFFIX):
        raise StateDirectoryError(
            location.path(name),
            f"is not a delta, whose name ends in {DELTA_SUFFIX}. Fences and announcements of garbage collections, "
            "which are beside deltas, are JSON: read them directly",
        )
    size_bytes = {entry.name: entry.size_bytes for entry in location.entries("")}.get(name)
    with ExitStack() as opened:
        delta = None if size_bytes is None else opened.enter_context(verified_delta(location, name, size_bytes))
        if delta is None:
            raise DurableFileMissingError(location.path(name), needed_by="this command")
        yield delta


@contextmanager
def verified_delta(
    location: DurableLocation, name: str, size_bytes: int, work_dir: str | None = None
) -> Iterator[Delta | None]:
    """Hand out a delta whose checksums were verified, None if there is no such file.

    A large one is copied to a temporary directory in `work_dir`; None is the machine's. Raises
    DurableFileCorruptedError here, so that reading the delta does not.
    """
    with ExitStack() as opened:

        def make_directory() -> Path:
            return Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="statestore-delta-", dir=work_dir)))

        content = opened.enter_context(delta_content(location, name, size_bytes, make_directory))
        if content is None:
            yield None
            return
        delta = Delta(content, location.path(name))
        delta.verify()
        yield delta
