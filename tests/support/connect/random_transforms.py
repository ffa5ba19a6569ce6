"""Random vectors of transformations without results, for Kafka itself to do: near to what it knows, and a bit off."""

from __future__ import annotations

from random import Random
from typing import Any

from statestore.connect.values.date_text import DateFormat
from tests.support.connect.forms import Json

NAMES = ("a", "b", "c", "d", "e f", "")
KEYS = ("x", "y", "a", "", "e f", " x")
PRIMITIVES: dict[str, tuple[Json, ...]] = {
    "BOOLEAN": ({"bool": True}, {"bool": False}),
    "BYTES": ({"bytes": "00ff"},),
    "FLOAT32": ({"float32": "0.1"}, {"float32": "-300.7"}),
    "FLOAT64": tuple({"float64": text} for text in ("1.5", "NaN", "-3.9E10", "1.0E300", "0.4", "-0.0")),
    "INT8": ({"int8": -3},),
    "INT32": ({"int32": 7}, {"int32": -1}, {"int32": 40_000}),
    "INT64": ({"int64": 8}, {"int64": 1_700_000_000_123}, {"int64": -(1 << 40) - 1}, {"int64": 0}),
    "STRING": tuple(
        {"string": text} for text in ("a", "", "\U0001f600", "12", "-5", "+300", "tRue", " 1.5e3f ", "NaN", ".")
    ),
}
_LOGICAL = "org.apache.kafka.connect.data."
TIMESTAMP = {"type": "INT64", "name": f"{_LOGICAL}Timestamp", "version": 1}
LOGICAL: dict[str, tuple[Json, tuple[Json, ...]]] = {
    f"{_LOGICAL}Timestamp": (TIMESTAMP, tuple({"millis": each} for each in (5, 1_700_000_000_123, 86_400_000, -1))),
    f"{_LOGICAL}Date": (
        {"type": "INT32", "name": f"{_LOGICAL}Date", "version": 1},
        ({"millis": 0}, {"millis": 19_675 * 86_400_000}),
    ),
    f"{_LOGICAL}Time": (
        {"type": "INT32", "name": f"{_LOGICAL}Time", "version": 1},
        ({"millis": 0}, {"millis": 61_001}),
    ),
    f"{_LOGICAL}Decimal": (
        {"type": "BYTES", "name": f"{_LOGICAL}Decimal", "version": 1, "parameters": {"scale": "2"}},
        ({"decimal": "1.50"}, {"decimal": "-70000000000.25"}),
    ),
}
LITERALS = (
    *("5", " 5 ", "", "null", "true", "1.0", "[1,2]", '{"a":1}', "1,2", "2017-05-21", "\\", "\u00a0", "1e400", "\x1f5"),
    *("[null,1]", '"a"', "NaN", "007", ".5", "-.5", '{1:2,"a":3}', '[[1],["a"]]', "9223372036854775808", "[", "{ }"),
)
REPLACEMENTS = ("x", "", "$0", "<$0>", "a\\$0\\\\b", "$01", "$0 1")
DATE_PARTS = (
    *("yyyy", "MM", "M", "dd", "d", "HH", "H", "mm", "m", "ss", "s", "SSS", "S", "SSSSSS", "X", "XX", "XXX", "Z"),
    *("-", "/", " ", "'T'", ":", ".", "''", "'a''b'", "\u00e9"),
)
DATE_MISTAKES = ("", "0", "9", " ", "-", "+05", "E2", "Z", "+0130", "-02:30", "+24", "\u0663", "x")
TIMES = (
    None,
    0,
    5,
    -1,
    86_399_999,
    -86_400_000,
    1_709_210_096_007,
    -12_219_292_800_001,
    -70_000_000_000_000,
    253_402_300_800_000,
)
ODD_VALUES = (None, True, False, "", " ", 5, "Move", "x,", ",", "\u00a0x", "x\u2003,y")


def random_transforms(seed: int, count: int) -> list[dict[str, Any]]:
    """Return so many vectors, the same for the same seed."""
    random = Random(seed)
    return [_vector(random) for _ in range(count)]


def _vector(random: Random) -> dict[str, Any]:
    kind = random.choice(("HeaderFrom$Value", "HeaderFrom$Value", *MAKERS))
    config = MAKERS[kind](random)
    if config and random.random() < 0.1 and kind not in NOT_ODD:
        config[random.choice(list(config))] = random.choice(ODD_VALUES)
    if config and random.random() < 0.04:
        del config[random.choice(list(config))]
    (key_schema, key), (value_schema, value) = _side(random), _side(random)
    if kind == "SetSchemaMetadata":  # for values of another schema Kafka says nothing of its own
        key_schema, value_schema = (
            _schema_of(each, schema) for each, schema in ((key, key_schema), (value, value_schema))
        )
    if kind == "TimestampConverter" and random.random() < 0.7:
        key_schema, key, value_schema, value = (*_dated(random, config), *_dated(random, config))
    record = {"keySchema": key_schema, "key": key, "valueSchema": value_schema, "value": value}
    side = random.choice(("$Key", "$Value", "$Value")) if kind in BOTH_SIDES else ""
    headers = [_header(random) for _ in range(random.randint(0, 4))]
    return {
        "kind": "transforms",
        "smt": kind + side,
        "config": config,
        "record": {**record, "headers": headers, **_place(random)},
    }


def _date_pattern(random: Random) -> str:
    """Return a pattern of dates that ours takes, too: of Kafka's letters it lacks some."""
    while True:
        pattern = "".join(random.choices(DATE_PARTS, k=random.randint(1, 7)))
        try:
            return DateFormat(pattern).pattern
        except ValueError:
            continue


def _dated(random: Random, config: dict[str, Any]) -> tuple[Json, Json]:
    """Return schema and value of a side that has a text for the pattern, alone, in a struct or in a map."""
    text = DateFormat(config.get("format") or "yyyy-MM-dd").text_of(random.choice(TIMES) or 7)
    for _ in range(random.choice((0, 0, 1, 2))):
        place = random.randint(0, len(text))
        text = text[:place] + random.choice(DATE_MISTAKES) + text[place + random.randint(0, 1) :]
    name = config.get("field") or "a"
    schema = {"type": "STRING", **({"optional": True} if random.random() < 0.5 else {})}
    value = {"string": text}
    if not config.get("field"):
        return random.choice(((schema, value), (None, value)))
    struct = {"type": "STRUCT", "fields": [["e f", {"type": "BOOLEAN"}], [name, schema]], "optional": True}
    fields = [["e f", {"bool": True}], [name, value]]
    in_map = {"map": [[{"string": name}, value], [{"string": "z"}, None]]}
    return random.choice(((struct, {"struct": {"schema": struct, "fields": fields}}), (None, in_map)))


def _schema_of(value: Json, schema: Json) -> Json:
    return value["struct"]["schema"] if value and "struct" in value else schema


def _place(random: Random) -> dict[str, Any]:
    """Return where a record is from, and when, if not as all are."""
    time = random.choice(TIMES)
    place = {
        "topic": random.choice(("t", "to", "orders-12", "\u00e4")),
        "timestamp": None if time is None else {"int64": time},
        "offset": random.randint(0, 9),
    }
    return {name: each for name, each in place.items() if random.random() < 0.4}


def _moves(random: Random) -> dict[str, Any]:
    count = random.randint(1, 3)
    config = {
        "fields": _names(random, count),
        "headers": _names(random, count if random.random() < 0.9 else 2),
        "operation": random.choice(("move", "copy", " move ")),
    }
    flag = random.choice((None, None, "true", "false", "FALSE", " True", False, True, "maybe"))
    return config if flag is None else {**config, "replace.null.with.default": flag}


def _names(random: Random, count: int) -> str:
    separator = random.choice((",", ", ", " ,", "\t,\n"))
    return separator.join(random.choices((*NAMES, "nope", " a "), k=count))


def _drops(random: Random) -> dict[str, Any]:
    return {"headers": random.choice((",", " , ")).join(random.choices(KEYS, k=random.randint(1, 3)))}


def _inserts(random: Random) -> dict[str, Any]:
    return {"header": random.choice(("h", " h ", "", "x")), "value.literal": random.choice(LITERALS)}


def _routes(random: Random) -> dict[str, Any]:
    regex = random.choice(
        ("(.*)-([0-9]*)", "t|to.*", "topic", "(t)(o(x)?).*", ".*", "to|topic|(orders-.*)", "[^-]+", "(")
    )
    return {"regex": regex, "replacement": random.choice(REPLACEMENTS)}


def _dates(random: Random) -> dict[str, Any]:
    config = {
        "topic.format": random.choice(("${topic}_${timestamp}", "x", "${timestamp}", "${topic}${topic}", "$${t}"))
    }
    config["timestamp.format"] = _date_pattern(random)
    return {name: value for name, value in config.items() if random.random() < 0.9}


def _replaces(random: Random) -> dict[str, Any]:
    renames = ("a:new", "a:new,b:c d", "nope:new", "a:b,b:a", "a", "a:", "a:x:", ":x", "a:b:c", "")
    return {"exclude": _some(random), "include": _some(random), "renames": random.choice(renames), **_flag(random)}


def _puts(random: Random) -> dict[str, Any]:
    names = ("t", "t?", "u!", "v", "a", "?", "e f")
    config = {f"{what}.field": random.choice(names) for what in ("topic", "partition", "timestamp", "static")}
    if random.random() < 0.3:
        config["offset.field"] = "o"
    config["static.value"] = random.choice(("x", "", " y"))
    kept = {name: value for name, value in config.items() if random.random() < 0.6}
    return {**kept, **_flag(random)}


def _keys(random: Random) -> dict[str, Any]:
    return {"fields": _names(random, random.randint(1, 2)), **_flag(random)}


def _extracts(random: Random) -> dict[str, Any]:
    paths = (
        *("a", "b", "c", "a.b", "b.a.c", "d.a", "`a`.b", "`a.b`", "`a", "a.", "`a`b`", "c.k", "z.z", "e f"),
        *("`a\\`.b`", "`a\\`b`", "`a\\`", "``", "`a`.", "`.`", "a..b", ".", "`a``.b`", "``.a", "`a`.`b`", "a.`"),
    )
    version = random.choice(("V1", "v2", "V2", "V2", "V3"))
    return {"field": random.choice(paths), "field.syntax.version": version, **_flag(random)}


def _hoists(random: Random) -> dict[str, Any]:
    return {"field": random.choice(("f", "", " g "))}


def _masks(random: Random) -> dict[str, Any]:
    config = {"fields": _names(random, random.randint(1, 3)), **_flag(random)}
    replacement = random.choice((None, None, None, "7", "x", "-1.5", "300", "", "1e3", "NaN"))
    return config if replacement is None else {**config, "replacement": replacement}


def _casts(random: Random) -> dict[str, Any]:
    types = ("int8", "int16", "INT32", "int64", "float32", "float64", "boolean", "string")
    fields = (f"{random.choice(NAMES)}:{random.choice(types)}" for _ in range(random.randint(1, 4)))
    odd = ("a:bytes", "a", "a:b:c", "a:int32:", "array", "", ":string", "a:int8,string")
    spec = random.choice((",".join(fields), random.choice(types), random.choice(odd)))
    return {"spec": spec, **_flag(random)}


def _flattens(random: Random) -> dict[str, Any]:
    return random.choice(({}, {"delimiter": random.choice(("_", "", ".", " - "))}))


def _renames_schema(random: Random) -> dict[str, Any]:
    config = {"schema.name": random.choice(("n", "other", "")), "schema.version": random.choice(("1", "-7", "x"))}
    return {**{name: each for name, each in config.items() if random.random() < 0.7}, **_flag(random)}


def _times(random: Random) -> dict[str, Any]:
    config = {
        "field": random.choice(("", "a", "b", "c", "d")),
        "target.type": random.choice(("string", "unix", "Date", "Time", "Timestamp", "Timestamp", "date")),
        "unix.precision": random.choice(("milliseconds", "milliseconds", "seconds", "microseconds", "nanoseconds")),
        "format": random.choice(("", *(_date_pattern(random) for _ in range(4)))),
    }
    return {**config, **_flag(random)}


def _some(random: Random) -> str:
    return random.choice(("", "", _names(random, random.randint(1, 3))))


def _flag(random: Random) -> dict[str, Any]:
    return random.choice(({}, {"replace.null.with.default": random.choice((True, False, "true", "false"))}))


def _looks(random: Random) -> dict[str, Any]:
    return {"name": random.choice((*KEYS, "z", None))}


MAKERS = {
    "HeaderFrom$Value": _moves,
    "HeaderFrom$Key": _moves,
    "Cast": _casts,
    "DropHeaders": _drops,
    "ExtractField": _extracts,
    "Flatten": _flattens,
    "HoistField": _hoists,
    "InsertField": _puts,
    "MaskField": _masks,
    "RegexRouter": _routes,
    "ReplaceField": _replaces,
    "SetSchemaMetadata": _renames_schema,
    "TimestampConverter": _times,
    "TimestampRouter": _dates,
    "ValueToKey": _keys,
    "InsertHeader": _inserts,
    "predicates.HasHeaderKey": _looks,
}

BOTH_SIDES = (
    "TimestampConverter",
    "Cast",
    "Flatten",
    "MaskField",
    "SetSchemaMetadata",
    "ExtractField",
    "HoistField",
    "InsertField",
    "ReplaceField",
)
NOT_ODD = ("RegexRouter", "TimestampRouter", *BOTH_SIDES)
"""What Kafka finds wrong in these it says of each record, and ours at once."""


def _header(random: Random) -> Json:
    schema = {**_primitive(random), "optional": True} if random.random() < 0.8 else None
    value = random.choice(PRIMITIVES[schema["type"]]) if schema else {"string": "q"}
    return {"key": random.choice(KEYS), "schema": schema, "value": value if random.random() < 0.7 else None}


def _side(random: Random) -> tuple[Json, Json]:
    """Return schema and value of a key or a value: a struct, a map without a schema, or something else."""
    chance = random.random()
    if chance < 0.6:
        schema = _struct(random, 0)
        value = _of(random, schema, is_complete=False)
        other = random.random()
        if other < 0.06:
            schema = {"type": "INT32"} if other < 0.02 else _struct(random, 0)
        return schema, value if random.random() < 0.95 else None
    if chance < 0.9:
        names = random.sample((*NAMES, "z", "\u00e4", "\U0001f600", "\uffff"), random.randint(0, 5))
        values = (
            None,
            {"int32": 1},
            {"array": [{"int8": 1}]},
            {"map": [[{"string": "z"}, None], [{"string": "b"}, None]]},
            {"map": [[{"string": "a"}, {"map": [[{"string": "b"}, {"int64": 1}]]}], [{"string": ""}, {"bool": True}]]},
            *(each for values in PRIMITIVES.values() for each in values),
            *({"millis": 5}, {"decimal": "1.50"}),
        )
        return None, {"map": [[{"string": name}, random.choice(values)] for name in names]}
    whole = _field(random, 2)
    value = _of(random, whole, is_complete=True)
    return random.choice(((None, None), (None, {"string": "s"}), (None, value), (whole, value), (whole, None)))


def _struct(random: Random, depth: int) -> Json:
    fields = [[name, _field(random, depth)] for name in random.sample(NAMES[:-1], random.randint(0, 4))]
    facts = {"optional": True, "name": "n", "version": 2, "doc": "d", "parameters": {"p": "q"}}
    kept = {name: fact for name, fact in facts.items() if random.random() < 0.25}
    return {"type": "STRUCT", "fields": fields, **kept}


def _field(random: Random, depth: int) -> Json:
    chance = random.random()
    if chance < 0.6 or depth > 1:
        return _primitive(random)
    if chance < 0.7:
        return {"type": "ARRAY", "valueSchema": _primitive(random)}
    if chance < 0.8:
        return {"type": "MAP", "keySchema": {"type": "STRING"}, "valueSchema": {"type": "INT32", "optional": True}}
    return random.choice(list(LOGICAL.values()))[0] if chance < 0.9 else _struct(random, depth + 1)


def _primitive(random: Random) -> Json:
    type_ = random.choice(list(PRIMITIVES))
    facts = {"optional": True} if random.random() < 0.4 else {}
    return {"type": type_, **facts, **({"default": random.choice(PRIMITIVES[type_])} if random.random() < 0.3 else {})}


def _of(random: Random, schema: Json, *, is_complete: bool) -> Json:
    """Return a value of a schema; what is not complete may lack fields that it must have."""
    if schema["type"] == "STRUCT":
        needed = [
            [name, field]
            for name, field in schema["fields"]
            if random.random() < 0.75 or (is_complete and not field.get("optional") and "default" not in field)
        ]
        fields = [[name, _of(random, field, is_complete=True)] for name, field in needed]
        return {"struct": {"schema": schema, "fields": fields}}
    if schema["type"] == "ARRAY":
        return {"array": [_of(random, schema["valueSchema"], is_complete=True) for _ in range(random.randint(0, 2))]}
    if schema["type"] == "MAP":
        return {"map": [[{"string": "k"}, {"int32": 1}], [{"string": "j"}, None]]}
    return random.choice(LOGICAL[schema["name"]][1] if "name" in schema else PRIMITIVES[schema["type"]])
