"""Random vectors of transformations without results, for Kafka itself to do: near to what it knows, and a bit off."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.connect.forms import Json

NAMES = ("a", "b", "c", "d", "e f", "")
KEYS = ("x", "y", "a", "", "e f", " x")
PRIMITIVES: dict[str, tuple[Json, ...]] = {
    "BOOLEAN": ({"bool": True}, {"bool": False}),
    "BYTES": ({"bytes": "00ff"},),
    "FLOAT64": ({"float64": "1.5"}, {"float64": "NaN"}),
    "INT32": ({"int32": 7}, {"int32": -1}),
    "INT64": ({"int64": 8},),
    "STRING": ({"string": "a"}, {"string": ""}, {"string": "\U0001f600"}),
}
TIMESTAMP = {"type": "INT64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1}
LITERALS = (
    *("5", " 5 ", "", "null", "true", "1.0", "[1,2]", '{"a":1}', "1,2", "2017-05-21", "\\", "\u00a0", "1e400", "\x1f5"),
    *("[null,1]", '"a"', "NaN", "007", ".5", "-.5", '{1:2,"a":3}', '[[1],["a"]]', "9223372036854775808", "[", "{ }"),
)
REPLACEMENTS = ("x", "", "$0", "<$0>", "a\\$0\\\\b", "$01", "$0 1")
DATE_PATTERNS = (
    *(
        "yyyyMMdd",
        "yyyy-MM-dd",
        "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        "yyyy.MM",
        "HH",
        "M/d H:m:s.S",
        "yyyyMMddHHmmssSSS",
        "dd",
    ),
    *(
        "'day' d''yyyy",
        "yyyy-MM-dd HH:mm:ss Z",
        "ss X",
        "''''",
        "-",
        "ddd SSSSSS",
        "yyyy-MM-dd'T'HH:mm:ss'Z'",
        "'a''b'",
    ),
)
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
    record = {"keySchema": key_schema, "key": key, "valueSchema": value_schema, "value": value}
    side = random.choice(("$Key", "$Value", "$Value")) if kind in BOTH_SIDES else ""
    headers = [_header(random) for _ in range(random.randint(0, 4))]
    return {
        "kind": "transforms",
        "smt": kind + side,
        "config": config,
        "record": {**record, "headers": headers, **_place(random)},
    }


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
    config["timestamp.format"] = random.choice(DATE_PATTERNS)
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
    paths = ("a", "b", "c", "a.b", "b.a.c", "d.a", "`a`.b", "`a.b`", "`a", "a.", "`a`b`", "c.k", "z.z", "e f")
    version = random.choice(("V1", "v2", "V2", "V2", "V3"))
    return {"field": random.choice(paths), "field.syntax.version": version, **_flag(random)}


def _hoists(random: Random) -> dict[str, Any]:
    return {"field": random.choice(("f", "", " g "))}


def _some(random: Random) -> str:
    return random.choice(("", "", _names(random, random.randint(1, 3))))


def _flag(random: Random) -> dict[str, Any]:
    return random.choice(({}, {"replace.null.with.default": random.choice((True, False, "true", "false"))}))


def _looks(random: Random) -> dict[str, Any]:
    return {"name": random.choice((*KEYS, "z", None))}


MAKERS = {
    "HeaderFrom$Value": _moves,
    "HeaderFrom$Key": _moves,
    "DropHeaders": _drops,
    "ExtractField": _extracts,
    "HoistField": _hoists,
    "InsertField": _puts,
    "RegexRouter": _routes,
    "ReplaceField": _replaces,
    "TimestampRouter": _dates,
    "ValueToKey": _keys,
    "InsertHeader": _inserts,
    "predicates.HasHeaderKey": _looks,
}

BOTH_SIDES = ("ExtractField", "HoistField", "InsertField", "ReplaceField")
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
        )
        return None, {"map": [[{"string": name}, random.choice(values)] for name in names]}
    return random.choice(((None, None), (None, {"string": "s"}), ({"type": "STRING"}, {"string": "s"})))


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
    return TIMESTAMP if chance < 0.85 else _struct(random, depth + 1)


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
    return {"millis": 5} if "name" in schema else random.choice(PRIMITIVES[schema["type"]])
