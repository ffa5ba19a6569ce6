"""Chains made of a connector's configuration, as it is pasted."""

import json
import logging
import pickle
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.connect.config import ConfigDef, Property
from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord
from statestore.connect.scalars import Instant
from statestore.connect.schema import Schema, Struct
from statestore.connect.transforms.chain import TransformChain
from statestore.connect.transforms.field_moves import HeaderFromValue
from statestore.connect.transforms.header_steps import DropHeaders, Filter, HasHeaderKey, InsertHeader
from statestore.connect.transforms.transformation import Predicate, Step, Transformation
from statestore.errors import ConfigException

PASTED = r"""
# a sink, as somebody has it
name = orders-sink
connector.class = io.example.OrdersSink
tasks.max: 3
topics = orders, \
         returns
errors.tolerance = all
header.converter = org.apache.kafka.connect.storage.SimpleHeaderConverter
header.converter.mode = compat
key.converter.schemas.enable = false
consumer.override.max.poll.records = 5

transforms = from, drop, insert
transforms.from.type = org.apache.kafka.connect.transforms.HeaderFrom$Value
transforms.from.fields = txnId, address
transforms.from.headers = txn.id, address
transforms.from.operation = move
transforms.drop.type = org.apache.kafka.connect.transforms.DropHeaders
transforms.drop.headers = app.id
transforms.drop.predicate = internal
transforms.insert.type = org.apache.kafka.connect.transforms.InsertHeader
transforms.insert.header = app.id
transforms.insert.value.literal = best-app-ever
transforms.insert.predicate = internal
transforms.insert.negate = true
transforms.insert.plugin.version = 4.3.1

predicates = internal
predicates.internal.type = org.apache.kafka.connect.transforms.predicates.HasHeaderKey
predicates.internal.name = internal
"""


JDBC = """
name=jdbc-source
connector.class=io.confluent.connect.jdbc.JdbcSourceConnector
transforms=createKey,extractInt,dates,mask,cast,flat,meta,route,daily
transforms.createKey.type=org.apache.kafka.connect.transforms.ValueToKey
transforms.createKey.fields=id
transforms.extractInt.type=org.apache.kafka.connect.transforms.ExtractField$Key
transforms.extractInt.field=id
transforms.dates.type=org.apache.kafka.connect.transforms.TimestampConverter$Value
transforms.dates.field=at
transforms.dates.target.type=string
transforms.dates.format=yyyy-MM-dd HH:mm:ss
transforms.mask.type=org.apache.kafka.connect.transforms.MaskField$Value
transforms.mask.fields=card
transforms.cast.type=org.apache.kafka.connect.transforms.Cast$Value
transforms.cast.spec=n:string
transforms.flat.type=org.apache.kafka.connect.transforms.Flatten$Value
transforms.flat.delimiter=_
transforms.meta.type=org.apache.kafka.connect.transforms.SetSchemaMetadata$Value
transforms.meta.schema.name=orders
transforms.meta.schema.version=2
transforms.route.type=org.apache.kafka.connect.transforms.RegexRouter
transforms.route.regex=(.*)
transforms.route.replacement=db.$1
transforms.daily.type=org.apache.kafka.connect.transforms.TimestampRouter
"""


def test_a_source_s_configuration_does_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        chain = TransformChain.from_properties(JDBC, mode="compat")
    assert [text.partition(":")[0] for text in caplog.messages] == [
        "These properties have no meaning here, and do nothing"
    ]
    inner = Schema.struct({"x": Schema.STRING_SCHEMA})
    fields = {"id": Schema.INT64_SCHEMA, "at": Schema.TIMESTAMP_SCHEMA, "card": Schema.STRING_SCHEMA}
    schema = Schema.struct({**fields, "n": Schema.INT32_SCHEMA, "p": inner})
    value = Struct(schema, {"id": 7, "at": Instant(5), "card": "1234", "n": 3, "p": Struct(inner, {"x": "y"})})
    made = chain.apply(ConnectRecord("orders", value_schema=schema, value=value, timestamp_ms=1_700_000_000_123))
    assert made is not None
    assert (made.topic, made.key_schema, made.key) == ("db.orders-20231114", Schema.INT64_SCHEMA, 7)
    assert dict(made.value.items()) == {"id": 7, "at": "1970-01-01 00:00:00", "card": "", "n": "3", "p_x": "y"}
    assert (made.value_schema.name, made.value_schema.version) == ("orders", 2)
    assert made.value_schema is made.value.schema


def record(value: Any = None, **headers: Any) -> ConnectRecord:
    made = ConnectHeaders()
    for key, each in headers.items():
        made.add(key.replace("_", "."), each)
    return ConnectRecord("orders", value=value, headers=made)


def pairs(made: ConnectRecord | None) -> list[tuple[str, Any]]:
    assert made is not None
    return [(header.key, header.value) for header in made.headers]


def test_a_pasted_configuration_does_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        chain = TransformChain.from_properties(PASTED)
    assert [text.partition(":")[0] for text in caplog.messages] == [
        "These properties have no meaning here, and do nothing"
    ]
    made = chain.apply(record({"txnId": 7, "address": "x", "n": 1}, app_id="old"))
    assert made is not None
    assert made.value == {"n": 1}
    assert pairs(made) == [("app.id", "old"), ("txn.id", 7), ("address", "x"), ("app.id", "best-app-ever")]
    made = chain.apply(record({}, app_id="old", internal=None))
    assert pairs(made) == [("internal", None), ("txn.id", None), ("address", None)]
    assert chain.describe() == (
        "from: HeaderFromValue(fields=txnId,address, headers=txn.id,address, operation=move)"
        " -> drop: DropHeaders(headers=app.id) if HasHeaderKey(name=internal)"
        " -> insert: InsertHeader(header=app.id, value.literal=best-app-ever) unless HasHeaderKey(name=internal)"
    )
    assert repr(chain) == f"TransformChain({chain.describe()})"


def test_the_same_configuration_in_other_forms_is_the_same_chain() -> None:
    chain = TransformChain.from_properties(PASTED)
    config = {
        "name": "orders-sink",
        "tasks.max": 3,
        "transforms": "drop",
        "transforms.drop.type": "DropHeaders",
        "transforms.drop.headers": "app.id",
        "transforms.drop.predicate": "internal",
        "predicates": "internal",
        "predicates.internal.type": "HasHeaderKey",
        "predicates.internal.name": "internal",
    }
    forms = [config, {"name": "n", "config": config}, json.dumps(config), json.dumps({"config": config})]
    for form in forms:
        assert TransformChain.from_properties(form).steps == chain.steps[1:2]  # type: ignore[arg-type]


def test_a_chain_is_a_value() -> None:
    chain = TransformChain.from_properties(PASTED)
    again = pickle.loads(pickle.dumps(chain))
    assert again == chain
    assert hash(again) == hash(chain)
    assert again.describe() == chain.describe()
    with pytest.raises(FrozenInstanceError):
        chain.steps = ()  # type: ignore[misc]


def test_no_transforms_are_a_chain_that_does_nothing() -> None:
    for config in ({}, {"transforms": ""}, {"transforms": None}, ""):
        chain = TransformChain.from_properties(config)
        given = record()
        assert chain.apply(given) is given
        assert chain.describe() == ""


def test_a_dropped_record_is_not_given_to_the_steps_behind() -> None:
    chain = TransformChain.of(Step("f", Filter(), HasHeaderKey("x")), InsertHeader("y", "a"))
    assert chain.apply(record(x=1)) is None
    assert pairs(chain.apply(record(z=1))) == [("z", 1), ("y", "a")]
    assert chain.describe() == "f: Filter() if HasHeaderKey(name=x) -> 2: InsertHeader(header=y, value.literal=a)"


STEP = {"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.transforms.HeaderFrom$Value"}
INSERT = {"transforms": "a", "transforms.a.type": "InsertHeader", "transforms.a.header": "h"}


@pytest.mark.parametrize(
    ("config", "name", "message"),
    [
        (
            {"transforms": "a"},
            "transforms.a.type",
            'Missing required configuration "transforms.a.type" which has no default value.',
        ),
        (
            STEP,
            "transforms.a.fields",
            'Missing required configuration "transforms.a.fields" which has no default value.',
        ),
        (
            {**STEP, "transforms.a.fields": "x", "transforms.a.headers": "h", "transforms.a.operation": "steal"},
            "transforms.a.operation",
            "Invalid value steal for configuration transforms.a.operation: String must be one of: move, copy",
        ),
        (
            {**STEP, "transforms.a.fields": "x", "transforms.a.headers": "h,i", "transforms.a.operation": "move"},
            "transforms.a.fields",
            "transforms.a.fields: 'fields' config must have the same number of elements as 'headers' config: "
            "1 fields, 2 headers",
        ),
        (
            {"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.transforms.HeadersFrom$Value"},
            "transforms.a.type",
            "Did you mean 'org.apache.kafka.connect.transforms.HeaderFrom$Value'",
        ),
        (
            {
                **STEP,
                "transforms.a.fields": "x",
                "transforms.a.headers": "h",
                "transforms.a.operation": "move",
                "transforms.a.replace.null.with.default": None,
            },
            "transforms.a",
            "transforms.a: replace.null.with.default is set to null",
        ),
        ({"transforms": "a", "transforms.a.type": "HasHeaderKey"}, "transforms.a.type", "could not be found"),
        (
            {"transforms": "a", "transforms.a.type": "statestore.connect.transforms.header_steps:HasHeaderKey"},
            "transforms.a.type",
            "Not a Transformation",
        ),
        ({"transforms": "a", "transforms.a.type": 5}, "transforms.a.type", "Not a Transformation"),
        ({"transforms": "a,b,a"}, "transforms", "Duplicate alias provided."),
        ({"transforms": "a,"}, "transforms", "values must not be empty"),
        ({"transforms": 5}, "transforms", "Expected a comma separated list."),
        (
            {**INSERT, "transforms.a.negate": "true"},
            "transforms.a.negate",
            "Config 'transforms.a.negate' was provided but there is no config 'transforms.a.predicate' "
            "defining a predicate to be negated.",
        ),
        ({**INSERT, "transforms.a.predicate": "p"}, "transforms.a.predicate", "those of 'predicates' are: none"),
        (
            {
                **INSERT,
                "transforms.a.predicate": "p",
                "transforms.a.negate": "maybe",
                "predicates": "p",
                "predicates.p.type": "RecordIsTombstone",
            },
            "transforms.a.negate",
            "Expected value to be either true or false",
        ),
        (
            {"predicates": "p", "predicates.p.type": "HasHeaderKey"},
            "predicates.p.name",
            'Missing required configuration "predicates.p.name"',
        ),
        (
            {"predicates": "p", "predicates.p.type": "TopicNameMatches", "predicates.p.pattern": "("},
            "predicates.p.pattern",
            "Invalid regex",
        ),
        ('{"transforms": ["a"]}', "transforms", "a list or an object"),
    ],
)
def test_a_wrong_configuration_names_the_whole_property(config: Any, name: str, message: str) -> None:
    with pytest.raises(ConfigException) as caught:
        TransformChain.from_properties(config)
    assert caught.value.name == name
    assert message in str(caught.value)


def test_what_nobody_knows_is_warned_of_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    config = {
        **INSERT,
        "transforms.a.value.literal": "1",
        "transforms.a.value.litteral": "1",
        "transforms.b.header": "1",
        "transform": "a",
        "topcis": "x",
        "errors.tolerence": "all",
        "zzz": "",
    }
    with caplog.at_level(logging.WARNING):
        TransformChain.from_properties(config)
    hints = {message.split("'")[1]: message.partition("Did you mean ")[2] for message in caplog.messages}
    assert hints == {
        "transforms.a.value.litteral": "'transforms.a.value.literal'?",
        "transforms.b.header": "'transforms.a.header'?",
        "transform": "'transforms'?",
        "topcis": "'topics'?",
        "errors.tolerence": "'errors.tolerance'?",
        "zzz": "",
    }


@dataclass(frozen=True)
class Mark(Transformation):
    """A transformation of a user's own."""

    header_name: str
    mode: str = "unset"
    config: ClassVar[ConfigDef] = ConfigDef(Property("header.name"), Property("mode", default="unset"))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        return record.new_record(headers=record.headers.duplicate().add(self.header_name, self.mode))


@dataclass(frozen=True)
class Refusing(Transformation):
    config: ClassVar[ConfigDef] = ConfigDef(Property("x", default=""))

    @classmethod
    def from_properties(cls, properties: Any) -> "Refusing":
        raise ConfigException("no", name=properties["x"] or None)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        return record


class Closing(Predicate):
    closed = 0

    def test(self, record: ConnectRecord) -> bool:
        return True

    def close(self) -> None:
        self.closed += 1


def test_a_transformation_of_ones_own_is_named_by_module_and_class_or_given() -> None:
    own = {"transforms": "m", "transforms.m.header.name": "own"}
    for type_ in (f"{Mark.__module__}:Mark", Mark):
        chain = TransformChain.from_properties({**own, "transforms.m.type": type_}, mode="compat")
        assert chain.steps == (Step("m", Mark("own", "compat")),)
    assert pairs(chain.apply(record())) == [("own", "compat")]
    made = Mark("given")
    assert (
        TransformChain.from_properties({"transforms": "m", "transforms.m.type": made}).steps[0].transformation is made
    )


def test_what_ones_own_refuses_has_the_whole_property_too() -> None:
    own = {"transforms": "m", "transforms.m.type": Refusing}
    for x, name in (("", "transforms.m"), ("x", "transforms.m.x"), ("transforms.m.x", "transforms.m.x")):
        with pytest.raises(ConfigException) as caught:
            TransformChain.from_properties({**own, "transforms.m.x": x})
        assert caught.value.name == name


def test_the_mode_of_the_chain_is_that_of_its_steps_unless_they_say_otherwise() -> None:
    config = {**INSERT, "transforms.a.value.literal": "1,2"}
    assert TransformChain.from_properties(config).steps[0].transformation == InsertHeader("h", "1,2")
    compat = TransformChain.from_properties(config, mode="compat").steps[0].transformation
    assert compat == InsertHeader("h", "1,2", "compat")
    own = (
        TransformChain.from_properties({**config, "transforms.a.mode": "strict"}, mode="compat").steps[0].transformation
    )
    assert own == InsertHeader("h", "1,2")
    with pytest.raises(ConfigException, match=r"transforms\.a\.mode: String must be one of: strict, compat"):
        TransformChain.from_properties(config, mode="exact")
    without = {"transforms": "a", "transforms.a.type": "DropHeaders", "transforms.a.header.names": "x"}
    assert TransformChain.from_properties(without).steps == (Step("a", DropHeaders(("x",))),)


def test_closing_a_chain_closes_what_is_in_it() -> None:
    closing = Closing()
    TransformChain.of(Step("a", HeaderFromValue(("a",), ("b",), "copy"), closing), InsertHeader("h", "x")).close()
    assert closing.closed == 1


TYPES = st.sampled_from(["HeaderFrom$Value", "HeaderTo$Key", "InsertHeader", "DropHeaders", "Filter", "HasHeaderKey"])
VALUES = st.sampled_from(["", "a", "p", "a,p", "x,", "null", "move", "copy", "true", "list", "[a", "os:path"])
NAMES = st.sampled_from(
    ["transforms", "predicates", "predicates.p.name", "transforms.", "transforms.a.predicate", "transforms.a.negate"]
)
OWN_NAMES = st.sampled_from(["fields", "headers", "operation", "header", "value.literal", "missing", "mode", "type"])
ANYTHING = VALUES | st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.none() | VALUES)


@given(
    TYPES,
    st.dictionaries(NAMES, ANYTHING),
    st.dictionaries(OWN_NAMES.map(lambda name: f"transforms.a.{name}"), ANYTHING),
    st.sampled_from(["strict", "compat"]),
)
@settings(deadline=None)
def test_any_configuration_makes_a_chain_or_is_refused(
    type: str, others: dict[str, Any], own: dict[str, Any], mode: str
) -> None:
    predicate = {"predicates": "p", "predicates.p.type": "HasHeaderKey", "predicates.p.name": "x"}
    config = {"transforms": "a", "transforms.a.type": type} | predicate | others | own
    try:
        chain = TransformChain.from_properties(config, mode=mode)
    except ConfigException as error:
        assert error.name is not None  # noqa: PT017  most raise nothing
    else:
        assert chain.describe().count(": ") >= len(chain.steps)
        assert pickle.loads(pickle.dumps(chain)) == chain
