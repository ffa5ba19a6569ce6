"""The durable location: a directory of immutable files on any pyarrow filesystem.

A file becomes visible whole or not at all, and is never changed afterwards. Names are relative, with `/`.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from statestore.errors import LocationError, LocationNotWritableError


class DurableLocation:
    """A directory given as a path or as a URI that pyarrow.fs knows (file, s3, gs, hdfs). Picklable."""

    def __init__(self, location: str | Path) -> None:
        text = os.fspath(location)
        if not text:
            raise ValueError("state_location must not be empty")
        # A Windows drive or a plain path has no scheme of two letters or more.
        self.uri = text if len(urlsplit(text).scheme) > 1 else Path(text).absolute().as_uri()
        self._opened: tuple[Any, str] | None = None

    @classmethod
    def of(cls, location: str | Path | DurableLocation) -> DurableLocation:
        """Return what is given, if that is a path or a URI as a location there."""
        return location if isinstance(location, DurableLocation) else cls(location)

    def __str__(self) -> str:
        return self.uri

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def path(self, name: str) -> str:
        """Return where the file `name` is, in words an operator can use."""
        return f"{self.uri.rstrip('/')}/{name}"

    def read(self, name: str) -> pa.Buffer | None:
        """Return the bytes of the file `name`, None if there is none. Raises LocationError on other failures."""
        filesystem, root = self._open()
        try:
            with filesystem.open_input_file(f"{root}/{name}") as stream:
                return stream.read_buffer()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, pa.ArrowException) as cause:
            raise LocationError(self.uri, f"{name} can't be read ({cause})") from cause

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write the file `name`, durably and whole or not at all. Raises LocationNotWritableError."""
        filesystem, root = self._open()
        path = f"{root}/{name}"
        try:
            filesystem.create_dir(path.rsplit("/", 1)[0], recursive=True)
            if isinstance(filesystem, fs.LocalFileSystem):
                _write_local(path, data)
            elif isinstance(filesystem, fs.HadoopFileSystem):
                partial = f"{path}.{uuid.uuid4().hex}.partial"
                _write_stream(filesystem, partial, data)
                filesystem.move(partial, path)
            else:
                # An object store shows an object when its upload is complete, not before.
                _write_stream(filesystem, path, data)
        except (OSError, pa.ArrowException) as cause:
            raise LocationNotWritableError(self.uri, cause=str(cause)) from cause

    def names(self, directory: str) -> list[str]:
        """Return the names of the files directly in `directory`, sorted; empty if there is no such directory."""
        filesystem, root = self._open()
        selector = fs.FileSelector(f"{root}/{directory}", allow_not_found=True)
        try:
            found = filesystem.get_file_info(selector)
        except (OSError, pa.ArrowException) as cause:
            raise LocationError(self.uri, f"{directory} can't be listed ({cause})") from cause
        return sorted(f"{directory}/{info.base_name}" for info in found if info.type == fs.FileType.File)

    def delete(self, name: str) -> None:
        """Delete the file `name`; one that is not there is no error. Raises LocationNotWritableError."""
        filesystem, root = self._open()
        try:
            filesystem.delete_file(f"{root}/{name}")
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowException) as cause:
            raise LocationNotWritableError(self.uri, cause=str(cause)) from cause

    def check_writable(self) -> None:
        """Write and delete a small file. Raises LocationNotWritableError."""
        name = f"writable-{uuid.uuid4().hex}"
        self.write(name, b"")
        self.delete(name)

    def _open(self) -> tuple[Any, str]:
        if self._opened is None:
            try:
                filesystem, root = fs.FileSystem.from_uri(self.uri)
            except (OSError, pa.ArrowException, ValueError) as cause:
                raise LocationError(self.uri, f"is not a location that pyarrow can open ({cause})") from cause
            self._opened = filesystem, root.rstrip("/")
        return self._opened


def _write_local(path: str, data: bytes | pa.Buffer) -> None:
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(memoryview(data))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_stream(filesystem: Any, path: str, data: bytes | pa.Buffer) -> None:
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)
