"""Files on a pyarrow filesystem that become visible whole or not at all, each kind of filesystem in its way.

    local disk    another name, synced, then renamed; then the directory is synced, and the parent of one that was made
    HDFS          another name, then renamed; see RenamedFiles for what replaces another file
    object store  an object shows when its upload is complete

Paths are those of the filesystem. Everything raises what pyarrow and the operating system do, and an error of ours if
a local copy of a file fails.
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import fs

from statestore.bytestore.engines.rocksdb_options import local_disk_errors
from statestore.recovery.location.retrying import Retrying, is_transient

_PARTIAL = ".partial"


def partial_name(name: str) -> str:
    """Return a name, different at each call, for a file that is to become `name`."""
    return f"{name}.{uuid.uuid4().hex}{_PARTIAL}"


def is_partial(name: str) -> bool:
    """Return whether `name` is one that `partial_name` gives: a write under way, or what a crashed writer left."""
    return name.endswith(_PARTIAL)


def whole_name(name: str) -> str:
    """Return the name that a partial file was to get; any other name as it is."""
    return name.rsplit(".", 2)[0] if is_partial(name) else name


class LocalDisk:
    """Operations on local files, which a test can override; what is not synced may be lost with the power."""

    def __init__(self) -> None:
        self._durable_directories: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        # It may be unpickled on another machine.
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
        """Write all of `data` to the end of a file that `create` returned."""
        file.write(memoryview(data))

    def sync_file(self, file: BinaryIO) -> None:
        """Force to disk what was written to a file that `create` returned."""
        file.flush()
        os.fsync(file.fileno())

    def replace(self, source: str, target: str) -> None:
        """Rename a file, over another one if there is one."""
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """Force the entries of a directory to disk."""
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

        Directories below `root` that are there already are forced to disk too, once for each LocalDisk: the process
        that made them may have died before it did.
        """
        if path in self._durable_directories and os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        made = not os.path.isdir(path)
        if made or path.startswith(f"{root}/"):
            self.make_durable_directories(parent, root=root)
        if made:
            self.make_directory(path)
        # The user may not be allowed to read, and so to sync, the parent of the location.
        if made or os.access(parent, os.R_OK):
            self.sync_directory(parent)
        self._durable_directories.add(path)


_LOG = logging.getLogger(__name__)
CHUNK_BYTES = 8 << 20
"""How much of a longer file is read or written with one request."""
_CHUNKS_UNDER_WAY = 4
"""Arrow's S3 client sends parts in the background without bound; this bounds them."""
_NEXT = ".next"
_MOVES = 3
"""How often a move is tried when another writer gets in its way."""
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True)
class DurableEntry:
    """A file of a durable location. `name` is relative to the location; `modified_ms` is None if it is not known."""

    name: str
    size_bytes: int
    modified_ms: int | None


@dataclass(frozen=True)
class Content:
    """What a file is to hold. Each call of `chunks` begins at the beginning."""

    size_bytes: int
    chunks: Callable[[], Iterable[bytes | pa.Buffer]]

    @classmethod
    def of(cls, data: bytes | pa.Buffer) -> Content:
        """Return `data` as the content of a file."""
        return cls(memoryview(data).nbytes, lambda: [data])

    @classmethod
    def of_file(cls, path: str) -> Content:
        """Return the content of a local file, read in chunks, which raise OSError if its size changes meanwhile."""
        size_bytes = os.path.getsize(path)

        def chunks() -> Iterator[bytes]:
            read = 0
            with open(path, "rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    read += len(chunk)
                    yield chunk
            if read != size_bytes:
                raise OSError(f"{path} was changed while it was read: it had {size_bytes} bytes, and now {read}")

        return cls(size_bytes, chunks)


class FileTooLongError(Exception):
    """A file has more bytes than may be read of it. Not an OSError, which says that a filesystem failed."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


class DurableFiles(ABC):
    """What all filesystems do alike. `retrying` says how long a failure is waited out."""

    def __init__(self, filesystem: Any, retrying: Retrying) -> None:
        self.filesystem = filesystem
        self.retrying = retrying

    def read(self, path: str, max_bytes: int) -> pa.Buffer | None:
        """Return the content of a file, None if there is none. Raises FileTooLongError, of which nothing is read."""
        return self.retrying.call(f"reading {path}", lambda: self._read_once(path, max_bytes))

    def fetch(self, path: str, target: str, max_bytes: int) -> bool:
        """Copy a file to the local path `target` in chunks; return whether there is one. Raises FileTooLongError."""
        try:
            source = self.retrying.call(f"opening {path}", lambda: self._open(path))
        except _NOT_THERE:
            return False
        try:
            with source:
                _write_local(target, self._chunks(path, source, _bounded_size(source, max_bytes)))
        except BaseException:
            if os.path.lexists(target):
                os.remove(target)
            raise
        return True

    def write(self, path: str, content: Content) -> None:
        """Write a file, durably and whole or not at all."""
        self.retrying.call(f"writing {path}", lambda: self._write_once(path, content))

    def entries(self, directory: str) -> list[Any]:
        """Return `base_name`, `size` and `mtime_ns` of the files directly in a directory, none if there is none."""
        return [info for info in self._list(directory) if info.type == fs.FileType.File]

    def directories(self, directory: str) -> list[str]:
        """Return the names of the directories directly in a directory, none if there is no such directory."""
        return [info.base_name for info in self._list(directory) if info.type == fs.FileType.Directory]

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""
        with suppress(FileNotFoundError):
            self.retrying.call(f"deleting {path}", lambda: self._delete_once(path))

    def _open(self, path: str) -> Any:
        return self.filesystem.open_input_file(path)

    def _read_once(self, path: str, max_bytes: int) -> pa.Buffer | None:
        try:
            with self._open(path) as source:
                return _read_exactly(source, path, 0, _bounded_size(source, max_bytes))
        except _NOT_THERE:
            return None

    def _list(self, directory: str) -> list[Any]:
        # With allow_not_found, pyarrow returns an empty list when a listing of HDFS fails, and on a local disk it fails
        # if the directory is made meanwhile.
        try:
            return self._listed(fs.FileSelector(directory, allow_not_found=False))
        except _NOT_THERE:
            return []

    def _listed(self, selector: fs.FileSelector) -> list[Any]:
        listing = f"listing {selector.base_dir}"
        return list(self.retrying.call(listing, lambda: self.filesystem.get_file_info(selector)))

    def _chunks(self, path: str, source: Any, size: int) -> Iterator[pa.Buffer]:
        for offset in range(0, size, CHUNK_BYTES):
            read = partial(_read_exactly, source, path, offset, min(CHUNK_BYTES, size - offset))
            yield self.retrying.call(f"reading {path}", read)

    def _delete_once(self, path: str) -> None:
        self.filesystem.delete_file(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory that nobody writes to; on S3, the marker that pyarrow leaves of it."""
        if self._list(path):
            return
        with suppress(FileNotFoundError):
            self.retrying.call(f"removing {path}", lambda: self.filesystem.delete_dir(path))

    @abstractmethod
    def _write_once(self, path: str, content: Content) -> None: ...

    def _clean_up(self, path: str) -> None:
        """Delete what a failed write left. A failure here is only logged: the first one is raised."""
        try:
            self._delete_once(path)
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowException) as cause:
            _LOG.warning("%s, which a failed write left, could not be deleted: %s", path, cause)


class ObjectFiles(DurableFiles):
    """Objects of a store such as S3 or GCS. There are no directories to make.

    `for_parts` is the filesystem through which objects of several parts are written. It should retry by itself: if one
    part fails here, all of them are sent again.
    """

    def __init__(self, filesystem: Any, retrying: Retrying, for_parts: Any) -> None:
        super().__init__(filesystem, retrying)
        self._for_parts = for_parts

    def _list(self, directory: str, *, recursive: bool = False) -> list[Any]:
        # A store has no directories, and pyarrow would send another request to find out whether this one is missing.
        return self._listed(fs.FileSelector(directory, allow_not_found=True, recursive=recursive))

    def _write_once(self, path: str, content: Content) -> None:
        filesystem = self.filesystem if content.size_bytes <= CHUNK_BYTES else self._for_parts
        stream = filesystem.open_output_stream(path)
        try:
            _send(stream, content)
        except BaseException:
            self._discard(stream, path)
            raise
        stream.close()

    def _discard(self, stream: Any, path: str) -> None:
        """Leave nothing visible of an upload that was not written to its end.

        pyarrow can't abort an upload: closing or dropping its stream completes the object with what was written, unless
        a part was refused. So the object is deleted.
        """
        try:
            stream.close()
        except (OSError, pa.ArrowException) as cause:
            _LOG.debug("the upload of %s was not completed: %s", path, cause)
            return
        self._clean_up(path)


class GcsFiles(ObjectFiles):
    """Objects of GCS, where pyarrow shows a directory only if there is an object for the directory itself."""

    def directories(self, directory: str) -> list[str]:
        """Return the names of the directories directly in a directory, found from all objects below it."""
        below = (info.path.removeprefix(f"{directory}/") for info in self._list(directory, recursive=True))
        return sorted({path.split("/")[0] for path in below if "/" in path})


class RenamedFiles(DurableFiles):
    """Files of a filesystem with directories and a rename, such as HDFS.

    A rename is atomic while there is no file of the new name. Over an existing one, pyarrow on HDFS deletes it and then
    renames: a crash between the two leaves neither. So a replacement is first written beside the file as `NAME.next`,
    whole, and then once more under its name. Without NAME, NAME.next counts, for readers and in listings.

    Of several writers at once, each moves its own files only, and one copy or the other is there at each of their
    steps, until two of them have deleted one each: the end is what one of them has written. A write whose answer was
    lost can be repeated at each step.
    """

    def entries(self, directory: str) -> list[Any]:
        """Return `base_name`, `size` and `mtime_ns` of the files directly in a directory, none if there is none."""
        found = {info.base_name: info for info in super().entries(directory)}
        return [
            fs.FileInfo(name.removesuffix(_NEXT), fs.FileType.File, size=info.size, mtime_ns=info.mtime_ns)
            for name, info in found.items()
            if not name.endswith(_NEXT) or name.removesuffix(_NEXT) not in found
        ]

    def _write_once(self, path: str, content: Content) -> None:
        self.filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
        if content.size_bytes == 0:
            # No half of it can be there, so it needs no other name. HDFS refuses to close a file whose place another
            # writer's has taken, which is as empty.
            try:
                with self.filesystem.open_output_stream(path):
                    return
            except OSError as cause:
                if is_transient(cause) or not self._is_there(path):
                    raise
                return
        if self._is_there(path):
            self._bring(f"{path}{_NEXT}", content)
        self._bring(path, content)

    def _bring(self, path: str, content: Content) -> None:
        partial = partial_name(path)
        try:
            with self.filesystem.open_output_stream(partial) as stream:
                _send(stream, content)
            self._move(partial, path)
        except BaseException:
            self._clean_up(partial)
            raise

    def _move(self, partial: str, path: str) -> None:
        # Another writer may delete first what both replace, or be the first to move its own there.
        for tries_left in reversed(range(_MOVES)):
            try:
                self.filesystem.move(partial, path)
                return
            except OSError as cause:
                if is_transient(cause) or not tries_left:
                    raise

    def _open(self, path: str) -> Any:
        # NAME.next may be renamed between the two, so NAME is tried again, last.
        for name in (path, f"{path}{_NEXT}"):
            with suppress(*_NOT_THERE):
                return self.filesystem.open_input_file(name)
        return self.filesystem.open_input_file(path)

    def _delete_once(self, path: str) -> None:
        # NAME.next first: it would stand for NAME when that is gone.
        for name in (f"{path}{_NEXT}", path):
            try:
                self.filesystem.delete_file(name)
            except OSError:
                # HDFS's client reports a missing file as a failure.
                if self._is_there(name):
                    raise

    def _is_there(self, path: str) -> bool:
        """Return whether there is a file. On HDFS only opening it tells a missing file from a failure."""
        with suppress(*_NOT_THERE), self.filesystem.open_input_file(path):
            return True
        return False


class LocalFiles(DurableFiles):
    """Files on a local disk, or on what is mounted as one. Its failures are not waited out."""

    def __init__(self, disk: LocalDisk, root: str) -> None:
        super().__init__(fs.LocalFileSystem(), Retrying(total_s=0))
        self._disk = disk
        self._root = root

    def _write_once(self, path: str, content: Content) -> None:
        self._disk.write_durably(path, content.chunks(), root=self._root)

    def remove_directory(self, path: str) -> None:
        """Remove a directory if it is empty, and there."""
        self._disk.remove_directory(path)

    def _delete_once(self, path: str) -> None:
        self._disk.remove(path)


class OpenFile:
    """A file of a client that is not pyarrow's, opened to be read as pyarrow's are."""

    def __init__(self, size_bytes: int, read: Callable[[int, int], bytes]) -> None:
        """Take the size, and what returns so many bytes from an offset on."""
        self._size_bytes = size_bytes
        self._read = read
        self._offset = 0

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to close."""

    def size(self) -> int:
        """Return the size in bytes."""
        return self._size_bytes

    def seek(self, offset: int) -> None:
        """Go to an offset."""
        self._offset = offset

    def read_buffer(self, size_bytes: int) -> pa.Buffer:
        """Return so many bytes from there on."""
        return pa.py_buffer(self._read(self._offset, size_bytes) if size_bytes else b"")


def _bounded_size(source: Any, max_bytes: int) -> int:
    size_bytes: int = source.size()
    if size_bytes > max_bytes:
        raise FileTooLongError(size_bytes)
    return size_bytes


def _write_local(path: str, chunks: Iterable[pa.Buffer]) -> None:
    """Write a local file. Failures of its disk become errors of the local disk, those of `chunks` stay as they are."""
    disk_errors = partial(local_disk_errors, "local copy", path)
    with disk_errors():
        file = open(path, "wb")  # noqa: SIM115 - it is closed below, which may fail as well
    try:
        for chunk in chunks:
            with disk_errors():
                file.write(chunk)
    finally:
        with disk_errors():
            file.close()


def _send(stream: Any, content: Content) -> None:
    for number, chunk in enumerate(content.chunks(), start=1):
        stream.write(chunk)
        if number % _CHUNKS_UNDER_WAY == 0:
            stream.flush()


def _read_exactly(source: Any, path: str, offset: int, size: int) -> pa.Buffer:
    """Return that part of a file. Raises ConnectionError if it is cut, so that it is read again."""
    source.seek(offset)
    data = source.read_buffer(size)
    if data.size != size:
        raise ConnectionError(f"{path} ended {data.size} bytes after byte {offset}, {size} were expected")
    return data
