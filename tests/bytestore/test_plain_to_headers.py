"""Plain values get headers by way of timestamps, or at once where that is said: in task directories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.errors import StoreFormatError
from tests.support.golden.kafka_streams import FIXTURES, load_fixture
from tests.support.golden.task_directories import APPLICATION, families, logical_entries, spec_of, tree

HALF_UPGRADED = [name for name in FIXTURES if "-from-" in name]


@pytest.mark.parametrize("name", ["old-kv", "old-window", "kv", "window"])
def test_plain_data_gets_headers_only_if_that_is_said(name: str, tmp_path: Path) -> None:
    task, spec = load_fixture(name).unpack(tmp_path), spec_of("headers-kv" if "kv" in name else "headers-window")
    before, names = families(task), tree(task)
    with TaskDirectory(task, APPLICATION) as directory:
        with pytest.raises(StoreFormatError, match=r"with_upgrade_through_timestamped\(\)"):
            directory.open_store(replace(spec, through_timestamped=False))
        assert (families(task), tree(task)) == (before, names)
        directory.open_store(spec)
    with TaskDirectory(task, APPLICATION) as directory:  # what has begun goes on
        directory.open_store(replace(spec, through_timestamped=False))


@pytest.mark.parametrize("name", HALF_UPGRADED)
def test_an_upgrade_that_kafka_streams_began_goes_on(name: str, tmp_path: Path) -> None:
    fixture = load_fixture(name)
    spec = replace(spec_of(fixture.fixture["kind"]), through_timestamped=False)
    with TaskDirectory(fixture.unpack(tmp_path), APPLICATION) as directory:
        assert logical_entries(spec, directory.open_store(spec)) == fixture.logical["entries"]
