"""The durable location: a directory of files on a disk, in an object store or on HDFS.

A file becomes visible whole or not at all. Names are relative, with `/`. Some come from files that anybody may have
changed: a name that could lead out of the location raises LocationError.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from statestore.errors import LocationError
from statestore.errors.readable import without_secrets
from statestore.errors.state import DurableFileCorruptedError, LocationNotWritableError
from statestore.recovery.location.durable_files import (
    Content,
    DurableEntry,
    DurableFiles,
    FileTooLongError,
    LocalDisk,
    LocalFiles,
    RenamedFiles,
    partial_name,
)
from statestore.recovery.location.retrying import Retrying
from statestore.recovery.location.schemes import (
    azure_files,
    canonical_uri,
    gcs_files,
    open_azure,
    open_hdfs,
    refusal_of,
    remedy,
    s3_files,
)
from statestore.recovery.location.shard_files import is_relative_name


class DurableLocation:
    """A directory given as a path or as a URI of a filesystem (file, s3, gs, abfss, hdfs). Picklable.

    `disk` is what a local one is written with. `retrying` says how long failures of any other one are waited out.
    """

    def __init__(
        self, location: str | Path, *, disk: LocalDisk | None = None, retrying: Retrying | None = None
    ) -> None:
        text = os.fspath(location)
        if not text:
            raise ValueError("state_location must not be empty")
        # A Windows drive or a plain path has no scheme of two letters or more.
        self.uri = canonical_uri(text) if len(urlsplit(text).scheme) > 1 else Path(text).absolute().as_uri()
        self.disk = disk or LocalDisk()
        self.retrying = retrying or Retrying()
        self._opened_root: tuple[DurableFiles, str] | None = None
        self._within: tuple[DurableLocation, str] | None = None

    @classmethod
    def of(cls, location: str | Path | DurableLocation) -> DurableLocation:
        """Return `location` as a DurableLocation."""
        return location if isinstance(location, DurableLocation) else cls(location)

    def below(self, name: str) -> DurableLocation:
        """Return a directory of this one as a location, reached in the same way."""
        parts, made = urlsplit(self.uri), copy.copy(self)
        made.uri = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))
        made._opened_root, made._within = None, (self, name)
        return made

    def __str__(self) -> str:
        return without_secrets(self.uri)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened_root": None}

    def path(self, name: str) -> str:
        """Return where the file `name` is, in words an operator can use."""
        parts = urlsplit(str(self))
        return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}", query=""))

    def open_filesystem(self) -> tuple[Any, str]:
        """Return the pyarrow filesystem, Azure's ContainerClient or a NativeHdfs, and the path of this location in it.

        Override it for what a URI can't say, such as a role to assume or a proxy. Called once in each process, also for
        all that is `below`. Raises LocationError for a kind of URI that was never tested, before pyarrow is asked.
        """
        refusal = refusal_of(self.uri)
        if refusal is not None:
            raise LocationError(str(self), refusal)
        opens = {"abfss": open_azure, "hdfs": open_hdfs}.get(urlsplit(self.uri).scheme)
        if opens is not None:
            return opens(self.uri)
        filesystem, root = fs.FileSystem.from_uri(self.uri)
        return filesystem, root

    @property
    def is_local(self) -> bool:
        """Whether its files are on a disk of this machine, or on what is mounted as one. Raises LocationError."""
        return isinstance(self._open()[0], LocalFiles)

    def read(self, name: str, max_bytes: int) -> pa.Buffer | None:
        """Return the bytes of the file `name`, None if there is none.

        `max_bytes` is its recorded size, or the most that files of its kind have: anybody may have changed the file.
        Raises DurableFileCorruptedError for a longer one, of which nothing is read, and LocationError.
        """
        files, path = self._at(name)
        with self._read_errors(f"{name} can't be read", name, max_bytes):
            return files.read(path, max_bytes)

    def fetch(self, name: str, path: str | os.PathLike[str], max_bytes: int) -> bool:
        """Copy the file `name` to the local `path`, in bounded memory. Return False if there is no such file.

        After a failure there is nothing at `path`. The copy is not synced. `max_bytes` and errors as of `read`.
        """
        files, source = self._at(name)
        with self._read_errors(f"{name} can't be copied to {os.fspath(path)}", name, max_bytes):
            return files.fetch(source, os.fspath(path), max_bytes)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write the file `name`, durably and whole or not at all. Raises LocationNotWritableError."""
        self._write(name, Content.of(data))

    def write_file(self, name: str, path: str | os.PathLike[str]) -> None:
        """Write the content of the local file at `path` as `name`, in bounded memory, durably, whole or not at all.

        Raises LocationNotWritableError, and OSError if there is no local file that can be read.
        """
        self._write(name, Content.of_file(os.fspath(path)))

    def entries(self, directory: str) -> list[DurableEntry]:
        """Return the files directly in `directory`, sorted by name; empty if there is no such directory.

        Partial files of writers, at work or crashed, are among them. `""` is the location itself. Raises LocationError.
        """
        files, path = self._at(directory)
        with self._read_errors(f"{directory or 'it'} can't be listed"):
            found = files.entries(path)
        entries = []
        for info in sorted(found, key=lambda info: info.base_name):
            modified_ms = None if info.mtime_ns is None else info.mtime_ns // 1_000_000
            entries.append(DurableEntry(_join(directory, info.base_name), info.size, modified_ms))
        return entries

    def directories(self, directory: str) -> list[str]:
        """Return the names of the directories directly in `directory`, sorted. Raises LocationError."""
        files, path = self._at(directory)
        with self._read_errors(f"{directory or 'it'} can't be listed"):
            found = files.directories(path)
        return sorted(_join(directory, name) for name in found)

    def names(self, directory: str) -> list[str]:
        """Return the names of the files directly in `directory`, sorted; empty if there is no such directory."""
        return [entry.name for entry in self.entries(directory)]

    def delete(self, name: str) -> None:
        """Delete the file `name`; one that is not there is no error. Raises LocationNotWritableError."""
        files, path = self._at(name)
        with self._write_errors():
            files.delete(path)

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete the files `names`, one after the other. Raises LocationNotWritableError."""
        for name in names:
            self.delete(name)

    def remove_directory(self, directory: str) -> None:
        """Remove an empty directory, if there is one, to which nobody writes. Raises LocationNotWritableError."""
        files, path = self._at(directory)
        with self._write_errors():
            files.remove_directory(path)

    def requests(self, at_once: int, name: str) -> Executor:
        """Return an executor for several requests at once: threads whose names begin with `name`."""
        return ThreadPoolExecutor(at_once, thread_name_prefix=name)

    def check_writable(self) -> None:
        """Write and delete a small file. Raises LocationNotWritableError."""
        name = partial_name("writable")  # what a killed process leaves is recognised by it
        self.write(name, b"")
        self.delete(name)

    def _write(self, name: str, content: Content) -> None:
        """Write a file: all writes come through here, for subclasses that do something at each."""
        files, path = self._at(name)
        with self._write_errors():
            files.write(path, content)

    @contextmanager
    def _read_errors(self, problem: str, name: str = "", max_bytes: int = 0) -> Iterator[None]:
        try:
            yield
        except FileTooLongError as found:
            raise DurableFileCorruptedError(
                self.path(name), cause=f"has {found.size_bytes} bytes, at most {max_bytes} are expected"
            ) from None
        except (OSError, pa.ArrowException) as cause:
            raise LocationError(str(self), f"{problem} ({cause}). {remedy(cause, self.retrying)}") from cause

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as cause:
            raise LocationNotWritableError(str(self), cause=str(cause), remedy=remedy(cause, self.retrying)) from cause

    def _at(self, name: str) -> tuple[DurableFiles, str]:
        """Return the filesystem, and the path in it of the file or directory `name`; "" is the location itself."""
        if name and not is_relative_name(name):
            raise LocationError(
                str(self),
                f"{name!r} is no name of a file in it: names are relative, without '..' and '\\'. statestore writes no "
                "such name: find out who changed the pointer or manifest that has it, and restore that",
            )
        files, root = self._open()
        return files, _join(root, name)

    def _open(self) -> tuple[DurableFiles, str]:
        if self._within is not None:
            outer, name = self._within
            files, root = outer._open()
            return files, _join(root, name)
        if self._opened_root is None:
            try:
                filesystem, root = self.retrying.call(f"opening {self}", self.open_filesystem)
            except (OSError, pa.ArrowException, ValueError) as cause:
                # pyarrow repeats a URI that it can't parse, with its secret: hide that, and don't chain the error.
                message = str(cause).replace(self.uri, str(self))
                problem = f"is not a location that can be opened ({message}). {remedy(cause, self.retrying)}"
                raise LocationError(str(self), problem) from (cause if message == str(cause) else None)
            root = root.rstrip("/") or root  # not of "/" itself
            self._opened_root = self._files(filesystem, root), root
        return self._opened_root

    def _files(self, filesystem: Any, root: str) -> DurableFiles:
        if isinstance(filesystem, fs.LocalFileSystem):
            return LocalFiles(self.disk, root)
        if isinstance(filesystem, fs.S3FileSystem):
            return s3_files(filesystem, self.retrying, self.uri)
        if isinstance(filesystem, fs.GcsFileSystem):
            return gcs_files(filesystem, self.retrying)
        if hasattr(filesystem, "get_blob_client"):
            return azure_files(filesystem, self.retrying)
        return RenamedFiles(filesystem, self.retrying)


def _join(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}" if directory and name else directory or name
