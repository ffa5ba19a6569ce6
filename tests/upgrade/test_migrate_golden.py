"""What Kafka Streams left behind goes to its newest format, to a location and back; Kafka Streams reads it all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.kinds.store_spec import StoreType
from statestore.format.position import OFFSET_UNKNOWN
from tests.support.golden.kafka_streams import FIXTURES, load_fixture
from tests.support.java.reader import ReadRequest, read_with_kafka_streams
from tests.support.tools.migrations import NEWEST, documents_of, in_format_of, kind_of, said_of, to_newest, tree
from upgrade_tools.migration.journal import TaskJournal, forget_journal
from upgrade_tools.migration.migrate import migrate
from upgrade_tools.migration.planning.request import MigrationRequest, TargetLayout
from upgrade_tools.migration.report import MigrationReport
from upgrade_tools.states.state import StateOptions

IN_PLACE = ["headers-session-from-plain", "kv", "old-versioned", "old-window", "ts-kv-from-plain", "ts-window"]
"""Those that are migrated in place, too: of each way in which databases lie, and of each release."""


@dataclass(frozen=True)
class Migrated:
    """One golden directory, and what was made of it."""

    kind: StoreType
    expected: list[dict[str, Any]]
    copy: Path
    location: Path
    back: Path
    reports: dict[str, MigrationReport]


def migrated(name: str, home: Path) -> Migrated:
    fixture = load_fixture(name)
    task = fixture.unpack(home / "source")
    before = tree(task)
    kind = NEWEST.get(kind_of(fixture), kind_of(fixture))
    made = Migrated(
        kind,
        in_format_of(kind, fixture.logical["entries"]),
        home / "copy" / "golden" / "0_0",
        home / "location",
        home / "back" / "golden",
        {},
    )
    made.reports["copy"] = migrate(to_newest(fixture, task, made.copy))
    made.reports["location"] = migrate(to_newest(fixture, task, made.location, layout=TargetLayout.LOCATION))
    assert tree(task) == before
    back = MigrationRequest(str(made.location), str(made.back), layout=TargetLayout.KAFKA_STREAMS)
    made.reports["back"] = migrate(back)
    return made


@pytest.fixture(scope="module")
def all_migrated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Migrated]:
    return {name: migrated(name, tmp_path_factory.mktemp(name)) for name in FIXTURES}


@pytest.fixture(scope="module")
def migrated_in_place(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of IN_PLACE, migrated where they are, and with the journal that a killed process leaves."""
    tasks = {name: load_fixture(name).unpack(tmp_path_factory.mktemp(name)) for name in IN_PLACE}
    for name, task in tasks.items():
        migrate(to_newest(load_fixture(name), task))
        TaskJournal("request", "source", verified=True).write(task)
    return tasks


@pytest.fixture(scope="module")
def read_by_kafka_streams(
    java: str, all_migrated: dict[str, Migrated], migrated_in_place: dict[str, Path]
) -> dict[str, dict[str, dict[str, Any]]]:
    """What Kafka Streams finds in each of the task directories that were made, by golden directory."""
    tasks = [
        (name, how, path, made.kind)
        for name, made in all_migrated.items()
        for how, path in (("copy", made.copy), ("back", made.back / "0_0"))
    ]
    tasks += [(name, "in place", path, all_migrated[name].kind) for name, path in migrated_in_place.items()]
    answers = read_with_kafka_streams([ReadRequest(path, kind.value) for _, _, path, kind in tasks])
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (name, how, _, _), answer in zip(tasks, answers, strict=True):
        found.setdefault(name, {})[how] = answer
    return found


@pytest.mark.parametrize("name", FIXTURES)
def test_kafka_streams_goes_on_with_it(
    name: str, all_migrated: dict[str, Migrated], read_by_kafka_streams: dict[str, dict[str, dict[str, Any]]]
) -> None:
    made, logical = all_migrated[name], load_fixture(name).logical
    expected = {**logical, "kind": made.kind.value, "entries": made.expected, "pointReadsThatDiffer": []}
    for how in ("copy", "in place") if name in IN_PLACE else ("copy",):
        assert read_by_kafka_streams[name][how] == expected, how


@pytest.mark.parametrize("name", FIXTURES)
def test_kafka_streams_finds_the_same_after_a_round_trip(
    name: str, all_migrated: dict[str, Migrated], read_by_kafka_streams: dict[str, dict[str, dict[str, Any]]]
) -> None:
    answer = read_by_kafka_streams[name]["back"]
    assert answer.get("error") is None
    assert answer["entries"] == all_migrated[name].expected
    assert answer["pointReadsThatDiffer"] == []
    assert answer["committedOffset"] == OFFSET_UNKNOWN, "a location does not know offsets of a changelog topic"


@pytest.mark.parametrize("name", FIXTURES)
def test_a_location_holds_the_same(name: str, all_migrated: dict[str, Migrated]) -> None:
    made = all_migrated[name]
    assert sorted_by_key(documents_of(made.location, StateOptions())) == sorted_by_key(made.expected)
    (store,) = made.reports["copy"].stores
    assert store.migrated is made.kind
    assert store.entries == made.reports["back"].stores[0].entries


def sorted_by_key(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorted without regard to segments, which put windows of different keys into another order."""
    return sorted(entries, key=lambda entry: (entry["key"], entry.get("start"), entry.get("end"), entry.get("value")))


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_directory_that_lacks_nothing_stays_as_it_is(
    name: str, all_migrated: dict[str, Migrated], migrated_in_place: dict[str, Path]
) -> None:
    fixture, task = load_fixture(name), migrated_in_place[name]
    forget_journal(task)
    before = tree(task)
    again = migrate(to_newest(fixture, task, store_options={None: said_of(fixture, all_migrated[name].kind)}))
    assert again.parts == ()
    assert again.notes == ("there was nothing to be done: no entry is left in an older format",)
    assert tree(task) == before
