"""Which URIs are state locations: other names of S3 are taken, what was never tested never gets to pyarrow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from statestore import DurableLocation
from statestore.errors import LocationError


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("s3a://bucket/state?region=eu", "s3://bucket/state?region=eu"),
        ("s3n://bucket/state", "s3://bucket/state"),
        ("S3A://Bucket/State", "s3://Bucket/State"),
        ("gcs://bucket/s3a://state", "gs://bucket/s3a://state"),
        ("hdfs://node:8020/state", "hdfs://node:8020/state"),
        ("file:///state", "file:///state"),
    ],
)
def test_other_names_of_the_same_are_taken(given: str, uri: str) -> None:
    assert DurableLocation(given).uri == uri


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("abfss://container@account.dfs.core.windows.net/state", "To reach Azure, mount an NFS share"),
        ("abfs://container/state", "To reach Azure"),
        ("wasbs://container@account/state", "To reach Azure"),
        ("adl://account/state", "To reach Azure"),
        ("dbfs:/state", "the object store that is below it.*To reach Azure"),
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


def test_pyarrow_is_not_asked_for_azure() -> None:
    # In a process of its own: pyarrow would end it.
    code = (
        "import sys; from statestore import DurableLocation as D; D('abfss://c@a.dfs.core.windows.net/s').read('x', 1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "To reach Azure" in done.stderr.splitlines()[-1]


def test_a_location_of_ones_own_may_open_anything(tmp_path: Path) -> None:
    class Elsewhere(DurableLocation):
        def open_filesystem(self) -> tuple[Any, str]:
            return fs.LocalFileSystem(), str(tmp_path)

    location = Elsewhere("abfss://container@account/state")
    location.write("name", b"data")
    assert (tmp_path / "name").read_bytes() == b"data"
