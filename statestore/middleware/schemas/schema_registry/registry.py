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
from typing import Any, Final, NamedTuple, NoReturn
from uuid import uuid4

from statestore.connect.converters.avro.avro_datum import AvroSchema, avro_schema
from statestore.connect.recently_used import RecentlyUsed
from statestore.errors import DataException, StateStoreError
from statestore.errors.middleware import IncompatibleSchemaError, RegistryUnavailableError, SchemaNotFoundError
from statestore.middleware.schemas.schema_registry.ids import SchemaId, SchemaIds

_KEPT_SCHEMAS: Final = 1000
_KEPT_REGISTRIES: Final = 64
_LONGEST_PROBLEM: Final = 300
_USER_INFO: Final = re.compile(r"//[^/@\s]*@")


class RegisteredSchema(NamedTuple):
    """A schema as a registry has it."""

    text: str
    """The schema in JSON."""
    references: tuple[tuple[str, str], ...] = ()
    """Names and texts of the schemas that it names, each after those that it names itself."""


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
    def deposit(self, subject: str, schema: str) -> SchemaIds:
        """Deposit a schema for a subject, if it is not there, and return its ids.

        Raises SchemaRejectedError if the registry refuses it. Whatever else it raises means that it can't be asked.
        """

    @abstractmethod
    def fetch(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Return the schema with an id; None if the registry answers that it has none.

        Raises IncompatibleSchemaError if it is not one of Avro. Whatever else it raises means that it can't be asked.
        """

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

    def deposit_if_new(self, subject: str, schema: str) -> SchemaIds:
        """Return the ids of a schema in JSON, deposited for a subject unless the process knows that it was.

        Raises SchemaRejectedError, and RegistryUnavailableError.
        """
        named = subject, schema
        ids: SchemaIds = self._known().ids.get(named, lambda: self._asked(self.deposit, *named))
        return ids

    def get(self, schema_id: SchemaId) -> AvroSchema:
        """Return the schema with an id.

        Raises SchemaNotFoundError if the registry has none, IncompatibleSchemaError if Avro can't read with that, and
        RegistryUnavailableError.
        """
        known = self._known()
        found: AvroSchema | None = known.schemas.find(schema_id)
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

    def _read(self, schema_id: SchemaId) -> AvroSchema:
        if (registered := self._asked(self.fetch, schema_id)) is None:
            raise SchemaNotFoundError(str(schema_id))
        try:
            return avro_schema(*registered)
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
