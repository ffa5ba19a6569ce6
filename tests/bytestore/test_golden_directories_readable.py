"""What Kafka Streams wrote can be read by the RocksDB that we have, entry for entry."""

from pathlib import Path

import pytest

from tests.support.golden.kafka_streams import FIXTURES, dump_task_directory, facts, load_fixture


def test_all_fixtures_are_there() -> None:
    assert len(FIXTURES) == 27
    assert [name for name in FIXTURES if load_fixture(name).restored is None] == [
        name for name in FIXTURES if name.startswith("old-")
    ]
    assert len(facts()) == 65


@pytest.mark.parametrize("name", FIXTURES)
def test_a_directory_holds_what_its_dump_says(name: str, tmp_path: Path) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path)
    before = sorted(task.rglob("*"))
    assert dump_task_directory(task) == fixture.raw
    assert sorted(task.rglob("*")) == before
