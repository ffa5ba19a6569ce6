"""Azure's blob storage as its emulator Azurite serves it, behind the proxy of object_store.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

from tests.support.recovery.object_store import HOST, Fault, ObjectStore, Request, on_free_port, running

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of the emulator: it is in its documentation, and opens nothing else."""
AZURITE = Path.home() / ".cache/statestore/azurite/node_modules/.bin/azurite-blob"


class Azure(ObjectStore):
    """The server as its clients see it, with one container."""

    answers: ClassVar = {
        Fault.SERVER_ERROR: (500, "InternalError"),
        Fault.SLOW_DOWN: (503, "ServerBusy"),
        Fault.ACCESS_DENIED: (403, "AuthorizationPermissionMismatch"),
    }

    def make_bucket(self) -> None:
        self.secret_key = _signature(self.bucket)
        self._container().create_container()

    def is_part(self, request: Request) -> bool:
        return "comp=block&" in request.target or request.target.endswith("comp=block")

    def uri(self, path: str, *, bucket: str | None = None) -> str:
        endpoint = quote(f"http://{self.endpoint}/{ACCOUNT}", safe="")
        signature = _signature(bucket) if bucket else self.secret_key
        return f"abfss://{bucket or self.bucket}/{quote(path)}?endpoint={endpoint}&{signature}"

    def objects(self) -> dict[str, int]:
        return {blob.name: blob.size for blob in self._container().list_blobs()}

    def unfinished_uploads(self) -> int:
        return sum(1 for _ in self._container().list_blobs(include=["uncommittedblobs"])) - len(self.objects())

    def _container(self) -> ContainerClient:
        return ContainerClient(f"http://{HOST}:{self._server_port}/{ACCOUNT}", self.bucket, credential=KEY)


def _signature(container: str) -> str:
    rights = ContainerSasPermissions(read=True, write=True, create=True, delete=True, list=True)
    until = datetime.now(timezone.utc) + timedelta(hours=2)
    return generate_container_sas(ACCOUNT, container, KEY, permission=rights, expiry=until)


@contextmanager
def running_azure() -> Iterator[Azure]:
    """Start the emulator and the proxy, and stop both at the end; a test is skipped where it is not installed."""
    options = ("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent")
    with running(Azure, on_free_port(AZURITE, "--blobPort", "{}", *options)) as store:
        yield store
