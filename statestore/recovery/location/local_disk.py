"""The operations on a local disk of which durable writes are made, and how they survive a loss of power.

A file is written under another name and synced, renamed, and then the directory that got the name is synced, as is the
parent of a directory that was made. What is done is on disk when the call returns.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable
from typing import Any, BinaryIO

import pyarrow as pa

_PARTIAL = ".partial"


def partial_name(name: str) -> str:
    """Return a name, different at each call, for a file on its way to become `name`."""
    return f"{name}.{uuid.uuid4().hex}{_PARTIAL}"


def is_partial(name: str) -> bool:
    """Return whether `name` is one that `partial_name` gives: a write under way, or what a crashed writer left."""
    return name.endswith(_PARTIAL)


class LocalDisk:
    """Operations on local files, which a harness can override; what is not synced may be lost with the power."""

    def __init__(self) -> None:
        self._durable_directories: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        # Where it is unpickled may be another machine.
        return {**self.__dict__, "_durable_directories": set()}

    def make_directory(self, path: str) -> None:
        """Make one directory; one that is there is no error."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def create(self, path: str) -> BinaryIO:
        """Return a new file, open for writing; no other file may have the name."""
        return open(path, "xb")

    def append(self, file: BinaryIO, data: bytes | pa.Buffer) -> None:
        """Write all of `data` to the end of a file that `create` gave."""
        file.write(memoryview(data))

    def sync_file(self, file: BinaryIO) -> None:
        """Force to disk what was written to a file that `create` gave."""
        file.flush()
        os.fsync(file.fileno())

    def replace(self, source: str, target: str) -> None:
        """Rename a file, over another one if there is one."""
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """Force the entries of a directory to disk: those that came, changed and went."""
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)

    def remove_directory(self, path: str) -> None:
        """Remove a directory; one that is not there, or has something in it, is no error."""
        try:
            os.rmdir(path)
        except OSError as cause:
            if cause.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise

    def write_durably(self, path: str, chunks: Iterable[bytes | pa.Buffer], *, root: str) -> None:
        """Write a file that survives a loss of power, whole or not at all, and so the directories from `root` to it."""
        directory = os.path.dirname(path)
        self.make_durable_directories(directory, root=root)
        partial = partial_name(path)
        try:
            with self.create(partial) as file:
                for chunk in chunks:
                    self.append(file, chunk)
                self.sync_file(file)
            self.replace(partial, path)
        except BaseException:
            if os.path.lexists(partial):
                self.remove(partial)
            raise
        self.sync_directory(directory)

    def make_durable_directories(self, path: str, *, root: str) -> None:
        """Make the directory `path`, with every parent that is missing, so that it survives a loss of power.

        Directories from `root` on that are already there are forced to disk too, once for each LocalDisk: who made them
        may not have got that far.
        """
        if path in self._durable_directories and os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        made = not os.path.isdir(path)
        if made or path.startswith(f"{root}/"):
            self.make_durable_directories(parent, root=root)
        if made:
            self.make_directory(path)
        # The parent of the location may be one that its user can't read, and so not sync. What was there before stays.
        if made or os.access(parent, os.R_OK):
            self.sync_directory(parent)
        self._durable_directories.add(path)
