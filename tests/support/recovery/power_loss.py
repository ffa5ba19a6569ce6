"""A local disk that forgets, when its power is lost, what was not synced.

It does what a disk may do at worst: nothing reaches it but by a sync. Real ones lose some of that.
"""

from __future__ import annotations

import os
import shutil
from typing import BinaryIO

import pyarrow as pa

from statestore.recovery.location.durable_files import LocalDisk


class PowerLost(BaseException):
    """The power went: nothing more is done, so no clean-up in an `except` of code under test may run on."""


class DiskThatLosesPower(LocalDisk):
    """Raises PowerLost at the operation after `operations_left` more of them; None is never."""

    def __init__(self) -> None:
        super().__init__()
        self.operations_left: int | None = None
        self._unsynced_files: set[str] = set()
        # By directory, the entries that changed since it was synced, and what they were: content, or None for nothing.
        self._unsynced_entries: dict[str, dict[str, bytes | None]] = {}

    def make_directory(self, path: str) -> None:
        self._count()
        if not os.path.isdir(path):
            self._changed(path)
        super().make_directory(path)

    def create(self, path: str) -> BinaryIO:
        self._count()
        self._changed(path)
        self._unsynced_files.add(path)
        return super().create(path)

    def append(self, file: BinaryIO, data: bytes | pa.Buffer) -> None:
        self._count()
        super().append(file, data)

    def sync_file(self, file: BinaryIO) -> None:
        self._count()
        super().sync_file(file)
        self._unsynced_files.discard(str(file.name))

    def replace(self, source: str, target: str) -> None:
        self._count()
        self._changed(target)
        super().replace(source, target)
        if source in self._unsynced_files:
            self._unsynced_files.discard(source)
            self._unsynced_files.add(target)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)
        self._unsynced_entries.pop(path, None)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def lose_power(self) -> None:
        """Leave on disk what was synced, and nothing else."""
        for path in self._unsynced_files:
            if os.path.exists(path):
                os.truncate(path, 0)
        for entries in self._unsynced_entries.values():
            for path, before in entries.items():
                if os.path.isdir(path):
                    shutil.rmtree(path)
                elif os.path.exists(path):
                    os.remove(path)
                if before is not None:
                    with open(path, "wb") as file:
                        file.write(before)

    def _count(self) -> None:
        if self.operations_left is None:
            return
        if self.operations_left == 0:
            raise PowerLost
        self.operations_left -= 1

    def _changed(self, path: str) -> None:
        before = None
        if os.path.isfile(path):
            with open(path, "rb") as file:
                before = file.read()
        self._unsynced_entries.setdefault(os.path.dirname(path), {}).setdefault(path, before)
