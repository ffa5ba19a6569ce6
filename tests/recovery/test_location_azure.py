"""What only Azure has: how a container and credentials are named, and what its client's errors must not tell."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.storage.blob import ContainerClient

from statestore.errors import LocationError
from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.azure import _errors, open_container
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.retrying import Retrying
from tests.support.documentation import ROOT, run_page
from tests.support.recovery import MAX_BYTES
from tests.support.recovery.azure_server import ACCOUNT, KEY, Azure
from tests.support.recovery.object_store import Fault, times

PLACES = {
    "abfss://c@acc.dfs.core.windows.net/a/b": ("https://acc.blob.core.windows.net/c", "a/b"),
    "wasbs://c@acc.blob.core.windows.net/a%20b/": ("https://acc.blob.core.windows.net/c", "a b"),
    "abfs://c@acc.dfs.core.chinacloudapi.cn/a": ("https://acc.blob.core.chinacloudapi.cn/c", "a"),
    "abfss://w@onelake.dfs.fabric.microsoft.com/l/Files": ("https://onelake.blob.fabric.microsoft.com/w", "l/Files"),
    "az://c/a": ("https://mine.blob.core.windows.net/c", "a"),
}
IDENTITY = (
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_TENANT_ID",
)


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in IDENTITY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no command line of Azure either


def without_signature(azure: Azure, path: str = "state") -> str:
    return f"abfss://{azure.bucket}/{path}?endpoint={quote(f'http://{azure.endpoint}/{ACCOUNT}', safe='')}"


@pytest.mark.parametrize("uri", PLACES)
def test_a_uri_names_account_container_and_path(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    container, path = open_container(DurableLocation(uri).uri)
    assert (container.url, path) == PLACES[uri]


@pytest.mark.parametrize(
    "uri_and_problem",
    [
        "abfss://container/state set AZURE_STORAGE_ACCOUNT",
        "abfss://container:c2VjcmV0@account.dfs.core.windows.net/state keys are not taken from URIs",
        "abfss://c@account.dfs.core.windows.net/state?region=eu a shared access signature, not .'region'.",
        "abfss://c@account.dfs.core.windows.net/checkpoint/../state its path has `.` or `..` in it",
        "abfss://c@account.dfs.core.windows.net/%2e/state its path has `.` or `..` in it",
    ],
)
def test_a_uri_that_lacks_something_is_refused(uri_and_problem: str) -> None:
    uri, _, problem = uri_and_problem.partition(" ")
    with pytest.raises(LocationError, match=problem) as refused:
        DurableLocation(uri).check_writable()
    assert "c2VjcmV0" not in "".join(traceback.format_exception(refused.value))


def test_the_key_or_the_signature_of_the_environment_is_used(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    DurableLocation(without_signature(azure)).write("x", b"by key")
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", azure.secret_key)
    assert DurableLocation(without_signature(azure)).read("x", MAX_BYTES) == b"by key"


def test_the_page_begins_in_azure(azure: Azure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATE", without_signature(azure, "states/totals"))
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    location = run_page(ROOT / "docs" / "durable-locations.md", with_spark=False).location
    location.write("x", b"content")
    assert azure.objects() == {"states/totals/x": 7}, "and nothing of what was asked"


def test_without_credentials_the_location_is_refused(azure: Azure) -> None:
    location = DurableLocation(without_signature(azure).replace("http%3A", "https%3A"))  # a token goes by TLS alone
    said = r"NoCredentials.*EnvironmentCredential authentication unavailable.*credentials are wrong, missing or expired"
    with pytest.raises(LocationError, match=said):
        location.read("x", MAX_BYTES)


def test_wrong_credentials_are_named_and_not_shown(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "d3Jvbmcga2V5")
    with pytest.raises(LocationNotWritableError, match=r"Azure Error \w+ \(HTTP status 403\).*credentials") as refused:
        DurableLocation(without_signature(azure)).write("x", b"")
    assert "d3Jvbmcga2V5" not in "".join(traceback.format_exception(refused.value))


def test_no_error_and_no_log_tells_the_signature(azure: Azure, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    location = DurableLocation(azure.uri("state"), retrying=Retrying(total_s=0.2))
    secret = azure.secret_key.partition("sig=")[2].partition("&")[0]
    shown = [str(location), location.path("x"), str(location.below("y"))]
    for fault in (Fault.RESET, Fault.SERVER_ERROR, Fault.ACCESS_DENIED, Fault.CUT_BODY):
        azure.faults = times(1000, fault)
        with pytest.raises(LocationError) as failed:
            location.names("shards")
        shown += traceback.format_exception(failed.value)
    port = azure.endpoint.rpartition(":")[2]
    for wrong in (azure.uri("state").replace(port, "1"), azure.uri("state").replace("http%3A", "https%3A")):
        with pytest.raises(LocationError, match="reached from this machine") as lost:
            DurableLocation(wrong, retrying=Retrying(total_s=0)).read("x", MAX_BYTES)
        shown += traceback.format_exception(lost.value)
    assert len(secret) > 30
    assert secret not in "".join([*shown, caplog.text])


def test_what_the_client_says_of_a_url_is_told_without_its_query() -> None:
    with pytest.raises(ConnectionError, match=r"url: /state/x \(timed out\)"), _errors():
        raise ServiceRequestError("url: /state/x?sv=2026&sig=abc%3D (timed out)")


def test_what_replaces_a_blob_while_it_is_read_is_not_mixed_with_it(azure: Azure) -> None:
    location = DurableLocation(azure.uri("state"), retrying=Retrying(total_s=0))
    location.write("x", b"old content")
    files, root = location._open()
    with files._open(f"{root}/x") as source:
        location.write("x", b"new content")
        with pytest.raises(OSError, match="ConditionNotMet"):
            source.read_buffer(3)


def test_a_directory_of_a_hierarchical_account_is_none_of_the_files(azure: Azure) -> None:
    location = DurableLocation(azure.uri("state"))
    container = ContainerClient.from_container_url(f"http://{azure.endpoint}/{ACCOUNT}/{azure.bucket}", credential=KEY)
    container.upload_blob("state/shards", b"", metadata={"hdi_isfolder": "true"})
    assert location.names("") == []
    assert location.directories("") == ["shards"]
    location.remove_directory("shards")
    assert location.directories("") == []


def test_each_operation_costs_few_requests(azure: Azure) -> None:
    location = DurableLocation(azure.uri("state"))
    location.write("shards/0001/x", b"content")
    assert azure.methods() == ["PUT"]
    assert location.read("shards/0001/x", MAX_BYTES) == b"content"
    assert azure.methods() == ["HEAD", "GET"]
    assert location.read("shards/0001/y", MAX_BYTES) is None
    assert location.names("nowhere") == []
    location.delete("shards/0001/x")
    assert azure.methods() == ["HEAD", "GET", "DELETE"]
