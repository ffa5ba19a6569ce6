"""Which URIs are state locations: other names of the same are taken, what was never tested is refused."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from statestore import DurableLocation
from statestore.errors import LocationError
from statestore.errors.readable import without_secrets
from statestore.recovery.location.retrying import Retrying
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


@pytest.mark.parametrize(
    "uri", ["file:///mnt/state#2", "file:///mnt/state?2", "s3://bucket/state#2", "hdfs://n:8020/s#2"]
)
def test_a_uri_that_would_be_cut_is_refused(uri: str) -> None:
    with pytest.raises(LocationError, match=r"would end at its `#` or `\?`.*write %23 or %3F"):
        DurableLocation(uri).check_writable()


def test_in_a_path_they_are_characters_as_others(tmp_path: Path) -> None:
    for name in ("a#1", "a#2", "a?1", "a%231"):
        DurableLocation(tmp_path / name).write("x", name.encode())
        assert (tmp_path / name / "x").read_bytes() == name.encode()


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA:12/Secret@bucket/state?region=eu",
        "s3://AKIA:ab/Secret@bucket/state",
        "s3a://AKIA:ab#Secret@bucket/state",
        "s3://AKIA:ab?Secret@bucket/state",
        "s3://AKIA:Secret/bucket/state",
        "s3://bucket/state?region=eu&access_key=AKIA&secret_key=Secret",
        "gs://AKIA:ab/Secret@bucket/state",
        "abfss://container:ab/Secret==@account.dfs.core.windows.net/state",
    ],
)
def test_a_secret_that_is_written_wrongly_is_not_told_either(uri: str) -> None:
    location = DurableLocation(uri, retrying=Retrying(total_s=0))
    with pytest.raises(LocationError) as refused:
        location.check_writable()
    shown = [*traceback.format_exception(refused.value), str(location), location.path("x"), str(location.below("y"))]
    assert not [text for text in shown if "Secret" in text or "AKIA" in text]


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://AKIA:Secret@bucket/a@b/c?region=eu", "s3://bucket/a@b/c?region=eu"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("hdfs://[::1]:8020/a@b?replication=2", "hdfs://[::1]:8020/a@b?replication=2"),
        ("hdfs:///a", "hdfs:///a"),
        ("abfss://c@a.dfs.core.windows.net/s?sv=1&sig=Secret&se=2", "abfss://c@a.dfs.core.windows.net/s?sv=1&se=2"),
        ("wasbs://c@a.blob.core.windows.net/s", "wasbs://c@a.blob.core.windows.net/s"),
        ("/mnt/a://b@c", "/mnt/a://b@c"),
    ],
)
def test_all_else_of_a_uri_is_shown(uri: str, shown: str) -> None:
    assert without_secrets(uri) == shown
    assert without_secrets(shown) == shown
    assert LocationError(uri, "is full").location == shown
