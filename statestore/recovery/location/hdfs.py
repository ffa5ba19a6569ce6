"""HDFS without Hadoop on the machine: the client hdfs-native, with those methods of pyarrow that `RenamedFiles` calls.

Its rename replaces a file in one step of the name node. It reads Hadoop's settings below HADOOP_CONF_DIR or
HADOOP_HOME, is the user HADOOP_USER_NAME, and takes a Kerberos ticket where the cluster wants one.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
from hdfs_native import Client, FileWriter, WriteOptions
from pyarrow import fs

from statestore.recovery.location.durable_files import OpenFile

_FEW_ATTEMPTS: Final = {"dfs.client.failover.max.attempts": "3"}  # the default, 15, takes minutes
_NS_PER_MS: Final = 1_000_000
_REMOTE: Final = re.compile(r'RPCError\("(?:[\w$]+\.)*([\w$]+)", "(.*?)(?:\\n|"\)$)')
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_TRANSIENT: Final = ("BlocksNotFound", "ChecksumError", "DataTransferError", "RetriableException", "SafeModeException")
_NUMBERS: Final = {
    "AccessControlException": errno.EACCES,
    "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT,
}


def open_hdfs(uri: str) -> tuple[NativeHdfs, str]:
    """Return the filesystem that an `hdfs:` URI names, and the path in it.

    Raises ValueError for the option `user`, and where no name node is known.
    """
    parts = urlsplit(uri)
    settings = _FEW_ATTEMPTS | dict(parse_qsl(parts.query))
    if "user" in settings or "@" in parts.netloc:
        raise ValueError("hdfs-native takes no option `user`: set HADOOP_USER_NAME in the environment instead")
    ticket, replication = settings.pop("kerb_ticket", None), settings.pop("replication", None)
    try:
        client = Client(f"hdfs://{parts.netloc}" if parts.netloc else None, settings, kerberos_cache=ticket)
    except RuntimeError as cause:
        raise ValueError(str(cause)) from cause
    return NativeHdfs(client, None if replication is None else int(replication)), unquote(parts.path)


class NativeHdfs:
    """What `RenamedFiles` needs of a filesystem."""

    def __init__(self, client: Client, replication: int | None) -> None:
        self._client = client
        self._replication = replication

    def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return what is directly in a directory. Raises FileNotFoundError."""
        with _errors():
            return [
                fs.FileInfo(
                    found.path,
                    fs.FileType.Directory if found.isdir else fs.FileType.File,
                    size=None if found.isdir else found.length,
                    mtime_ns=found.modification_time * _NS_PER_MS,
                )
                for found in self._client.list_status(selector.base_dir)
            ]

    def create_dir(self, path: str, *, recursive: bool) -> None:
        """Make a directory, with its parents if `recursive`; one that is there is no error."""
        with _errors():
            self._client.mkdirs(path, create_parent=recursive)

    def open_input_file(self, path: str) -> OpenFile:
        """Return a file to read. Raises FileNotFoundError."""
        with _errors():
            file = self._client.read(path)

        def read(offset: int, size: int) -> bytes:
            with _errors():
                return file.read_range(offset, size)

        return OpenFile(len(file), read)

    def open_output_stream(self, path: str) -> _Output:
        """Return a file to write, in the place of one that is there."""
        with _errors():
            return _Output(self._client.create(path, WriteOptions(replication=self._replication, overwrite=True)))

    def move(self, source: str, target: str) -> None:
        """Rename a file, over another one if there is one, in one step."""
        with _errors():
            self._client.rename(source, target, overwrite=True)

    def delete_file(self, path: str) -> None:
        """Delete a file, or an empty directory. Raises FileNotFoundError."""
        with _errors():
            if not self._client.delete(path):
                raise FileNotFoundError(path)

    delete_dir = delete_file


class _Output:
    """A file being written, complete when the `with` ends."""

    def __init__(self, file: FileWriter) -> None:
        self._file = file

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *_: object) -> None:
        with _errors():
            self._file.close()

    def write(self, chunk: bytes | pa.Buffer) -> None:
        with _errors():
            self._file.write(memoryview(chunk).cast("B"))  # pyarrow's buffers have signed bytes

    def flush(self) -> None:
        """Do nothing: each write is sent at once."""


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except (OSError, RuntimeError) as cause:
        said = str(cause)
        if remote := _REMOTE.search(said):
            said = f"{remote[1]}: {remote[2]}"
        number = int(found[1]) if (found := _OS_ERROR.search(said)) else _NUMBERS.get(said.partition(":")[0])
        is_lost = number is None and isinstance(cause, OSError)  # as "RPC listener disconnected"
        if is_lost or said.startswith(_TRANSIENT) or isinstance(OSError(number, said), ConnectionError):
            raise ConnectionError(said) from cause
        raise (OSError(said) if number is None else OSError(number, said)) from cause
