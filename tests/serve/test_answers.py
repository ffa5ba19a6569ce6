"""What each path answers, of states that real stores have written."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from starlette.routing import Route
from starlette.testclient import TestClient

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat
from tests.serve.conftest import Serving
from tests.support.recovery.rescaling import every_kind
from tests.support.serve.live import HOSTILE_KEY, LARGE, SCRIPT, Live, counted, counting, of_every_kind, word_counts
from tests.support.serve.serving import wait_until
from upgrade_tools.rows.entry_encoding import EntryEncoding
from upgrade_tools.rows.selection import Selection
from upgrade_tools.serve.app import Service
from upgrade_tools.serve.entries import Question, pairs_after
from upgrade_tools.serve.following import Follower

ENTRIES = "/api/stores/counts/entries"


@pytest.fixture(scope="module")
def every_kind_of_store(tmp_path_factory: pytest.TempPathFactory) -> Live:
    return of_every_kind(tmp_path_factory.mktemp("kinds"), every_kind())


def answer(client: TestClient, path: str, status: int = 200, **parameters: Any) -> Any:
    found = client.get(path, params=parameters)
    assert found.status_code == status, found.text
    return found.json()


def keys(answered: dict[str, Any]) -> list[str]:
    return [entry["key"]["text"] for entry in answered["entries"]]


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.SESSION])
def test_the_last_key_is_one_of_bytes_whatever_times_are_behind_keys(kind: StoreKind) -> None:
    spec = StoreSpec("s", kind, StoreFormat.PLAIN, 1_000, 100, 10 if kind is StoreKind.WINDOW else None)
    layout, store = layout_of(spec), MemoryByteStore("s")
    found = [bytes(each) for size in range(4) for each in product(b"\0\x01a\xff", repeat=size)]
    for key in found:
        for time_ms in (0, 355, 1_700_000_000_000):
            store.write([(layout.physical_key(layout.join(key, time_ms, time_ms)[0]), b"v")])
    for last in found:
        question = Question(Selection(), last_key=last)
        pairs = pairs_after(layout, store, question, None)
        shown = [key for key, *_ in layout.entries(pairs) if key <= last]
        assert sorted(shown) == sorted(3 * [key for key in found if key <= last])


def test_the_overview_has_figures_of_each_store(client: TestClient, standing: Live) -> None:
    found = answer(client, "/api/overview")
    (stage,) = found["stages"]
    assert (stage["batch"], stage["run"], stage["shards"]) == (2, "run-1", 2)
    assert [pointer["version"] for pointer in stage["pointers"]] == [
        standing.pointer(shard).version for shard in (0, 1)
    ]
    counts = next(store for store in found["stores"] if store["name"] == "counts")
    assert (counts["entries"], counts["counted"], counts["shardsRead"]) == (123, True, 2)
    assert counts["sampled"]["valueBytes"] > len(LARGE)
    assert {node["name"]: node.get("parents") for node in found["topology"]}["count"] == ["split"]


def test_figures_of_a_store_name_its_headers_and_its_largest_keys(client: TestClient) -> None:
    found = answer(client, "/api/stores/counts")
    headers = {header["name"]: header for header in found["headers"]}
    assert (headers["source"]["count"], headers["tenant"]["count"]) == (122, 120)
    assert headers["source"]["values"][0] == {"value": {"text": "import", "size": 6}, "count": 120}
    assert found["largest"][0]["key"]["text"] == "large"
    assert sum(shard["entries"] for shard in found["byShard"]) == found["entries"] == 123


def test_what_is_sampled_says_so_and_is_not_read_anew_with_each_batch(
    live: Live, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upgrade_tools.serve.sampling._SAMPLED_PAIRS", 40)
    client = serving(live.home / live.name)
    found = answer(client, "/api/stores/counts")
    assert (found["counted"], found["shardsRead"]) == (False, 2)
    assert 0 < found["sampled"]["entries"] <= 40 < found["entries"]
    live.commit({f"more-{number}": counted("1", 9) for number in range(50)})
    wait_until(lambda: answer(client, "/api/batches")["batches"][-1]["batch"] == 3)
    assert answer(client, "/api/stores/counts") == found


def test_pages_have_each_entry_once(client: TestClient) -> None:
    whole = answer(client, ENTRIES, limit=1000)
    assert (len(whole["entries"]), whole["page"]) == (123, None)
    found, page = [], {}
    while True:
        part = answer(client, ENTRIES, limit=10, **page)
        found += part["entries"]
        if part["page"] is None:
            break
        page = {"page": part["page"]}
    assert found == whole["entries"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"key": "alpha"}, ["alpha"]),
        ({"id": b"alpha".hex()}, ["alpha"]),
        ({"prefix": "word-01"}, [f"word-01{number}" for number in range(10)]),
        ({"from": "word-117", "to": "word-118"}, ["word-117", "word-118"]),
        ({"header": "trace-id"}, ["alpha"]),
        ({"header": ["source=orders", "trace-id=def"]}, ["alpha"]),
        ({"header": "trace-id=abc"}, []),
        ({"timeFrom": 1115, "timeTo": 1116}, ["word-115", "word-116"]),
    ],
)
def test_entries_are_chosen(client: TestClient, asked: dict[str, Any], expected: list[str]) -> None:
    assert sorted(keys(answer(client, ENTRIES, **asked))) == expected


def test_an_index_finds_entries_by_their_headers(tmp_path: Path, client: TestClient, serving: Serving) -> None:
    live = counting(tmp_path, 2, "tenant")
    indexed = serving(tmp_path / live.name)
    assert answer(indexed, "/api/stores/counts")["indexedHeaders"] == ["tenant"]
    for asked in ({"header": "tenant=t1"}, {"header": ["source=import", "tenant=t1"], "prefix": "word-0"}):
        found, scanned = (answer(each, ENTRIES, limit=1000, **asked) for each in (indexed, client))
        assert found["entries"] == scanned["entries"]
        assert found["read"] == 40 < scanned["read"]
    parts, page = [], {}
    while page is not None:
        part = answer(indexed, ENTRIES, limit=7, header="tenant=t1", **page)
        parts += keys(part)
        page = None if part["page"] is None else {"page": part["page"]}
    assert sorted(parts) == [f"word-{number:03}" for number in range(1, 120, 3)]
    live.commit({"word-001": counted("2", 9, tenant="t2"), "late": counted("1", 9, tenant="t1")})
    wait_until(lambda: answer(indexed, "/api/batches")["batches"][-1]["batch"] == 3)
    found = answer(indexed, ENTRIES, limit=1000, header="tenant=t1")
    assert {"late", "word-004"} <= {*keys(found)}
    assert (len(found["entries"]), "word-001" in keys(found)) == (40, False)


def test_all_entries_are_streamed_as_lines(client: TestClient) -> None:
    found = client.get(ENTRIES, params={"header": "tenant=t1"}, headers={"accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in found.text.splitlines()]
    assert sorted(line["key"]["text"] for line in lines) == [f"word-{number:03}" for number in range(1, 120, 3)]


def test_a_key_has_its_value_whole_and_in_pages_its_beginning(client: TestClient) -> None:
    (large,) = answer(client, "/api/stores/counts/key", key="large")["entries"]
    assert large["value"] == {"text": LARGE, "size": len(LARGE)}
    (cut,) = answer(client, ENTRIES, key="large")["entries"]
    assert (cut["value"]["size"], cut["value"]["cut"], len(cut["value"]["text"])) == (len(LARGE), True, 512)
    whole = client.get("/api/stores/counts/value", params={"key": "large"})
    assert whole.content == LARGE.encode()
    assert whole.headers["content-disposition"].startswith("attachment")


def test_the_history_of_a_key_says_who_wrote_it(client: TestClient) -> None:
    found = answer(client, "/api/stores/counts/history", key="alpha")
    writes = [(write["version"], write["value"]["text"], write.get("changed")) for write in found["writes"]]
    everything = ["value", "timestamp", "headers"]
    assert writes == [(3, "3", everything), (2, "2", everything), (1, "1", None)]
    assert [write["headers"][0]["value"]["text"] for write in found["writes"]] == ["orders", "orders", "import"]
    assert (found["isWhole"], found["writes"][0]["batch"]) == (True, 2)


def test_the_history_of_a_deleted_key_ends_with_that(client: TestClient) -> None:
    found = answer(client, "/api/stores/counts/history", key="gone")
    assert [write["value"] and write["value"]["text"] for write in found["writes"]] == [None, "1"]


def test_changes_of_a_version_have_old_and_new(client: TestClient, standing: Live) -> None:
    shard = standing.shard_of("alpha")
    found = answer(client, f"/api/shards/0/{shard}/versions/2")
    changes = {change["key"]["text"]: change for change in found["changes"]}
    assert (changes["alpha"]["value"]["text"], changes["alpha"]["old"]["value"]["text"]) == ("2", "1")
    first = answer(client, f"/api/shards/0/{shard}/versions/1", limit=5)
    assert [change["old"] for change in first["changes"]] == [None] * 5
    rest = answer(client, f"/api/shards/0/{shard}/versions/1", limit=1000, page=first["page"])
    written = ["alpha", "gone", *(f"word-{number:03}" for number in range(120))]
    assert sorted(change["key"]["text"] for change in first["changes"] + rest["changes"]) == [
        key for key in written if standing.shard_of(key) == shard
    ]


def test_what_was_before_deltas_is_read_from_the_shard(tmp_path: Path, serving: Serving) -> None:
    made = counting(tmp_path)
    made.rescaled(1, "fewer")
    fewer = Live(tmp_path, made.topology, 1, name="fewer")
    fewer.pointers = made.opened("fewer").pointers
    fewer.commit({"alpha": counted("4", 4_000, source="later"), "new": counted("1", 1)})
    found = answer(serving(tmp_path / "fewer"), f"/api/shards/0/0/versions/{fewer.pointer(0).version}")
    old = {change["key"]["text"]: change["old"] for change in found["changes"]}
    assert old["alpha"]["value"]["text"] == "3"
    assert old["new"] is None


@pytest.mark.parametrize("store", ["plain", "timed", "headed", "windows", "sessions", "versions", "headed-versions"])
def test_stores_of_every_kind_are_shown(every_kind_of_store: Live, serving: Serving, store: str) -> None:
    client = serving(every_kind_of_store.home / every_kind_of_store.name)
    found = answer(client, f"/api/stores/{store}/entries", limit=1000)
    assert {entry["key"]["text"] for entry in found["entries"]} == {f"key-{number}" for number in range(20)}
    assert answer(client, f"/api/stores/{store}")["entries"] == len(found["entries"])
    of_key = answer(client, f"/api/stores/{store}/key", key="key-7")["entries"]
    assert len(of_key) == sum(entry["key"]["text"] == "key-7" for entry in found["entries"])
    parts, page = 0, {}
    while page is not None:
        part = answer(client, f"/api/stores/{store}/entries", limit=3, **page)
        parts += len(part["entries"])
        page = None if part["page"] is None else {"page": part["page"]}
    assert parts == len(found["entries"])
    history = answer(client, f"/api/stores/{store}/history", key="key-7")
    assert history["writes"]
    assert history["isWhole"]


def test_serdes_say_what_bytes_are(standing: Live, serving: Serving) -> None:
    client = serving(standing.home / standing.name, EntryEncoding("string", "json"))
    (found,) = answer(client, ENTRIES, key="alpha")["entries"]
    assert found["value"] == {"text": "3", "size": 1}
    (found,) = answer(client, ENTRIES, key="alpha", valueAs="bytes")["entries"]
    assert found["value"] == {"hex": b"3".hex(), "size": 1}


def test_hostile_content_is_data(client: TestClient) -> None:
    (found,) = answer(client, ENTRIES, key=HOSTILE_KEY)["entries"]
    assert (found["key"]["text"], found["value"]["text"]) == (HOSTILE_KEY, SCRIPT)
    assert [header["value"].get("hex") for header in found["headers"]] == [None, "00ff", None]
    raw = client.get(ENTRIES, params={"key": HOSTILE_KEY})
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-content-type-options"] == "nosniff"


def test_files_are_those_of_each_shard(client: TestClient) -> None:
    found = answer(client, "/api/files")
    assert [(shard["deltas"], shard["garbageBytes"]) for shard in found["shards"]] == [(3, 0), (3, 0)]
    assert found["isWhole"]


def test_the_description_is_of_all_paths(client: TestClient, standing: Live) -> None:
    described = answer(client, "/api/openapi.json")
    validate(described)
    service = Service(Follower(str(standing.home / standing.name)))
    paths = {route.path for route in service.routes() if isinstance(route, Route) and route.path.startswith("/api/")}
    assert {*described["paths"]} == paths


def test_the_stages_of_a_query_are_served_together(tmp_path: Path, serving: Serving) -> None:
    stages = [Live(tmp_path, word_counts(), 2, name="stage-0"), Live(tmp_path, every_kind(), 3, name="stage-1")]
    stages[0].commit({"alpha": counted("1", 5)})
    stages[1].commit({f"key-{number}": "1" for number in range(9)}, store="plain")
    client = serving(tmp_path)
    found = answer(client, "/api/overview")
    assert [(stage["stage"], stage["shards"], stage["batch"]) for stage in found["stages"]] == [(0, 2, 0), (1, 3, 0)]
    assert {node["stage"] for node in found["topology"]} == {0, 1}
    assert keys(answer(client, ENTRIES)) == ["alpha"]
    assert len(answer(client, "/api/stores/plain/entries")["entries"]) == 9
    assert answer(client, "/api/stores/plain/history", key="key-7")["stage"] == 1
    shard = stages[1].shard_of("key-7")
    changes = answer(client, f"/api/shards/1/{shard}/versions/1")["changes"]
    assert {change["store"] for change in changes} == {"plain"}
    stages[1].commit({"key-7": "2"}, store="plain")
    wait_until(lambda: answer(client, "/api/overview")["stages"][1]["batch"] == 1)
    assert answer(client, "/api/overview")["stages"][0]["batch"] == 0
    assert answer(client, "/api/stores/plain/key", key="key-7")["entries"][0]["value"]["text"] == "2"


def test_a_version_is_of_the_batch_that_made_it_or_of_none_that_was_seen(serving: Serving, live: Live) -> None:
    client = serving(live.home / live.name)
    shard = live.shard_of("a")
    elsewhere = next(key for key in "bcdefgh" if live.shard_of(key) != shard)
    live.commit({"a": counted("1", 9)}, publish=False)
    live.commit({elsewhere: counted("1", 9)})
    wait_until(lambda: answer(client, "/api/batches")["batches"][-1]["batch"] == 4)
    (changed,) = answer(client, "/api/batches")["batches"][-1]["changed"]
    assert changed["shard"] != shard
    history = "/api/stores/counts/history"
    assert [answer(client, history, key=key)["writes"][0]["batch"] for key in ("a", elsewhere)] == [None, 4]
    version = answer(client, f"/api/shards/0/{shard}/versions/{live.pointer(shard).version}")
    assert (version["changes"][0]["key"]["text"], version["batch"]) == ("a", None)


def test_a_new_batch_is_followed(serving: Serving, live: Live) -> None:
    client = serving(live.home / live.name)
    assert answer(client, "/api/stores/counts/key", key="fresh")["entries"] == []
    live.commit({"fresh": counted("1", 9)})
    wait_until(lambda: answer(client, "/api/batches")["batches"][-1]["batch"] == 3)
    (found,) = answer(client, "/api/stores/counts/key", key="fresh")["entries"]
    assert found["value"]["text"] == "1"
    (changed,) = answer(client, "/api/batches")["batches"][-1]["changed"]
    assert changed == {"shard": live.shard_of("fresh"), "version": live.pointer(live.shard_of("fresh")).version}
