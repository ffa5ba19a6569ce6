"""ConfluentRegistry: Confluent's protocol, through confluent-kafka's client, with the properties of its serializers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from statestore.connect.config import ConfigDef, ConfigType, Property
from statestore.errors import ConfigException
from statestore.errors.middleware import IncompatibleSchemaError, SchemaRejectedError
from statestore.middleware.application import extra
from statestore.middleware.schemas.schema_registry.ids import RegisteredSchema, SchemaId, SchemaIds
from statestore.middleware.schemas.schema_registry.kinds import names_directly, parts_of
from statestore.middleware.schemas.schema_registry.registry import SchemaRegistry

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

_DEFAULTS: Final = {"timeout": 10}
"""Seconds: the client would wait for ever."""
_DESCRIPTOR: Final = "serialized"
"""The format of Protobuf schemas that can be read without a parser of their language."""
_MOST_REFERENCES: Final = 100
_REJECTED: Final = frozenset({409, 422})
_WRITTEN_BY: Final = ("WRITE", "WRITEREAD")
_READ_BY: Final = ("READ", "WRITEREAD")


class _Subjects(Enum):
    """What a schema is deposited for. Values are the names of Confluent's strategies, in Java and in Python."""

    TOPIC = ("TOPIC", "TopicNameStrategy", "topic_subject_name_strategy")
    RECORD = ("RECORD", "RecordNameStrategy", "record_subject_name_strategy")
    TOPIC_RECORD = ("TOPIC_RECORD", "TopicRecordNameStrategy", "topic_record_subject_name_strategy")


_SUBJECTS: Final = ("subject.name.strategy", "key.subject.name.strategy", "value.subject.name.strategy")
_SETTINGS: Final = ConfigDef(
    Property("auto.register.schemas", ConfigType.BOOLEAN, None),
    Property("normalize.schemas", ConfigType.BOOLEAN, False),
    Property("use.latest.version", ConfigType.BOOLEAN, False),
    Property(_SUBJECTS[0], default=None, aliases=("subject.name.strategy.type",)),
    *(Property(name, default=None) for name in _SUBJECTS[1:]),
)


class _Settings(NamedTuple):
    """What serializers do with a registry."""

    auto_register: bool
    normalize: bool
    use_latest: bool
    key_subjects: _Subjects
    value_subjects: _Subjects

    @classmethod
    def taken_from(cls, properties: dict[str, Any]) -> _Settings:
        """Take the properties of serializers out of others. Raises ConfigException."""
        if "schema.registry.url" in properties:
            properties.setdefault("url", properties.pop("schema.registry.url"))
        taken = {name: properties.pop(name) for name in _SETTINGS.names if name in properties}
        named = {name: getattr(value, "__name__", value) for name, value in taken.items()}
        values = _SETTINGS.parse(named)
        auto_register, use_latest = values["auto.register.schemas"], values["use.latest.version"]
        if auto_register and use_latest:
            raise ConfigException("auto.register.schemas and use.latest.version can't both be true")
        subjects, *others = (_subjects(name, values[name]) for name in _SUBJECTS)
        of_keys, of_values = (other or subjects or _Subjects.TOPIC for other in others)
        return cls(
            not use_latest and auto_register is not False, values["normalize.schemas"], use_latest, of_keys, of_values
        )


def _subjects(name: str, value: str | None) -> _Subjects | None:
    if value is None:
        return None
    for each in _Subjects:
        if value.rpartition(".")[2] in each.value:
            return each
    raise ConfigException(f"{name} must be one of {', '.join(each.value[1] for each in _Subjects)}, got {value!r}")


class _Connected(NamedTuple):
    client: SchemaRegistryClient
    settings: _Settings

    def close(self) -> None:
        self.client.close()


class ConfluentRegistry(SchemaRegistry):
    """Confluent's schema registry, and others that speak its protocol; ids are numbers and GUIDs.

    `mock://` and anything makes one in the process, for tests.
    """

    def __init__(self, config: str | Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> None:
        """Take an address, or properties, or what returns those on the machine that asks.

        Properties are those of SchemaRegistryClient, and of Confluent's serializers: `auto.register.schemas`,
        `normalize.schemas`, `use.latest.version`, and `subject.name.strategy` and its like. They travel to the
        executors, and are shown nowhere. Raises ConfigException for one of the serializers' that is illegal.
        """
        super().__init__()
        self._config = {"url": config} if isinstance(config, str) else config
        self._settings = None if callable(self._config) else _Settings.taken_from(dict(self._config))

    def connect(self) -> Any:
        """Return the client, and what serializers do with it.

        Raises ExtraMissingError without confluent-kafka, ConfigException, and what the client raises.
        """
        with extra("schema-registry"):
            from confluent_kafka.schema_registry import SchemaRegistryClient
        properties = dict(self._config() if callable(self._config) else self._config)
        settings = _Settings.taken_from(properties)
        return _Connected(SchemaRegistryClient.new_client({**_DEFAULTS, **properties}), settings)

    @property
    def connection(self) -> SchemaRegistryClient:
        """The client."""
        return self._connected.client

    @property
    def _connected(self) -> _Connected:
        connected: _Connected = super().connection
        return connected

    def subject_of(self, topic: str | None, name: str | None, *, for_key: bool) -> str | None:
        """Return the subject by the strategy of the properties."""
        settings: _Settings = self._settings or self._asked(lambda: self._connected.settings)
        strategy = settings.key_subjects if for_key else settings.value_subjects
        if strategy is _Subjects.TOPIC:
            return super().subject_of(topic, name, for_key=for_key)
        return name if strategy is _Subjects.RECORD or None in (topic, name) else f"{topic}-{name}"

    def latest(self, subject: str) -> SchemaIds | None:
        """Return the latest version of a subject, with `use.latest.version`."""
        if not self._connected.settings.use_latest:
            return None
        found = self._answer(subject, self._whole, self.connection.get_latest_version, subject)
        return self._ids(subject, found)._replace(latest=self._registered(found.schema))

    def deposit(self, subject: str, schema: RegisteredSchema) -> SchemaIds:
        """Register a schema, and those that it names each under its name; without `auto.register` look them up."""
        from confluent_kafka.schema_registry import SchemaReference

        references: dict[str, SchemaReference] = {}
        for name, part in parts_of(schema):
            found = self._deposited(name, part, references, is_part=True)
            references[name] = SchemaReference(name, name, found.version)
        return self._ids(subject, self._deposited(subject, schema, references))

    def _deposited(
        self, subject: str, schema: RegisteredSchema, references: Mapping[str, Any], *, is_part: bool = False
    ) -> Any:
        from confluent_kafka.schema_registry import Schema

        named = [each for name, each in references.items() if names_directly(schema, name)]
        settings, given = self._connected.settings, Schema(schema.text, schema.kind, named)
        if settings.auto_register:
            answer = self._answer(
                subject, self.connection.register_schema_full_response, subject, given, settings.normalize
            )
            if not is_part:
                return answer
        # Not every registry says the version of what it has registered.
        return self._answer(subject, self.connection.lookup_schema, subject, given, settings.normalize)

    def _answer(self, subject: str, ask: Callable[..., Any], *of: Any) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return ask(*of)
        except SchemaRegistryError as answer:
            if answer.http_status_code not in _REJECTED and not _is_missing(answer):
                raise
            problem = "it is not there" if _is_missing(answer) else str(answer.error_message)[:300]
            raise SchemaRejectedError(subject, problem=problem) from answer

    def _ids(self, subject: str, found: Any) -> SchemaIds:
        if rules := _rules(found.schema, _WRITTEN_BY):
            raise SchemaRejectedError(subject, problem=f"it has rules, which are not run: {rules}")
        return SchemaIds(found.schema_id, None if found.guid is None else UUID(found.guid).bytes)

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Return the schema with a number or a GUID, with all those that it names."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        if schema_id.form == "md5":
            return None
        try:
            if isinstance(schema_id.value, int):
                schema = self._whole(self.connection.get_schema, schema_id.value, None)
            else:
                schema = self._whole(self.connection.get_schema_by_guid, str(UUID(bytes=schema_id.value)))
        except SchemaRegistryError as answer:
            if _is_missing(answer):
                return None
            raise
        if rules := _rules(schema, _READ_BY):
            raise IncompatibleSchemaError(f"the schema with the {schema_id} has rules, which are not run: {rules}")
        return self._registered(schema)

    def _whole(self, ask: Callable[..., Any], *of: Any) -> Any:
        """Return what the registry answers, of Protobuf as a descriptor: by itself it says a text."""
        found = ask(*of)
        return ask(*of, _DESCRIPTOR) if getattr(found, "schema", found).schema_type == "PROTOBUF" else found

    def _registered(self, schema: Schema) -> RegisteredSchema:
        migrations = _rules(schema, None)
        return RegisteredSchema(
            _text(schema), self._references(schema), schema.schema_type or "AVRO", (migrations,) if migrations else ()
        )

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
                # Deleted versions too: schemas that name them are still read.
                seen[name] = self._whole(self.connection.get_version, reference.subject, reference.version, True).schema
                waiting.append((reference, True))
                waiting.extend((each, False) for each in reversed(seen[name].references or []))
        return tuple(found.items())

    def __repr__(self) -> str:
        if callable(self._config):
            return "ConfluentRegistry()"
        address = urlsplit(str(self._config.get("url", self._config.get("schema.registry.url", ""))))
        return f"ConfluentRegistry('{address.scheme}://{address.netloc.rpartition('@')[2]}')"


def _is_missing(answer: Any) -> bool:
    """Return whether a registry says that it has no such schema, and not a server that it has no such page."""
    return bool(answer.http_status_code == 404 and 40400 <= (answer.error_code or 0) < 40500)


def _text(schema: Schema) -> str:
    if schema.schema_str is None:
        raise IncompatibleSchemaError("the registry has a schema without a text")
    return schema.schema_str


def _rules(schema: Schema | None, modes: tuple[str, ...] | None) -> str:
    """Return the rules of a schema that would have to run in these modes; None = to make it of another version."""
    rule_set = None if schema is None else schema.rule_set
    if rule_set is None:
        return ""
    rules = [*(rule_set.domain_rules or ()), *(getattr(rule_set, "encoding_rules", None) or ())]
    if modes is None:
        rules = rule_set.migration_rules or []
    asked = (rule for rule in rules if not rule.disabled and (modes is None or rule.mode is None or rule.mode in modes))
    return ", ".join(f"{rule.name} ({rule.type})" for rule in asked)[:300]
