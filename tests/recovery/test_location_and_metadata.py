"""The durable location, what is recorded in it, and who owns it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.errors import (
    FormatError,
    LocationError,
    LocationInUseError,
    ShardCountChangedError,
    StoreFormatError,
    TopologyChangedError,
)
from statestore.errors.state import DurableFileCorruptedError, LocationNotWritableError
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.location.durable_json import from_durable_json, to_durable_json
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.agreement import claim
from statestore.recovery.metadata.state_metadata import METADATA_NAME, StateMetadata, agree_on_metadata, read_metadata
from tests.support.recovery import MAX_BYTES
from tests.support.recovery.hdfs_like import HdfsLikeLocation
from tests.support.recovery.shards import TOTALS

SOURCE = {"type": "source", "name": "in", "topics": None}
SINK = {"type": "sink", "name": "out", "topic": "out", "parents": ["in"]}
GOLDEN = Path(__file__).parents[1] / "golden" / "claims-1"
ASKED = StateMetadata("id-1", 2, "key", (0, 3), (TOTALS,), (SOURCE, SINK))


@pytest.fixture(params=[DurableLocation, HdfsLikeLocation])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> DurableLocation:
    made: DurableLocation = request.param(tmp_path / "a state location")
    return made


def test_a_relative_path_and_its_uri_are_the_same_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    DurableLocation("state").write("x", b"1")
    found = DurableLocation((tmp_path / "state").as_uri()).read("x", MAX_BYTES)
    assert found is not None
    assert found.to_pybytes() == b"1"


def test_a_location_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LocationNotWritableError, match=r"file/state.*state_location"):
        agree_on_metadata(DurableLocation(tmp_path / "file" / "state"), ASKED)


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(LocationError, match="nonsense://x"):
        DurableLocation("nonsense://x/y").check_writable()
    with pytest.raises(ValueError, match="state_location"):
        DurableLocation("")


def test_the_first_start_records_and_later_ones_keep_it(location: DurableLocation) -> None:
    assert agree_on_metadata(location, ASKED) == ASKED
    again = replace(ASKED, state_id="id-2", routing=(7, 8))
    assert agree_on_metadata(location, again) == ASKED
    assert read_metadata(location) == ASKED


def test_a_changed_shard_count_is_refused(location: DurableLocation) -> None:
    agree_on_metadata(location, ASKED)
    with pytest.raises(ShardCountChangedError, match=r"shards=4 .* 2 shards.*with rescale\(\)"):
        agree_on_metadata(location, replace(ASKED, shards=4, routing=(0, 1, 2, 3)))
    with pytest.raises(TopologyChangedError, match="placed by key"):
        agree_on_metadata(location, replace(ASKED, shard_by="partition"))
    assert read_metadata(location) == ASKED


def test_a_changed_store_format_is_refused_even_if_changes_are_accepted(location: DurableLocation) -> None:
    agree_on_metadata(location, ASKED)
    plain = StoreSpec(TOTALS.name, TOTALS.kind, StoreFormat.PLAIN)
    with pytest.raises(
        StoreFormatError, match=r"totals.*timestamped with headers.*plain.*downgrade \S+ TARGET --to plain"
    ):
        agree_on_metadata(location, replace(ASKED, stores=(plain,)), accept_topology_change=True)


@pytest.mark.parametrize("changed", [{"retention_ms": 200}, {"segment_interval_ms": 60}, {"window_size_ms": 20}])
@pytest.mark.parametrize("format", [StoreFormat.TIMESTAMPED, StoreFormat.TIMESTAMPED_WITH_HEADERS])
def test_other_sizes_of_windows_are_refused_even_with_a_newer_format_and_if_changes_are_accepted(
    location: DurableLocation, changed: dict[str, int], format: StoreFormat
) -> None:
    windows = StoreSpec("w", StoreKind.WINDOW, StoreFormat.TIMESTAMPED, 100, 50, 10)
    agree_on_metadata(location, replace(ASKED, stores=(windows,)))
    asked = replace(ASKED, stores=(replace(windows, format=format, **changed),))
    with pytest.raises(StoreFormatError, match="is recorded as"):
        agree_on_metadata(location, asked, accept_topology_change=["w"])


def test_timers_may_be_left_unused_and_not_be_added(location: DurableLocation, tmp_path: Path) -> None:
    timed = replace(ASKED, wall_clock=True)
    agree_on_metadata(location, timed)
    assert agree_on_metadata(location, ASKED) == timed, "Spark's operator has them still"
    other = DurableLocation(tmp_path / "other")
    agree_on_metadata(other, ASKED)
    with pytest.raises(TopologyChangedError, match="Spark can't give timers"):
        agree_on_metadata(other, timed, accept_topology_change=True)


def test_a_store_is_dropped_by_its_name_alone_and_never_comes_back(
    location: DurableLocation, caplog: pytest.LogCaptureFixture
) -> None:
    both = replace(ASKED, stores=(replace(TOTALS, name="counts"), TOTALS))
    agree_on_metadata(location, both)
    accepted: Any
    for accepted in (False, True, ["counts"], ["totals"]):
        with pytest.raises(TopologyChangedError) as refused:
            agree_on_metadata(location, replace(ASKED, stores=()), accept_topology_change=accepted)
        assert str(refused.value).endswith("start with accept_topology_change=['counts', 'totals']")
    assert caplog.text == ""
    one = agree_on_metadata(location, ASKED, accept_topology_change=["counts"])
    assert one == replace(ASKED, generation=1, dropped=("counts",)) == read_metadata(location)
    assert "stores ['counts'] are dropped" in caplog.text
    assert agree_on_metadata(location, ASKED) == one
    none = agree_on_metadata(location, replace(ASKED, stores=()), accept_topology_change=["totals", "counts"])
    assert none.dropped == ("counts", "totals")
    for accepted in (True, ["counts"]):
        with pytest.raises(TopologyChangedError, match=r"store 'counts' was dropped, and is back.*another name"):
            agree_on_metadata(location, both, accept_topology_change=accepted)
    assert read_metadata(location) == none


def test_metadata_of_dropped_stores_is_as_it_was_written() -> None:
    golden = GOLDEN.with_name("dropped-1") / "statestore.json"
    recorded = StateMetadata.from_json(golden.read_bytes(), "x")
    assert recorded.dropped == ("counts", "old")
    assert recorded.to_json() == golden.read_text(encoding="utf-8")
    broken = to_durable_json({**from_durable_json(golden.read_bytes()), "dropped": "counts"}).encode()
    with pytest.raises(DurableFileCorruptedError, match="dropped must be a list of names"):
        StateMetadata.from_json(broken, "x")


def test_a_changed_topology_is_refused_until_it_is_accepted(location: DurableLocation) -> None:
    agree_on_metadata(location, ASKED)
    changed = replace(
        ASKED,
        stores=(TOTALS, replace(TOTALS, name="counts")),
        topology=({**SOURCE, "name": "new"}, {**SINK, "topic": "elsewhere"}),
    )
    with pytest.raises(TopologyChangedError) as refused:
        agree_on_metadata(location, changed)
    for difference in ("source 'in' is gone", "source 'new' is new", "'out' was", "store 'counts' is new"):
        assert difference in str(refused.value)
    assert read_metadata(location) == ASKED
    planned = agree_on_metadata(location, changed, accept_topology_change=True, is_owner=False)
    assert not planned.is_recorded
    assert read_metadata(location) == ASKED
    accepted = agree_on_metadata(location, changed, accept_topology_change=True)
    assert accepted == replace(changed, generation=1) == read_metadata(location)


def test_metadata_with_another_placement_is_not_readable() -> None:
    recorded = from_durable_json(ASKED.to_json().encode())
    assert StateMetadata.from_json(to_durable_json(recorded).encode(), "x") == ASKED
    for placement in ("name", None, ["key"]):
        changed = to_durable_json({**recorded, "shard_by": placement}).encode()
        with pytest.raises(DurableFileCorruptedError, match=r"not readable state metadata.*ShardBy"):
            StateMetadata.from_json(changed, "x")


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"format":2}', b"\xff", b'{"format":1,"shards":"x"}'])
def test_unreadable_metadata_is_named(location: DurableLocation, text: bytes) -> None:
    location.write(METADATA_NAME, text)
    with pytest.raises(DurableFileCorruptedError, match=METADATA_NAME):
        read_metadata(location)


def test_a_recorded_store_must_be_one() -> None:
    assert StoreSpec.from_json(TOTALS.to_json()) == TOTALS
    with pytest.raises(FormatError):
        StoreSpec.from_json({"name": "x", "kind": "unheard-of", "format": "PLAIN"})


@pytest.mark.parametrize("name", ["", ".", "..", "a:b", "a/b", "ä", "x" * 250])
def test_illegal_store_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="illegal name"):
        replace(TOTALS, name=name)


def test_one_query_one_location(location: DurableLocation) -> None:
    claim(location, "query-a")
    claim(location, "query-a")
    with pytest.raises(LocationInUseError, match=r"belongs to the streaming query query-a, this is query query-b"):
        claim(location, "query-b")
    claim(location, "query-a")
    assert location.names("owners") == ["owners/query-a"]


def test_a_query_that_is_claiming_is_in_the_way_of_others_and_not_of_its_own(location: DurableLocation) -> None:
    location.write(f"owners/query-a.{'0' * 32}.claiming", b"")
    with pytest.raises(LocationInUseError, match="belongs to the streaming query query-a, this is query query-b"):
        claim(location, "query-b")
    claim(location, "query-a")
    assert location.names("owners") == ["owners/query-a", f"owners/query-a.{'0' * 32}.claiming"]


def test_a_claim_stands_whoever_else_is_claiming(location: DurableLocation, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "a state location")
    owner, other = "0b6e1d9c-3f57-4a34-9c0e-6f3f3d2a1b70", "5d2c7a10-8e4b-4b6f-8f0a-2b9d7c6e5f41"
    claim(location, owner)
    for query in (other, "a-third-one"):
        with pytest.raises(LocationInUseError, match=f"belongs to the streaming query {owner}"):
            claim(location, query)
