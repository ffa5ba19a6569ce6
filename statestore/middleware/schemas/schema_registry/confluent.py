"""ConfluentRegistry: a registry that speaks Confluent's protocol, through confluent-kafka's client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from statestore.errors.middleware import IncompatibleSchemaError, SchemaRejectedError
from statestore.middleware.extras import extra
from statestore.middleware.schemas.schema_registry.ids import SchemaId, SchemaIds
from statestore.middleware.schemas.schema_registry.registry import RegisteredSchema, SchemaRegistry

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_DEFAULTS: Final = {"timeout": 10}
"""Seconds: the client would wait for ever."""
_MOST_REFERENCES: Final = 100
_REJECTED: Final = frozenset({409, 422})


class ConfluentRegistry(SchemaRegistry):
    """Confluent's schema registry, and others that speak its protocol; ids are numbers and GUIDs.

    `mock://` and anything makes one in the process, for tests.
    """

    def __init__(
        self, config: str | Mapping[str, Any] | Callable[[], Mapping[str, Any]], *, auto_register: bool = True
    ) -> None:
        """Take an address, or the properties of SchemaRegistryClient, or what returns those on the machine that asks.

        Properties travel to the executors, and are shown nowhere. Without `auto_register` schemas have to be there.
        """
        super().__init__()
        self._config = {"url": config} if isinstance(config, str) else config
        self.auto_register = auto_register

    def connect(self) -> SchemaRegistryClient:
        """Return the client. Raises ExtraMissingError for want of confluent-kafka, and what the client raises."""
        with extra("schema-registry"):
            from confluent_kafka.schema_registry import SchemaRegistryClient
        config = self._config() if callable(self._config) else self._config
        return SchemaRegistryClient.new_client({**_DEFAULTS, **config})

    def deposit(self, subject: str, schema: str) -> SchemaIds:
        """Register a schema, or without `auto_register` look it up."""
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        asked = self.connection.register_schema_full_response if self.auto_register else self.connection.lookup_schema
        try:
            found = asked(subject, Schema(schema, "AVRO"))
        except SchemaRegistryError as answer:
            if answer.http_status_code not in _REJECTED and not _is_missing(answer):
                raise
            problem = "it is not there" if _is_missing(answer) else str(answer.error_message)[:300]
            raise SchemaRejectedError(subject, problem=problem) from answer
        return SchemaIds(found.schema_id, None if found.guid is None else UUID(found.guid).bytes)

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Return the schema with a number or a GUID, with all those that it names."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        if schema_id.form == "md5":
            return None
        try:
            if isinstance(schema_id.value, int):
                schema = self.connection.get_schema(schema_id.value)
            else:
                schema = self.connection.get_schema_by_guid(str(UUID(bytes=schema_id.value)))
        except SchemaRegistryError as answer:
            if _is_missing(answer):
                return None
            raise
        return RegisteredSchema(_text(schema), self._references(schema))

    def _references(self, schema: Schema) -> tuple[tuple[str, str], ...]:
        """Return the schemas that one names, the innermost first."""
        found: dict[str, str] = {}
        waiting = [(each, False) for each in reversed(schema.references or [])]
        seen: dict[str, Any] = {}
        while waiting:
            reference, is_settled = waiting.pop()
            name = str(reference.name)
            if is_settled:
                found[name] = _text(seen[name])
            elif name not in seen:
                if len(seen) == _MOST_REFERENCES:
                    raise IncompatibleSchemaError(f"a schema names more than {_MOST_REFERENCES} others")
                # A version stays readable for the schemas that name it, also when it was deleted.
                seen[name] = self.connection.get_version(reference.subject, reference.version, True).schema
                waiting.append((reference, True))
                waiting.extend((each, False) for each in reversed(seen[name].references or []))
        return tuple(found.items())

    def __repr__(self) -> str:
        if callable(self._config):
            return "ConfluentRegistry()"
        address = urlsplit(str(self._config.get("url", "")))
        return f"ConfluentRegistry('{address.scheme}://{address.netloc.rpartition('@')[2]}')"


def _is_missing(answer: Any) -> bool:
    """Return whether a registry says that it has no such schema, and not a server that it has no such page."""
    return bool(answer.http_status_code == 404 and 40400 <= (answer.error_code or 0) < 40500)


def _text(schema: Schema) -> str:
    if (schema.schema_type or "AVRO") != "AVRO" or schema.schema_str is None:
        raise IncompatibleSchemaError(f"a schema of type {schema.schema_type} is none of Avro")
    return schema.schema_str
