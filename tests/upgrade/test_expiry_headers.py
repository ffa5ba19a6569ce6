"""States that tools make of entries whose headers say when they expire: what says when is made beside them."""

from pathlib import Path
from typing import Any

import pytest

from statestore import Headers, Serdes, Stores
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, expiry_spec
from statestore.format.values.store_format import StoreFormat
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_value
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.state_filling import with_expiry_stores
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import chain, input_of
from tests.support.spark.task_batches import TaskBatches
from tests.support.tools.runs import Tools
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import StateOptions

TEXT = Serdes.string()
STORE = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("s"), TEXT, TEXT
)
EXPIRE = {"a": expiry_value(100), "b": b"200", "c": b"no time", "d": None}


def put(context: Any, record: Any) -> None:
    context.state_store("s").put_value(record.key, record.value)


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A directory of Kafka Streams whose application knows of no expiry."""
    with TopologyTestDriver(chain(put, STORE), state_dir=tmp_path / "streams") as driver:
        topic = input_of(driver)
        for key, value in EXPIRE.items():
            topic.pipe_input(TestRecord(key, "v", headers=Headers([(EXPIRY_HEADER, value)]), timestamp_ms=5))
        topic.pipe_input(TestRecord("e", "v", timestamp_ms=5))
    return tmp_path / "streams" / "test-application"


@pytest.fixture
def migrated(application: Path, tmp_path: Path, tools: Tools) -> Path:
    location = tmp_path / "migrated"
    of_store = ["--kind", "headers-kv", "--expiry-header", "s"]
    ended = tools("migrate", application, location, "--layout", "location", *of_store)
    assert ended.code == 0, ended.err
    return location


@pytest.fixture
def imported(application: Path, tmp_path: Path, tools: Tools) -> Path:
    file, location = tmp_path / "rows.jsonl", tmp_path / "imported"
    assert tools("export", application, file, "--kind", "headers-kv").code == 0
    ended = tools("import", file, location, "--shards", "1", "--expiry-header", f"s={EXPIRY_HEADER}")
    assert ended.code == 0, ended.err
    return location


@pytest.mark.parametrize("made", ["migrated", "imported"])
def test_b16_what_was_made_of_a_directory_expires_by_its_headers(
    made: str, request: pytest.FixtureRequest, tmp_path: Path, tools: Tools
) -> None:
    location = request.getfixturevalue(made)
    for time_ms, keys in ((99, "abcde"), (100, "bcde"), (200, "cde"), (2**62, "cde")):
        found = tools("scan", "--json", "--store", "s", "--live-at", time_ms, location).document["entries"]
        assert "".join(bytes.fromhex(entry["key"]).decode() for entry in found) == keys

    # A task goes on from there: what expired is deleted, as if it had put it.
    state = open_state(str(location), StateOptions())
    batches = TaskBatches(tmp_path / "tasks", chain(put, STORE.with_expiry_header()))
    batches.location, batches.pointer = DurableLocation(location), state.pointers[0]  # type: ignore[attr-defined]
    batches.state_id = batches.pointer.state_id
    batches.run(now_ms=150)
    assert [key for key, _ in batches.content("s")] == [b"b", b"c", b"d", b"e"]
    assert len(batches.content("s-expiry")) == 2


@pytest.mark.parametrize("of_store", [[], ["--store", "s"]])
def test_b16_what_says_when_goes_with_its_entries_to_other_shards(
    of_store: list[str], migrated: Path, tmp_path: Path, tools: Tools
) -> None:
    file, location = tmp_path / "rows.parquet", tmp_path / "divided"
    assert tools("export", migrated, file, *of_store).code == 0
    assert tools("import", file, location, "--shards", "3").code == 0
    for time_ms, keys in ((99, "abcde"), (100, "bcde"), (200, "cde")):
        found = tools("scan", "--json", "--store", "s", "--live-at", time_ms, location).document["entries"]
        assert "".join(sorted(bytes.fromhex(entry["key"]).decode() for entry in found)) == keys


def test_b16_a_directory_that_stays_one_gets_no_expiry(application: Path, tmp_path: Path, tools: Tools) -> None:
    for target in ((), (tmp_path / "other",)):
        ended = tools("migrate", application, *target, "--kind", "headers-kv", "--expiry-header", "s")
        assert (ended.code, "which do not record when an entry expires" in " ".join(ended.err.split())) == (2, True)


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("other", "there is no store 'other'"),
        ("s=", "'s=' is not STORE or STORE=HEADER"),
        ("=h", "'=h' is not STORE or STORE=HEADER"),
    ],
)
def test_b16_an_expiry_header_of_no_store_is_refused(
    application: Path, tmp_path: Path, tools: Tools, option: str, problem: str
) -> None:
    target = ["migrate", application, tmp_path / "new", "--layout", "location", "--kind", "headers-kv"]
    ended = tools(*target, "--expiry-header", option)
    assert ended.code == 2
    assert problem in " ".join(ended.err.split())
    assert not (tmp_path / "new" / "statestore.json").exists()


def test_b16_only_stores_with_headers_whose_times_are_not_known() -> None:
    headers, plain = STORE.spec, StoreSpec("p", StoreKind.KEY_VALUE, StoreFormat.PLAIN)
    assert with_expiry_stores([headers, plain], {"s": "h"}) == (headers, plain, expiry_spec(headers))
    assert with_expiry_stores([plain], {}) == (plain,)
    with pytest.raises(ValueError, match="nothing of store 'p' expires by a header: it is"):
        with_expiry_stores([plain], {"p": "h"})
    with pytest.raises(ValueError, match="when entries of store 's' expire is known already, in store 's-expiry'"):
        with_expiry_stores([headers, expiry_spec(headers)], {"s": "h"})
