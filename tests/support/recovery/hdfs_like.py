"""A filesystem of pyarrow that behaves as HDFS does through it, on a local directory, and can fail at each operation.

After Arrow's cpp/src/arrow/filesystem/hdfs.cc and Hadoop's libhdfs: a move over a file deletes that and renames then; a
file that is not there can't be deleted, and the error is EIO; creating a file takes the place of one that is being
written, which can't be closed then; and of a selector that allows it not to be found, a directory whose listing failed
is one that is not there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import fs

from statestore.recovery.location.durable_location import DurableLocation


class Died(BaseException):
    """The process was killed."""


class HdfsLike(fs.FileSystemHandler):
    """`before` and `after` are called with each step's name and path; what they raise, the step has failed with.

    What `before` raised has kept it from being done; what `after` raised is an answer that was lost.
    """

    def __init__(self) -> None:
        self._local = fs.LocalFileSystem()
        self.before: Callable[[str, str], None] = lambda step, path: None
        self.after: Callable[[str, str], None] = lambda step, path: None

    def _step(self, step: str, path: str, do: Callable[[], Any]) -> Any:
        self.before(step, path)
        done = do()
        self.after(step, path)
        return done

    def move(self, src: str, dest: str) -> None:
        def rename() -> None:
            if os.path.isfile(dest):
                raise OSError(errno.EIO, "HDFS Rename failed")
            os.rename(src, dest)

        try:
            self._step("rename", dest, rename)
        except OSError:
            if not (os.path.isfile(src) and os.path.isfile(dest)):
                raise
            self._step("delete for move", dest, lambda: os.remove(dest))
            self._step("rename", dest, rename)

    def delete_file(self, path: str) -> None:
        if not os.path.exists(path):
            raise OSError(errno.EIO, "HDFS delete failed")
        self._step("delete", path, lambda: os.remove(path))

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            self.before("list", selector.base_dir)
        except OSError:
            if selector.allow_not_found:
                return []
            raise
        return list(self._local.get_file_info(selector))

    def open_input_file(self, path: str) -> Any:
        return self._step("open", path, lambda: self._local.open_input_file(path))

    def open_output_stream(self, path: str, metadata: object) -> Any:
        return pa.PythonFile(self._step("create", path, lambda: _Created(path, self)), mode="w")

    def create_dir(self, path: str, recursive: bool) -> None:
        self._step("create directory", path, lambda: self._local.create_dir(path, recursive=recursive))

    def delete_dir(self, path: str) -> None:
        self._local.delete_dir(path)

    def get_type_name(self) -> str:
        return "hdfs-like"

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return list(self._local.get_file_info(paths))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_input_stream(self, path: str) -> Any:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: object) -> Any:
        raise NotImplementedError

    def normalize_path(self, path: str) -> str:
        return path


class _Created:
    """A file being written, which can't be closed once another writer has created one of its name."""

    def __init__(self, path: str, filesystem: HdfsLike) -> None:
        with suppress(FileNotFoundError):
            os.remove(path)
        self.closed = False
        self._path, self._filesystem = path, filesystem
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)

    def write(self, data: bytes) -> int:
        return os.write(self._file, data)

    def flush(self) -> None:
        """Do nothing: each write is sent at once."""

    def close(self) -> None:
        if self.closed:
            return
        self._filesystem.before("close", self._path)
        created = self._release()
        if not os.path.exists(self._path) or os.stat(self._path).st_ino != created:
            raise FileNotFoundError(f"File does not exist: {self._path} (inode {created})")
        self._filesystem.after("close", self._path)

    def _release(self) -> int:
        self.closed, created = True, os.fstat(self._file).st_ino
        os.close(self._file)
        return created

    def __del__(self) -> None:
        if not self.closed:  # of a process that was killed
            self._release()


class HdfsLikeLocation(DurableLocation):
    """A location on such a filesystem. `handler` is that of this process."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "handler"}

    @property
    def filesystem(self) -> HdfsLike:
        """The filesystem of this location, in this process."""
        if "handler" not in self.__dict__:
            self.__dict__["handler"] = HdfsLike()
        return self.__dict__["handler"]  # type: ignore[no-any-return]

    def open_filesystem(self) -> tuple[Any, str]:
        _, root = super().open_filesystem()
        return fs.PyFileSystem(self.filesystem), root
