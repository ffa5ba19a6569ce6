"""The paths, and what answers each. `Service` has one method for each; `application` puts the guard around them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from anyio import CancelScope, to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from statestore.bytestore.kinds.entry_scan import StoredEntry
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import StateStoreError
from statestore.format.values.stored_value import split_stored
from upgrade_tools.errors import StoreNotFoundError
from upgrade_tools.rows.entry_encoding import AS_FOUND, EntryEncoding
from upgrade_tools.rows.selection import Selection
from upgrade_tools.serve import answers, openapi
from upgrade_tools.serve.asking import DEFAULT_KEY_LIMIT, Asked
from upgrade_tools.serve.content import CUT_BYTES, WHOLE_BYTES, Document, entry_content
from upgrade_tools.serve.entries import PageBegin, Question, RefusedError, pairs_after, read_page
from upgrade_tools.serve.following import Follower, ServedStage
from upgrade_tools.serve.guard import Application, Guard
from upgrade_tools.serve.history import Shown, key_history, version_changes, versions_of
from upgrade_tools.serve.sampling import Samples

STATIC: Final = Path(__file__).parent / "static"
_NDJSON: Final = "application/x-ndjson"
_STREAMED_AT_ONCE: Final = 500
_HEARTBEAT_S: Final = 15.0
_WHOLE_ENTRIES: Final = 10
"""How many entries of a key are shown whole: it may have many windows or versions, with large values."""
_MOST_STREAMS: Final = 4
_MOST_SUBSCRIBERS: Final = 64


class Service:
    """Answers what is asked about the state that `follower` follows."""

    def __init__(self, follower: Follower, encoding: EntryEncoding = AS_FOUND) -> None:
        self.follower = follower
        self._encoding = encoding
        self._samples = Samples()
        self._files: tuple[list[str], Document] | None = None
        self._streams = 0
        self._subscribers = 0

    def routes(self) -> list[Route | Mount]:
        """Return all paths."""
        answered: dict[str, Callable[[Asked, Request], Awaitable[Any]]] = {
            "/api/overview": self.overview,
            "/api/stores": self.stores,
            "/api/stores/{store}": self.store,
            "/api/stores/{store}/entries": self.entries,
            "/api/stores/{store}/key": self.key,
            "/api/stores/{store}/value": self.value,
            "/api/stores/{store}/history": self.history,
            "/api/batches": self.batches,
            "/api/shards/{stage}/{shard}/versions/{version}": self.changes,
            "/api/files": self.files,
            "/api/events": self.events,
            "/api/openapi.json": self.openapi,
        }
        routes: list[Route | Mount] = [
            Route(path, partial(self._answer, path, answer), name=path) for path, answer in answered.items()
        ]
        return [*routes, Route("/", _page), Mount("/", StaticFiles(directory=STATIC))]

    async def _answer(
        self, path: str, answer: Callable[[Asked, Request], Awaitable[Any]], request: Request
    ) -> Response:
        try:
            asked = Asked(request.query_params, request.path_params, self._encoding)
            asked.refuse_unknown(openapi.parameters_of(path))
            found = await answer(asked, request)
        except RefusedError as refused:
            return JSONResponse({"error": str(refused), **refused.more}, refused.status)
        except StoreNotFoundError as error:
            known = ", ".join(sorted(error.known)) or "none"
            return JSONResponse({"error": f"there is no store {error.store!r}: known are {known}"}, 404)
        except (StateStoreError, OSError) as error:
            return JSONResponse({"error": str(error)}, 503)
        return found if isinstance(found, Response) else JSONResponse(found)

    async def overview(self, asked: Asked, request: Request) -> Document:
        """Return the whole at a glance."""
        return await self.follower.ask(answers.overview, self.follower, self._samples)

    async def stores(self, asked: Asked, request: Request) -> Document:
        """Return what is fixed of each store."""
        stages = self.follower.stages
        found = [answers.store_facts(stage, spec) for stage in stages for spec in stage.state.metadata.stores]
        return {"stores": found}

    async def store(self, asked: Asked, request: Request) -> Document:
        """Return a store's figures."""
        store = asked.path["store"]
        return await self.follower.ask(answers.store_figures, self.follower, self._samples, store, asked.encoding)

    async def entries(self, asked: Asked, request: Request) -> Document | Response:
        """Return a page of entries, or all of them as they are read."""
        stage, spec = self.follower.stage_of(asked.path["store"])
        question = asked.question(spec)
        if _NDJSON in request.headers.get("accept", ""):
            return self._streamed(stage, spec, question)
        return await self.follower.ask(_page_of, stage, spec, question, asked.text("page"), asked.limit())

    def _streamed(self, stage: ServedStage, spec: StoreSpec, question: Question) -> Response:
        if self._streams >= _MOST_STREAMS:
            raise RefusedError(503, f"{_MOST_STREAMS} streams of entries are open: ask again when one has ended")
        state = stage.state

        async def lines() -> AsyncIterator[bytes]:
            self._streams += 1  # not before: a client that leaves earlier never gets to `finally`
            try:
                # Opened anew: the follower goes on to other batches, and a stream is of one.
                own = await to_thread.run_sync(
                    ServedStage, stage.number, state.location, state.pointers, state.options.work_dir
                )
                try:
                    found = _entry_lines(own, spec, question)
                    while (line := await to_thread.run_sync(next, found, b"")) != b"":
                        yield line
                finally:
                    with CancelScope(shield=True):
                        await to_thread.run_sync(own.close)
            except (StateStoreError, OSError) as error:
                yield json.dumps({"error": str(error)}).encode() + b"\n"
            finally:
                self._streams -= 1

        return StreamingResponse(lines(), media_type=_NDJSON)

    async def key(self, asked: Asked, request: Request) -> Document:
        """Return all that a store has for a key, whole up to a limit."""
        stage, spec = self.follower.stage_of(asked.path["store"])
        key = asked.the_key()
        return await self.follower.ask(_all_of_key, stage, spec, key, asked.encoding, asked.limit(DEFAULT_KEY_LIMIT))

    async def value(self, asked: Asked, request: Request) -> Response:
        """Return the bytes of one value as they are."""
        stage, spec = self.follower.stage_of(asked.path["store"])
        place = asked.number("start", -(2**62)), asked.number("end", -(2**62))
        found = await self.follower.ask(_value, stage, spec, asked.the_key(), place)
        if found is None:
            raise RefusedError(404, f"there is no such entry in store {spec.name!r}")
        disposition = {"content-disposition": 'attachment; filename="value.bin"'}
        return Response(found, media_type="application/octet-stream", headers=disposition)

    async def history(self, asked: Asked, request: Request) -> Document:
        """Return who wrote a key."""
        stage, spec = self.follower.stage_of(asked.path["store"])
        key, before = asked.the_key(), asked.number("before", 1)
        shards = stage.state.parts_of(spec, key)
        shard = asked.number("shard")
        if shard is None and len(shards) > 1:
            shard = await self.follower.ask(_shard_with, stage, spec, key)
            if shard is None:
                raise RefusedError(400, "name the shard with the parameter shard: in this state a key does not tell it")
        number = shards[0] if shard is None else self._shard_of(stage, shard)
        found = await to_thread.run_sync(
            key_history, _shown(stage, asked.encoding), stage.state.pointers[number], spec, key, before
        )
        for write in found["writes"]:
            write["batch"] = self.follower.batch_of(stage.number, write.pop("delta"))
        return {"store": spec.name, "stage": stage.number, "shard": number, **found, **_at(stage)}

    async def changes(self, asked: Asked, request: Request) -> Document:
        """Return what a version of a shard has changed."""
        stage = self._stage(asked.in_path("stage"))
        shard, version = self._shard_of(stage, asked.in_path("shard")), asked.in_path("version")
        store, pointer = asked.text("store"), stage.state.pointers[shard]
        if store is not None and self.follower.stage_of(store)[0] is not stage:
            raise RefusedError(404, f"stage {stage.number} has no store {store!r}")
        shown = _shown(stage, asked.encoding)
        written = await to_thread.run_sync(versions_of, stage.state.location, pointer)
        found = next((each for each in written if each.version == version), None)
        if found is None:
            text = f"version {version} of shard {shard} is not retained, or not committed"
            raise RefusedError(404, text, versions=[each.version for each in written])
        skipped = asked.number("page") or 0
        changes = await to_thread.run_sync(version_changes, shown, pointer, found, store, skipped, asked.limit())
        return {
            "stage": stage.number,
            "shard": shard,
            "version": version,
            "versions": [each.version for each in written],
            "time": found.time_ms,
            "batch": self.follower.batch_of(stage.number, found.name),
            "changes": changes["changes"],
            "page": changes["next"],
        }

    async def batches(self, asked: Asked, request: Request) -> Document:
        """Return the batches that were seen, and those that the query has measured, oldest first."""
        return {
            "batches": [answers.batch_facts(batch) for batch in self.follower.batches],
            "recent": [batch for stage in self.follower.stages for batch in answers.recent_batches(stage)],
        }

    async def files(self, asked: Asked, request: Request) -> Document:
        """Return the files of the shards; listed once a batch."""
        at = [stage.at for stage in self.follower.stages]
        if self._files is None or self._files[0] != at:
            states = [stage.state for stage in self.follower.stages]
            self._files = at, await to_thread.run_sync(answers.files, states)
        return self._files[1]

    async def events(self, asked: Asked, request: Request) -> Response:
        """Return server-sent events: the batch that is served, and each later one."""
        if self._subscribers >= _MOST_SUBSCRIBERS:
            raise RefusedError(503, f"{_MOST_SUBSCRIBERS} clients follow already: ask again when one has left")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._event_lines(), media_type="text/event-stream", headers=headers)

    async def _event_lines(self) -> AsyncIterator[bytes]:
        self._subscribers += 1
        try:
            with self.follower.subscribed() as queue:
                for stage in self.follower.stages:
                    seen = (batch for batch in reversed(self.follower.batches) if batch.stage == stage.number)
                    yield _event("batch", answers.batch_facts(next(seen)))
                while True:
                    try:
                        batch = await asyncio.wait_for(queue.get(), _HEARTBEAT_S)
                    except asyncio.TimeoutError:
                        yield b": still here\n\n"
                        continue
                    if batch is None:
                        yield _event("problem", {"problem": self.follower.problem})
                    else:
                        yield _event("batch", answers.batch_facts(batch))
        finally:
            self._subscribers -= 1

    async def openapi(self, asked: Asked, request: Request) -> Document:
        """Return the description of all paths."""
        return openapi.description()

    def _stage(self, number: int) -> ServedStage:
        if number >= len(self.follower.stages):
            raise RefusedError(404, f"there is no stage {number}, only {len(self.follower.stages)} from 0")
        return self.follower.stages[number]

    def _shard_of(self, stage: ServedStage, shard: int) -> int:
        if shard not in stage.state.parts:
            raise RefusedError(404, f"there is no shard {shard}, only {len(stage.state.parts)} from 0")
        return shard


def application(service: Service, *, token: str | None = None, only_loopback: bool = True) -> Application:
    """Return the ASGI application, which follows the state while it is up."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(service.follower.follow())
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            await to_thread.run_sync(service.follower.close)

    handlers: Any = {404: _not_found, Exception: _failed}
    inner = Starlette(routes=service.routes(), lifespan=lifespan, exception_handlers=handlers)
    return Guard(inner, token=token, only_loopback=only_loopback)


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _not_found(request: Request, _: Exception) -> Response:
    return JSONResponse({"error": f"there is nothing at {request.url.path[:200]}"}, 404)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the request failed: see the log of the server, which goes on"}, 500)


def _at(stage: ServedStage) -> Document:
    return {"batch": None if stage.head is None else stage.head.batch}


def _event(kind: str, document: Document) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(document)}\n\n".encode()


def _shown(stage: ServedStage, encoding: EntryEncoding) -> Shown:
    state = stage.state
    return Shown(state.location, state.metadata, state.options.work_dir, encoding)


def _page_of(stage: ServedStage, spec: StoreSpec, question: Question, token: str | None, limit: int) -> Document:
    begin = PageBegin() if token is None else PageBegin.of_token(token, stage.at, question, spec.name)
    page = read_page(stage, spec, question, begin, limit)
    following = None if page.next is None else page.next.token(stage.at, question)
    found: Document = {"store": spec.name, "entries": page.entries, "read": page.read, "page": following, **_at(stage)}
    if not page.entries and following is None:
        further = "" if token is None else " further"
        found["note"] = f"nothing{further} was found in {page.read} rows"
    return found


def _entry_lines(stage: ServedStage, spec: StoreSpec, question: Question) -> Iterator[bytes]:
    place: PageBegin | None = PageBegin()
    while place is not None:
        page = read_page(stage, spec, question, place, _STREAMED_AT_ONCE)
        if page.entries:
            yield "".join(f"{json.dumps(entry)}\n" for entry in page.entries).encode()
        place = page.next


def _all_of_key(stage: ServedStage, spec: StoreSpec, key: bytes, encoding: EntryEncoding, limit: int) -> Document:
    question = Question(Selection(key=key), encoding=encoding)
    found: list[Document] = []
    is_more = False
    for shard, entry in _entries_of_key(stage, spec, question):
        if len(found) >= limit:
            is_more = True
            break
        found.append(entry_content(shard, entry, encoding, WHOLE_BYTES if len(found) < _WHOLE_ENTRIES else CUT_BYTES))
    return {"store": spec.name, "entries": found, "more": is_more, **_at(stage)}


def _shard_with(stage: ServedStage, spec: StoreSpec, key: bytes) -> int | None:
    return next((shard for shard, _ in _entries_of_key(stage, spec, Question(Selection(key=key)))), None)


def _entries_of_key(stage: ServedStage, spec: StoreSpec, question: Question) -> Iterator[tuple[int, StoredEntry]]:
    layout, key = layout_of(spec), question.selection.key
    assert key is not None
    shards = stage.state.parts_of(spec, key)
    for shard in shards:
        store = stage.shard(shard)[spec.name].bytes
        for entry_key, start_ms, end_ms, stored in layout.entries(pairs_after(layout, store, question, None)):
            yield shard, StoredEntry(entry_key, start_ms, end_ms, *split_stored(spec.format, stored))


def _value(stage: ServedStage, spec: StoreSpec, key: bytes, place: tuple[int | None, int | None]) -> bytes | None:
    for _, entry in _entries_of_key(stage, spec, Question(Selection(key=key))):
        if (entry.start_ms, entry.end_ms) == place or place == (None, None):
            return entry.value
    return None
