"""What a request asks for: parameters of its address, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import SerializationError
from statestore.format.serde import standard_serde
from upgrade_tools.rows.entry_encoding import EntryEncoding, bytes_in
from upgrade_tools.rows.selection import HeaderCondition, Selection
from upgrade_tools.serve.entries import Question, RefusedError

MAX_LIMIT: Final = 1_000
DEFAULT_LIMIT: Final = 50
DEFAULT_KEY_LIMIT: Final = 100


class Parameters(Protocol):
    """The parameters of an address."""

    def get(self, key: str, /) -> str | None:
        """Return a parameter, None if it was not given."""

    def getlist(self, key: str, /) -> list[str]:
        """Return all that were given of one name."""

    def keys(self) -> Iterable[str]:
        """Return the names."""


class Asked:
    """The parameters of a request. Every method raises RefusedError for what is wrong."""

    def __init__(self, parameters: Parameters, path: Mapping[str, str], encoding: EntryEncoding) -> None:
        self._parameters = parameters
        self.path = path
        key_as, value_as = parameters.get("keyAs"), parameters.get("valueAs")
        try:
            self.encoding = EntryEncoding(
                encoding.key if not key_as else standard_serde(key_as).name,
                encoding.value if not value_as else standard_serde(value_as).name,
            )
        except ValueError as cause:
            raise RefusedError(400, f"keyAs or valueAs: {cause}") from cause

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Refuse parameters that the path does not have: a misspelt condition would match everything."""
        unknown = sorted({*self._parameters.keys()} - {*known})
        if unknown:
            takes = ", ".join(sorted(known)) or "none"
            raise RefusedError(400, f"there is no parameter {unknown[0][:50]!r} here: it takes {takes}")

    def text(self, name: str) -> str | None:
        """Return a parameter; None if it is missing or empty."""
        return self._parameters.get(name) or None

    def number(self, name: str, least: int = 0) -> int | None:
        """Return a whole number, at least `least`; None if it is missing or empty."""
        given = self.text(name)
        if given is None:
            return None
        digits = given.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18):
            raise RefusedError(400, f"{name} must be a whole number, not {given[:50]!r}")
        if int(given) < least:
            raise RefusedError(400, f"{name} must be at least {least}, not {given}")
        return int(given)

    def limit(self, default: int = DEFAULT_LIMIT) -> int:
        """Return how many are wanted at once, at most MAX_LIMIT."""
        given = self.number("limit", 1)
        return default if given is None else min(given, MAX_LIMIT)

    def in_path(self, name: str) -> int:
        """Return a number of the path."""
        given = self.path[name]
        if not (given.isascii() and given.isdecimal() and len(given) <= 12):
            raise RefusedError(404, f"{name} must be a number, not {given[:50]!r}")
        return int(given)

    def key(self) -> bytes | None:
        """Return the key that is asked for, by `key` as text or by `id` in hex."""
        identity = self.text("id")
        if identity is None:
            return self.bytes("key", self.encoding.key)
        try:
            return bytes.fromhex(identity.removeprefix("0x"))
        except ValueError as cause:
            raise RefusedError(400, f"id is not hex: {cause}") from cause

    def the_key(self) -> bytes:
        """Return the key that is asked for, which must be given."""
        key = self.key()
        if key is None:
            raise RefusedError(400, "say which key: with key, as text, or with id, in hex")
        return key

    def bytes(self, name: str, encoding: str | None = None) -> bytes | None:
        """Return the bytes that a text stands for."""
        given = self.text(name)
        return None if given is None else _bytes_in(name, given, encoding)

    def question(self, spec: StoreSpec) -> Question:
        """Return which entries of a store are asked for."""
        conditions = []
        for text in self._parameters.getlist("header"):
            name, equals, value = text.partition("=")
            if text:
                if name.startswith("0x"):
                    name = _bytes_in("header", name, None).decode(errors="replace")
                conditions.append(HeaderCondition(name, _bytes_in("header", value, None) if equals else None))
        selection = Selection(
            key=self.key(),
            prefix=self.bytes("prefix"),
            time_from_ms=self.number("timeFrom", -(10**18)),
            time_to_ms=self.number("timeTo", -(10**18)),
            headers=tuple(conditions),
        )
        try:
            selection.check(spec)
        except ValueError as problem:
            raise RefusedError(400, str(problem)) from problem
        encoding = self.encoding.key
        return Question(selection, self.bytes("from", encoding), self.bytes("to", encoding), self.encoding)


def _bytes_in(name: str, text: str, encoding: str | None) -> bytes:
    try:
        return bytes_in(text, encoding)
    except (ValueError, SerializationError) as cause:
        raise RefusedError(400, f"{name}: {cause}") from cause
