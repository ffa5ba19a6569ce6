"""Blobs of Azure Storage as durable files, with or without a hierarchical namespace (ADLS Gen2), by Azure's own client.

pyarrow's client makes an empty blob before it writes the content, and a reader could take that for the file.
Errors become FileNotFoundError, or an OSError with `Azure Error CODE (HTTP status N)`. URLs in them lose their query,
which may have a shared access signature.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobBlock, BlobClient, ContainerClient
from pyarrow import fs

from statestore.recovery.location.durable_files import CHUNK_BYTES, Content, DurableFiles, OpenFile

_CONNECT_TIMEOUT_S: Final = 5
_READ_TIMEOUT_S: Final = 10
_SECRET_QUERY: Final = re.compile(r"\?\S*")
_EXAMPLE: Final = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"


def open_container(uri: str) -> tuple[ContainerClient, str]:
    """Return the container that an `abfss:` URI names, and the path in it.

    Credentials are the URI's shared access signature, or AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN of the
    environment, or what azure-identity finds: a service principal, the workload's or the machine's identity. Raises
    ValueError for a URI without container or account, with a key, with options but `endpoint` and a signature's, or
    with `.` or `..` in its path.
    """
    parts = urlsplit(uri)
    container, _, host = parts.netloc.partition("@")
    options = dict(parse_qsl(parts.query))
    endpoint = options.pop("endpoint", None)
    signature = urlencode(options) if "sig" in options else None
    if options and not signature:
        raise ValueError(f"its options are `endpoint`, or a shared access signature, not {sorted(options)}")
    if not host and (account := os.environ.get("AZURE_STORAGE_ACCOUNT")):
        host = f"{account}.blob.core.windows.net"
    if not container or ":" in container or not (host or endpoint):
        raise ValueError(f"write {_EXAMPLE}, or set AZURE_STORAGE_ACCOUNT; keys are not taken from URIs")
    path = unquote(parts.path.strip("/"))
    if {".", ".."}.intersection(path.split("/")):
        # In URLs these are followed, in the prefix of a listing they are names: it would find nothing that is there.
        raise ValueError("its path has `.` or `..` in it: write where that leads to")
    secret = signature or os.environ.get("AZURE_STORAGE_KEY") or os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    client = ContainerClient(
        endpoint or f"https://{host.replace('.dfs.', '.blob.', 1)}",
        container,
        credential=secret or DefaultAzureCredential(),
        retry_total=0,  # `Retrying` asks again
        connection_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_single_get_size=CHUNK_BYTES,
    )
    return client, path


class AzureFiles(DurableFiles):
    """Blobs of the container whose client is `filesystem`. There are no directories to make."""

    def _open(self, path: str) -> OpenFile:
        blob = self.filesystem.get_blob_client(path)
        with _errors():
            found = blob.get_blob_properties()

        def read(offset: int, size: int) -> bytes:
            # Fails if the blob was replaced since it was opened.
            with _errors():
                unchanged = {"etag": found.etag, "match_condition": MatchConditions.IfNotModified}
                return bytes(blob.download_blob(offset, size, **unchanged).readall())

        return OpenFile(found.size, read)

    def _write_once(self, path: str, content: Content) -> None:
        blob = self.filesystem.get_blob_client(path)
        if content.size_bytes <= CHUNK_BYTES:
            with _errors():
                blob.upload_blob(b"".join(content.chunks()), overwrite=True)
            return
        # The blob shows once the list is committed; Azure drops blocks without a list after a week. Names of blocks are
        # unique: writers of one blob would replace each other's.
        writer = uuid.uuid4().hex
        names: list[str] = []
        for block in _blocks(content):
            names.append(f"{writer}{len(names):08d}")
            self.retrying.call(f"writing {path}", partial(_stage, blob, names[-1], block))
        with _errors():
            blob.commit_block_list([BlobBlock(name) for name in names])

    def _list(self, directory: str) -> list[fs.FileInfo]:
        prefix = f"{directory}/" if directory else ""
        return self.retrying.call(f"listing {directory}", lambda: self._listed_once(prefix))

    def _listed_once(self, prefix: str) -> list[fs.FileInfo]:
        found = {}
        with _errors():
            for blob in self.filesystem.walk_blobs(name_starts_with=prefix, delimiter="/", include=["metadata"]):
                path, is_directory = blob.name.rstrip("/"), "size" not in blob
                # With a hierarchical namespace, a directory is an empty blob with this mark.
                if is_directory or "hdi_isfolder" in (blob.metadata or {}):
                    found[path] = fs.FileInfo(path, fs.FileType.Directory)
                else:
                    modified_ns = int(blob.last_modified.timestamp() * 1_000) * 1_000_000
                    found[path] = fs.FileInfo(path, fs.FileType.File, size=blob.size, mtime_ns=modified_ns)
        return list(found.values())

    def _delete_once(self, path: str) -> None:
        with _errors():
            self.filesystem.delete_blob(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory that nobody writes to: there is one with a hierarchical namespace only."""
        if not self._list(path):
            self.delete(path)


def _blocks(content: Content) -> Iterator[memoryview]:
    for chunk in content.chunks():
        view = memoryview(chunk)
        for start in range(0, view.nbytes, CHUNK_BYTES):
            yield view[start : start + CHUNK_BYTES]


def _stage(blob: BlobClient, name: str, block: memoryview) -> None:
    with _errors():
        blob.stage_block(name, bytes(block), length=len(block))


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except AzureError as cause:
        status = getattr(cause, "status_code", None)
        code = getattr(cause, "error_code", None)
        lines = _SECRET_QUERY.sub("", str(cause.message)).splitlines() or [""]
        said = lines[0]
        if status is None and isinstance(cause, ClientAuthenticationError):
            # Below the first line stands what was wrong with each of the credentials that were tried.
            code, said = "NoCredentials", " ".join(line.strip() for line in lines)
        elif status is None:
            raise ConnectionError(f"Azure Error Unreachable: {said}") from None
        if status == 404 and code != "ContainerNotFound":
            raise FileNotFoundError(said) from None
        status_text = f" (HTTP status {status})" if status else ""
        raise OSError(f"Azure Error {getattr(code, 'value', code)}{status_text}: {said}") from None
