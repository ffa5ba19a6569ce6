"""A local disk that fails, fills up, and forgets what was not synced when the power goes; a durable location on it.

Every operation is noted in the journal before it changes anything, and every sync after it is done. These
notes alone decide what a loss of power takes.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from statestore.errors import LocationError
from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.durable_files import Content, DurableEntry, LocalDisk
from statestore.recovery.location.durable_location import DurableLocation
from statestore.testing.faults.damage import flip_bit, rot
from statestore.testing.faults.fault import Effect, Point
from statestore.testing.faults.injector import Injector
from statestore.testing.faults.journal import FaultJournal

_NOTES = "disk"
_KEPT = "kept"


class FaultyDisk(LocalDisk):
    """A LocalDisk on which the faults of a plan strike. Picklable."""

    def __init__(self, injector: Injector) -> None:
        super().__init__()
        self._injector = injector
        self._journal = injector.journal

    def make_directory(self, path: str) -> None:
        """Make one directory, which its parent may forget."""
        if not os.path.isdir(path):
            self._journal.note(_NOTES, ("name", path, None))
        super().make_directory(path)

    def create(self, path: str) -> BinaryIO:
        """Make a file, which its directory may forget."""
        file: BinaryIO | None = None
        try:
            with self._injector.at(Point.CREATE_FILE, name=path, error=_io_error) as fault:
                if fault is not None and fault.effect is Effect.NO_SPACE:
                    raise _no_space(self._injector.text(fault))
                self._journal.note(_NOTES, ("name", path, None))
                self._journal.note(_NOTES, ("content", path))
                file = super().create(path)
            return file
        except BaseException:
            if file is not None:
                file.close()
            raise

    def append(self, file: BinaryIO, data: bytes | pa.Buffer) -> None:
        """Write data, which the file may forget; on a full disk, half of it."""
        with self._injector.at(Point.APPEND, name=file.name, error=_io_error) as fault:
            if fault is not None and fault.effect is Effect.NO_SPACE:
                super().append(file, bytes(memoryview(data)[: len(memoryview(data)) // 2]))
                file.flush()
                raise _no_space(self._injector.text(fault))
            super().append(file, data)

    def sync_file(self, file: BinaryIO) -> None:
        """Sync a file: it remembers what it has."""
        with self._injector.at(Point.SYNC_FILE, name=file.name, error=_io_error):
            super().sync_file(file)
            self._journal.note(_NOTES, ("synced", file.name))

    def replace(self, source: str, target: str) -> None:
        """Rename a file; its directory may forget that."""
        with self._injector.at(Point.REPLACE, name=target, error=_io_error):
            self._journal.note(_NOTES, ("renamed", source, target, self._keep(target)))
            super().replace(source, target)

    def sync_directory(self, path: str) -> None:
        """Sync a directory: it remembers which names it has."""
        with self._injector.at(Point.SYNC_DIRECTORY, name=f"{path}/", error=_io_error):
            super().sync_directory(path)
            self._journal.note(_NOTES, ("synced names", path))

    def remove(self, path: str) -> None:
        """Remove a file, which its directory may remember."""
        with self._injector.at(Point.REMOVE, name=path, error=_io_error):
            self._journal.note(_NOTES, ("name", path, self._keep(path)))
            super().remove(path)

    def _keep(self, path: str) -> str | None:
        """Keep what is at `path`, and return where; None if there is nothing."""
        if not os.path.isfile(path):
            return None
        directory = self._journal.directory / _KEPT
        directory.mkdir(exist_ok=True)
        kept = directory / str(self._journal.count(_KEPT))
        shutil.copyfile(path, kept)
        return str(kept)


class FaultyLocation(DurableLocation):
    """A DurableLocation on a local disk, on both of which the faults of a plan strike. Picklable."""

    def __init__(self, location: str | Path, injector: Injector) -> None:
        super().__init__(location, disk=FaultyDisk(injector))
        self._injector = injector
        self.directory = Path(location)
        self._below = ""

    def below(self, name: str) -> FaultyLocation:
        """Return a directory of this one, whose files rot as those of this one do."""
        made = super().below(name)
        assert isinstance(made, FaultyLocation)  # it is a copy
        made._below = f"{self._below}{name}/"
        return made

    def read(self, name: str, max_bytes: int) -> pa.Buffer | None:
        """Read a file, of which a bit may be wrong."""
        with self._injector.at(Point.READ, name=name, error=self._unreadable) as fault:
            data = super().read(name, max_bytes)
            if data is not None and fault is not None and fault.effect is Effect.CORRUPT:
                return pa.py_buffer(flip_bit(data.to_pybytes(), fault.amount))
            return data

    def fetch(self, name: str, path: str | os.PathLike[str], max_bytes: int) -> bool:
        """Copy a file, of which a bit may be wrong."""
        with self._injector.at(Point.FETCH, name=name, error=self._unreadable) as fault:
            found = super().fetch(name, path, max_bytes)
            if found and fault is not None and fault.effect is Effect.CORRUPT:
                fetched = Path(path)
                fetched.write_bytes(flip_bit(fetched.read_bytes(), fault.amount))
            return found

    def entries(self, directory: str) -> list[DurableEntry]:
        """List a directory."""
        with self._injector.at(Point.LIST, directory, error=self._unreadable):
            return super().entries(directory)

    def delete(self, name: str) -> None:
        """Delete a file."""
        with self._injector.at(Point.DELETE, name=name, error=self._not_writable):
            super().delete(name)

    def _write(self, name: str, content: Content) -> None:
        """Write a file, which may rot."""
        with self._injector.at(Point.WRITE, name=name, error=self._not_writable) as fault:
            super()._write(name, content)
            if fault is not None and fault.effect is Effect.ROT:
                rot(self._injector.journal, self.directory, self._below + name, fault.amount)

    def _unreadable(self, text: str) -> LocationError:
        return LocationError(str(self), text)

    def _not_writable(self, text: str) -> LocationError:
        return LocationNotWritableError(str(self), cause=text)


def lose_unsynced(journal: FaultJournal, seed: int) -> list[str]:
    """Do what a loss of power does to the disk of `journal`: forget what was not synced, or some of it, by `seed`.

    Return what was lost, in words. No process may be using the disk.
    """
    names, contents = _unsynced(journal)
    rng = random.Random(seed)
    lost = []
    # Content first, while it is still where it was written to.
    for path in sorted(contents):
        if os.path.isfile(path) and rng.random() < 0.5:
            os.truncate(path, rng.choice((0, os.path.getsize(path) // 2)))
            lost.append(f"content of {path}")
    for path, before in reversed(names.items()):
        if rng.random() < 0.5:
            _forget_name(path, before)
            lost.append(f"name {path}")
    journal.forget(_NOTES)
    return lost


def _unsynced(journal: FaultJournal) -> tuple[dict[str, str | None], set[str]]:
    """Return the names that came or went unsynced, with what was there before, and the files with unsynced content."""
    names: dict[str, str | None] = {}
    contents: set[str] = set()
    for what, path, *more in journal.notes(_NOTES):
        if what == "content":
            contents.add(path)
        elif what == "synced":
            contents.discard(path)
        elif what == "name":
            names.setdefault(path, more[0])
        elif what == "renamed":
            target, before = more
            names.pop(path, None)
            names.setdefault(target, before)
            if path in contents:
                contents.discard(path)
                contents.add(target)
        elif what == "synced names":
            for name in [name for name in names if os.path.dirname(name) == path]:
                del names[name]
    return names, contents


def _forget_name(path: str, before: str | None) -> None:
    if before is not None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(before, path)
    elif os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def _io_error(text: str) -> OSError:
    return OSError(errno.EIO, f"{os.strerror(errno.EIO)}: {text}")


def _no_space(text: str) -> OSError:
    return OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {text}")
