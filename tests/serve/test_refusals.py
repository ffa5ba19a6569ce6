"""What can't be answered is said in words, and what is served goes on."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import Serving
from tests.serve.test_answers import ENTRIES, answer
from tests.support.serve.live import Live, counted
from tests.support.serve.serving import wait_until


def refused(client: TestClient, path: str, status: int, *words: str, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = answer(client, path, status, **asked)
    assert [word for word in words if word not in found["error"]] == [], found["error"]
    assert answer(client, "/api/stores")["stores"], "it goes on"
    return found


@pytest.mark.parametrize(
    ("path", "asked", "status", "words"),
    [
        ("/api/stores/none", {}, 404, ("'none'", "counts")),
        ("/api/stores/none/entries", {}, 404, ("'none'",)),
        ("/api/nothing", {}, 404, ("nothing at /api/nothing",)),
        (ENTRIES, {"heeder": "a"}, 400, ("'heeder'", "header")),
        (ENTRIES, {"limit": "many"}, 400, ("limit", "'many'")),
        (ENTRIES, {"limit": "0"}, 400, ("limit", "at least 1")),
        (ENTRIES, {"key": "0xzz"}, 400, ("key", "hex")),
        (ENTRIES, {"id": "zz"}, 400, ("id", "hex")),
        (ENTRIES, {"keyAs": "avro"}, 400, ("keyAs", "avro")),
        (ENTRIES, {"key": "x", "keyAs": "int64"}, 400, ("key", "x")),
        (ENTRIES, {"page": "!!!"}, 400, ("page", "begin without it")),
        ("/api/stores/counts/key", {}, 400, ("which key",)),
        ("/api/stores/counts/value", {"key": "nobody"}, 404, ("no such entry",)),
        ("/api/shards/9/0/versions/1", {}, 404, ("stage 9",)),
        ("/api/shards/0/9/versions/1", {}, 404, ("shard 9",)),
        ("/api/shards/0/0/versions/99", {}, 404, ("version 99", "not retained")),
        ("/api/shards/0/x/versions/1", {}, 404, ("shard", "'x'")),
    ],
)
def test_a_wrong_question_is_answered_in_words(
    client: TestClient, path: str, asked: dict[str, Any], status: int, words: tuple[str, ...]
) -> None:
    refused(client, path, status, *words, **asked)


def test_a_header_that_nothing_has_gives_nothing(client: TestClient) -> None:
    found = answer(client, ENTRIES, header="nowhere=1")
    assert (found["entries"], found["note"]) == ([], "nothing was found in 123 rows")
    assert "note" not in answer(client, ENTRIES, header="tenant")


def test_a_page_token_that_was_changed_is_refused(client: TestClient) -> None:
    fields = json.loads(base64.urlsafe_b64decode(answer(client, ENTRIES, limit=1)["page"] + "=="))
    changed = [json.dumps([*fields[:2], shard, fields[3]]) for shard in (-1, 1e400, True, 1.5, None, "0", 10**30)]
    changed += [json.dumps([*fields[:3], after]) for after in ("zz", 5, [])]
    for token in [*changed, "[" * 15_000, "{}", "1"]:
        page = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
        refused(client, ENTRIES, 400, "page", limit=1, page=page)


def test_an_empty_key_has_a_name(serving: Serving, live: Live) -> None:
    live.commit({"": counted("empty", 9)})
    client = serving(live.home / live.name)
    (entry,) = answer(client, ENTRIES, to="0x")["entries"]
    assert (entry["key"]["size"], entry["value"]["text"]) == (0, "empty")
    asked = {"id": entry["key"]["id"]}
    assert answer(client, ENTRIES, **asked)["entries"] == [entry]
    assert answer(client, "/api/stores/counts/key", **asked)["entries"][0]["value"]["text"] == "empty"
    assert answer(client, "/api/stores/counts/history", **asked)["writes"][0]["value"]["text"] == "empty"


def test_a_page_of_another_batch_can_be_gone_on_with(serving: Serving, live: Live) -> None:
    client = serving(live.home / live.name)
    first = answer(client, ENTRIES, limit=5)
    live.commit({"fresh": counted("1", 9)})
    wait_until(lambda: answer(client, "/api/batches")["batches"][-1]["batch"] == 3)
    found = refused(client, ENTRIES, 409, "another batch", limit=5, page=first["page"])
    rest = answer(client, ENTRIES, limit=1000, page=found["page"])
    before = {entry["key"]["id"] for entry in first["entries"]}
    assert before.isdisjoint(entry["key"]["id"] for entry in rest["entries"])
    assert len(rest["entries"]) >= 123 - 5


def test_a_page_of_another_question_is_refused(client: TestClient) -> None:
    first = answer(client, ENTRIES, limit=5)
    refused(client, ENTRIES, 400, "another question", page=first["page"], prefix="w")


def test_a_damaged_head_leaves_what_was_read(serving: Serving, live: Live) -> None:
    client = serving(live.home / live.name)
    heads = live.home / live.name / "heads"
    (heads / f"00000001-{7:012}-run-1.json").write_text("{}")
    wait_until(lambda: answer(client, "/api/overview")["problem"] is not None)
    assert "is not a readable head" in answer(client, "/api/overview")["problem"]
    assert len(answer(client, ENTRIES, limit=1000)["entries"]) == 123


def test_a_location_that_vanishes_is_an_error_of_the_requests(live: Live, serving: Serving) -> None:
    place = live.home / live.name
    client = serving(place)
    moved = place.rename(live.home / "elsewhere")
    found = refused(client, "/api/stores/counts", 503, "shards/0000")
    assert found
    shutil.copytree(moved, place)
    assert answer(client, "/api/stores/counts")["entries"] == 123


def test_who_goes_before_a_stream_begins_takes_no_place(client: TestClient) -> None:
    async def gone(message: Any = None) -> Any:
        raise OSError("the client has gone")

    headers = [(b"host", b"localhost"), (b"accept", b"application/x-ndjson")]
    scope = {"type": "http", "method": "GET", "path": ENTRIES, "headers": headers, "query_string": b""}
    for _ in range(5):
        with pytest.raises(Exception, match=r"^$|gone"):
            asyncio.run(client.app({**scope, "asgi": {"spec_version": "2.4"}}, gone, gone))
    found = client.get(ENTRIES, headers={"accept": "application/x-ndjson"})
    assert (found.status_code, len(found.text.splitlines())) == (200, 123)


def test_only_get_is_answered(client: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/api/overview").status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8471", "127.0.0.1.evil.example", ""])
def test_a_name_that_is_not_this_machines_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/api/overview", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.1.2.3", "127.0.0.1:80", "[::1]:80", "[::1]"])
def test_this_machines_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/api/stores", headers={"host": host}).status_code == 200


def test_pages_of_other_sites_get_nothing(client: TestClient) -> None:
    assert client.get("/api/stores", headers={"sec-fetch-site": "cross-site"}).status_code == 403


@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", "Basic right", "Bearer r\u00efght"])
def test_without_the_token_there_are_no_answers(standing: Live, serving: Serving, given: str | None) -> None:
    client = serving(standing.home / standing.name, token="right", only_loopback=False)
    headers = {} if given is None else {"authorization": given.encode("latin-1")}
    found = client.get("/api/stores", headers=headers)  # type: ignore[arg-type]
    assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")
    assert "token" in found.json()["error"]
    assert client.get("/api/stores", headers={"authorization": "Bearer right"}).status_code == 200


def test_every_answer_has_the_policy(client: TestClient) -> None:
    for path in ("/", "/api/stores", "/api/nothing", "/style.css"):
        found = client.get(path)
        assert found.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert found.headers["x-content-type-options"] == "nosniff"
