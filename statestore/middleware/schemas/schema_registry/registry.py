"""SchemaRegistry: what keeps schemas under ids, and is asked once for each.

A process keeps what a registry told it, up to a number of schemas; copies of the registry share that. A missing schema
is remembered only for a while, as it may still come.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Final, NoReturn
from uuid import uuid4

from statestore.connect.recently_used import RecentlyUsed
from statestore.errors import DataException, SerializationError, StateStoreError
from statestore.errors.middleware import IncompatibleSchemaError, RegistryUnavailableError, SchemaNotFoundError
from statestore.middleware.schemas.schema_registry.ids import RegisteredSchema, SchemaId, SchemaIds
from statestore.middleware.schemas.schema_registry.kinds import parse_schema
from statestore.middleware.schemas.schema_registry.parsed_schema import ParsedSchema

_KEPT_SCHEMAS: Final = 1000
_KEPT_REGISTRIES: Final = 64
_LONGEST_PROBLEM: Final = 300
_USER_INFO: Final = re.compile(r"//[^/@\s]*@")


class SchemaRegistry(ABC):
    """Keeps schemas under ids. A subclass says how to ask it; who reads and writes calls `get` and `deposit_if_new`.

    Picklable, if the subclass is: its copies share what a process knows of the registry.
    """

    missing_is_kept_ms: int = 30_000
    """For how long a process believes that the registry has no schema of an id."""
    clock: Callable[[], float] = staticmethod(time.monotonic)
    """Seconds, for the above."""

    def __init__(self) -> None:
        self._token = uuid4().hex

    @abstractmethod
    def deposit(self, subject: str, schema: RegisteredSchema) -> SchemaIds:
        """Deposit a schema for a subject, if it is not there, and return its ids.

        Raises SchemaRejectedError if the registry refuses it. Whatever else it raises means that it can't be asked.
        """

    @abstractmethod
    def fetch(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Return the schema with an id; None if the registry answers that it has none.

        Raises IncompatibleSchemaError if it can't be read with. Whatever else it raises means that it can't be asked.
        """

    def subject_of(self, topic: str | None, name: str | None, *, for_key: bool) -> str | None:
        """Return what a schema is deposited for by its topic, None in a store, and its full name; None if it has none.

        As Confluent's TopicNameStrategy; a schema in a store goes by its name.
        """
        return name if topic is None else f"{topic}-{'key' if for_key else 'value'}"

    def connect(self) -> Any:
        """Return what `connection` is to be in a process, which has `close`; called when that is asked for first."""
        return None

    @property
    def connection(self) -> Any:
        """What `connect` returned, which neither pickles nor copies of the registry hold."""
        known = self._known()
        if known.connection is None:
            known.connection = self.connect()
        return known.connection

    def latest(self, subject: str) -> SchemaIds | None:
        """Return the ids of the latest schema of a subject, and itself; None if one's own schemas are written with.

        Raises as `deposit` does.
        """
        return None

    def deposit_if_new(self, subject: str, schema: RegisteredSchema | None) -> SchemaIds:
        """Return the ids of a schema, deposited for a subject unless the process knows that it was.

        They are of the latest schema, if that is written with; else there must be one. Raises SerializationError,
        SchemaRejectedError, and RegistryUnavailableError.
        """
        named = subject, schema
        ids: SchemaIds = self._known().ids.get(named, lambda: self._asked(self._ids_of, *named))
        return ids

    def _ids_of(self, subject: str, schema: RegisteredSchema | None) -> SchemaIds:
        if (ids := self.latest(subject)) is not None:
            return ids
        if schema is None:
            raise SerializationError("this serde only reads: give it the schema to write with")
        return self.deposit(subject, schema)

    def get(self, schema_id: SchemaId) -> ParsedSchema:
        """Return the schema with an id.

        Raises SchemaNotFoundError if the registry has none, IncompatibleSchemaError if it can't be read with, and
        RegistryUnavailableError.
        """
        known = self._known()
        found: ParsedSchema | None = known.schemas.find(schema_id)
        if found is None:
            asked_at, error = known.refused.find(schema_id) or (0, None)
            if error is not None and (self.clock() - asked_at) * 1000 < self.missing_is_kept_ms:
                raise copy(error)
            try:
                found = self._read(schema_id)
            except (SchemaNotFoundError, IncompatibleSchemaError) as refused:
                known.refused.put(schema_id, (self.clock(), refused))
                raise
            known.schemas.put(schema_id, found)
        return found

    def close(self) -> None:
        """Forget what the registry told this process, for its copies too, and close the connection."""
        connection = self._known().connection
        _REGISTRIES.forget(self._token)
        if connection is not None:
            connection.close()

    def _read(self, schema_id: SchemaId) -> ParsedSchema:
        if (registered := self._asked(self.fetch, schema_id)) is None:
            raise SchemaNotFoundError(str(schema_id))
        try:
            return parse_schema(registered)
        except DataException as cause:
            raise IncompatibleSchemaError(f"the schema with the {schema_id} can't be read with: {cause}") from cause

    def _asked(self, ask: Callable[..., Any], *of: Any) -> Any:
        try:
            return ask(*of)
        except StateStoreError:
            raise
        except Exception as cause:
            self.refuse_service(f"{type(cause).__name__}: {cause}", cause)

    def refuse_service(self, problem: str, cause: Exception | None = None) -> NoReturn:
        """Raise RegistryUnavailableError, without the users and passwords that addresses in the problem hold."""
        shown = _USER_INFO.sub("//", problem)[:_LONGEST_PROBLEM]
        raise RegistryUnavailableError(repr(self), problem=shown) from cause

    def _known(self) -> _Known:
        known: _Known = _REGISTRIES.get(self._token, _Known)
        return known

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Known:
    def __init__(self) -> None:
        self.ids = RecentlyUsed(_KEPT_SCHEMAS)
        self.schemas = RecentlyUsed(_KEPT_SCHEMAS)
        self.refused = RecentlyUsed(_KEPT_SCHEMAS)
        self.connection: Any = None


_REGISTRIES: Final = RecentlyUsed(_KEPT_REGISTRIES)


def schema_md5(schema: str) -> bytes:
    """Return the MD5 of a schema in JSON: of its text in UTF-8 without blanks, the names in each object sorted.

    All that a schema says counts, defaults, documentation and logical types among it: Avro's parsing canonical form,
    which leaves those out, would give one id to schemas under which the same bytes are different values.
    """
    text = json.dumps(json.loads(schema), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.md5(text.encode(), usedforsecurity=False).digest()
