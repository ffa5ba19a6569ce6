"""Entries of a store in pages. A page ends when it is full, or when its time is over; its token goes on from there."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from statestore.bytestore.header_index import key_finder, pairs_of
from statestore.bytestore.kinds.entry_scan import StoredEntry, segment_prefixes
from statestore.bytestore.kinds.kind_layout import KindLayout, layout_of
from statestore.bytestore.kinds.segments import segment_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.values.stored_value import split_stored
from statestore.recovery.location.durable_json import digest
from statestore.recovery.restore.restore import CommittedStore
from statestore.stores.segment_columns import upper_bound
from upgrade_tools.rows.entry_encoding import AS_FOUND, EntryEncoding
from upgrade_tools.rows.selection import Selection
from upgrade_tools.serve.content import Document, entry_content
from upgrade_tools.serve.following import ServedStage

PAGE_S: Final = 1.0
_LOOK_EVERY: Final = 64
"""Pairs between two looks at the clock."""


class RefusedError(Exception):
    """A request can't be answered; its text says why. `more` is what its answer has beside that."""

    def __init__(self, status: int, text: str, **more: Any) -> None:
        super().__init__(text)
        self.status = status
        self.more = more


@dataclass(frozen=True)
class Question:
    """Which entries are asked for, and how they are shown."""

    selection: Selection
    first_key: bytes | None = None
    last_key: bytes | None = None
    """The last key, inclusive."""
    encoding: EntryEncoding = AS_FOUND

    @property
    def identity(self) -> str:
        """A short text that another selection does not have."""
        return digest(repr((self.selection, self.first_key, self.last_key)).encode())[:12]

    def matches(self, spec: StoreSpec, entry: StoredEntry) -> bool:
        """Return whether an entry is asked for. Raises FormatError for its headers."""
        if self.first_key is not None and entry.key < self.first_key:
            return False
        if self.last_key is not None and entry.key > self.last_key:
            return False
        return self.selection.matches(spec, entry)


@dataclass(frozen=True)
class PageBegin:
    """Where a page ended: in which shard, and behind which physical key."""

    shard: int = 0
    after: bytes | None = None

    def token(self, at: str, question: Question) -> str:
        """Return the token of the next page."""
        fields = [at, question.identity, self.shard, None if self.after is None else self.after.hex()]
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")

    @classmethod
    def of_token(cls, token: str, at: str, question: Question, store: str) -> PageBegin:
        """Return where a token goes on. Raises RefusedError, which replaces a token of another batch."""
        try:
            fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            of_batch, of_question, shard, after = fields
            place = cls(whole_number(shard, 0), None if after is None else bytes.fromhex(after))
        except MALFORMED as cause:
            raise RefusedError(400, "page is not a token of an earlier answer: begin without it") from cause
        if of_question != question.identity:
            raise RefusedError(400, f"page is of another question about {store!r}: begin without it")
        if of_batch != at:
            text = (
                "page is of another batch: the state has gone on. Begin without it, or go on with the page given here"
            )
            raise RefusedError(409, text, page=place.token(at, question))
        return place


@dataclass
class Page:
    """Entries, and where the next page begins."""

    entries: list[Document] = field(default_factory=list)
    read: int = 0
    """How many pairs of the store were read for it."""
    next: PageBegin | None = None
    """None if there is no more."""


def read_page(stage: ServedStage, spec: StoreSpec, question: Question, begin: PageBegin, limit: int) -> Page:
    """Return a page read in about a second: `limit` entries, or more if the last pair holds several versions."""
    deadline = time.monotonic() + PAGE_S
    page, key = Page(), question.selection.key
    for shard in stage.state.parts_of(spec, key):
        if shard < begin.shard:
            continue
        place = begin if shard == begin.shard else PageBegin(shard)
        if time.monotonic() > deadline and shard > begin.shard:
            page.next = place
            break
        store = stage.shard(shard)[spec.name]
        page.next = _read_shard(store, question, place, page, limit, deadline)
        if page.next is not None:
            break
    return page


def _read_shard(
    store: CommittedStore, question: Question, place: PageBegin, page: Page, limit: int, deadline: float
) -> PageBegin | None:
    """Add what is found in a shard to a page; return where to go on in it, None at its end."""
    layout = layout_of(store.spec)
    for number, pair in enumerate(pairs_after(layout, store.bytes, question, place.after), 1):
        for key, start_ms, end_ms, stored in layout.entries([pair]):
            entry = StoredEntry(key, start_ms, end_ms, *split_stored(store.spec.format, stored))
            if question.matches(store.spec, entry):
                page.entries.append(entry_content(place.shard, entry, question.encoding))
        page.read += 1
        if len(page.entries) >= limit or (number % _LOOK_EVERY == 0 and time.monotonic() > deadline):
            return PageBegin(place.shard, pair[0])
    return None


def pairs_after(layout: KindLayout, store: ByteStore, question: Question, after: bytes | None) -> Iterator[Pair]:
    """Yield the pairs that may be asked for, in the store's order, behind the physical key `after`."""
    key = question.selection.key
    find = key_finder(store, question.selection.headers)
    for segment in segment_prefixes(layout, store, question.selection.bounds(layout)):
        if after is not None and segment < after[: len(segment)]:
            continue
        if key is not None:
            yield from (pair for pair in layout.pairs_of_key(store, segment, key) if after is None or pair[0] > after)
            continue
        if (found := find(segment)) is not None:
            yield from pairs_of(store, (each for each in found if after is None or each > after))
            continue
        begin = max(segment + (question.first_key or b""), segment + (question.selection.prefix or b""))
        if after is not None:
            begin = max(begin, after + b"\x00")
        last = None if question.last_key is None else _last_place(layout, segment, question.last_key)
        prefix = segment + (question.selection.prefix or b"")
        for pair in store.range(begin, last):
            if not pair[0].startswith(prefix):
                break
            yield pair


def _last_place(layout: KindLayout, segment: bytes, last_key: bytes) -> bytes:
    """Return a physical key that no entry of a segment is behind whose key is `last_key` or before it."""
    if not layout.suffix_size:
        return segment + last_key
    _, interval_ms = layout.spec.retention
    latest_ms = min((segment_of(segment) + 1) * interval_ms - 1, MAX_TIME_MS)
    times = latest_ms.to_bytes(8, "big").ljust(layout.suffix_size, b"\xff")
    return segment + upper_bound(last_key, times)
