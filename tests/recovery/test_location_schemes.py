"""Which URIs are state locations: other names of the same are taken, what was never tested is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from statestore import DurableLocation
from statestore.errors import LocationError
from statestore.recovery.location.schemes import refusal_of


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("s3a://bucket/state?region=eu", "s3://bucket/state?region=eu"),
        ("s3n://bucket/state", "s3://bucket/state"),
        ("S3A://Bucket/State", "s3://Bucket/State"),
        ("gcs://bucket/s3a://state", "gs://bucket/s3a://state"),
        ("wasbs://c@a.blob.core.windows.net/s", "abfss://c@a.dfs.core.windows.net/s"),
        ("hdfs://node:8020/state", "hdfs://node:8020/state"),
        ("file:///state", "file:///state"),
    ],
)
def test_other_names_of_the_same_are_taken(given: str, uri: str) -> None:
    assert DurableLocation(given).uri == uri


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("adl://account/state", "mount it on every machine"),
        ("dbfs:/state", "the object store that is below it"),
        ("viewfs://cluster/state", "hdfs://"),
        ("https://host/state", "endpoint_override"),
        ("ftp://host/state", "mount it on every machine"),
        ("mock://state", "mount it on every machine"),
    ],
)
def test_what_was_never_tested_is_refused_with_what_to_use_instead(uri: str, remedy: str) -> None:
    kind = uri.partition(":")[0]
    with pytest.raises(LocationError, match=rf"is of kind {kind}:, which was never tested.*{remedy}"):
        DurableLocation(uri).check_writable()


@pytest.mark.parametrize("path", ["/dbfs/states/a", "file:///dbfs/states/a", "/Volumes/catalog/schema/volume/a"])
def test_a_mount_of_databricks_is_refused_with_what_to_use_instead(path: str) -> None:
    with pytest.raises(LocationError, match=r"on a mount of Databricks.*the object store that is below it: s3://"):
        DurableLocation(path).check_writable()


def test_a_directory_of_that_name_elsewhere_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DurableLocation(tmp_path / "Volumes" / "dbfs").check_writable()
    monkeypatch.setattr(sys, "platform", "darwin")  # where disks are mounted there
    assert refusal_of("file:///Volumes/disk/states") is None


@pytest.mark.parametrize(
    ("extra", "client", "uri"),
    [
        ("azure", "azure.storage.blob", "abfss://c@account.dfs.core.windows.net/state"),
        ("hdfs", "hdfs_native", "hdfs://node:8020/state"),
    ],
)
def test_a_client_that_is_missing_is_named(extra: str, client: str, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"statestore.recovery.location.{extra}", raising=False)
    monkeypatch.setitem(sys.modules, client, None)
    monkeypatch.setenv("CLASSPATH", "/none")  # or libhdfs would look for Hadoop
    with pytest.raises(LocationError, match=rf"pip install 'statestore\[{extra}\]'"):
        DurableLocation(uri).read("x", 1)


def test_a_location_of_ones_own_may_open_anything(tmp_path: Path) -> None:
    class Elsewhere(DurableLocation):
        def open_filesystem(self) -> tuple[Any, str]:
            return fs.LocalFileSystem(), str(tmp_path)

    location = Elsewhere("ftp://host/state")
    location.write("name", b"data")
    stage = location.below("stage-1")
    stage.write("name", b"of another stage")
    assert stage.names("") == ["name"]
    assert (str(stage), stage.path("name")) == ("ftp://host/state/stage-1", "ftp://host/state/stage-1/name")
    assert (tmp_path / "name").read_bytes() == b"data"
    assert (tmp_path / "stage-1" / "name").read_bytes() == b"of another stage"
