"""A durable location that fails, hands out damaged bytes, and lets files rot."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from statestore.errors import LocationError
from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.durable_files import Content, DurableEntry
from statestore.recovery.location.durable_location import DurableLocation
from statestore.testing.faults.damage import flip_bit, rot
from statestore.testing.faults.disk import FaultyDisk
from statestore.testing.faults.fault import Effect, Point
from statestore.testing.faults.injector import Injector, MakeError


class FaultyLocation(DurableLocation):
    """A DurableLocation on a local disk, on both of which the faults of a plan strike. Picklable."""

    def __init__(self, location: str | Path, injector: Injector) -> None:
        super().__init__(location, disk=FaultyDisk(injector))
        self._injector = injector
        self.directory = Path(location)

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
                rot(self._injector.journal, self.directory, name, fault.amount)

    def _unreadable(self, text: str) -> LocationError:
        return LocationError(str(self), text)

    @property
    def _not_writable(self) -> MakeError:
        return lambda text: LocationNotWritableError(str(self), cause=text)
