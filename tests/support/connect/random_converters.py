"""Random vectors of header converters without results: values to write, and JSON that is nearly what Kafka writes."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.support.connect.forms import Json
from tests.support.connect.random_vectors import DATE, PIECES, TIME, TIMESTAMP, random_value

DECIMAL = {"type": "BYTES", "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": {"scale": "2"}}
SCHEMAS = (
    *(
        {"type": each}
        for each in ("INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN", "STRING", "BYTES")
    ),
    *(DATE, TIME, TIMESTAMP, DECIMAL),
)
JSON_NAMES = {"FLOAT32": "float", "FLOAT64": "double"}
NUMBERS = (
    *("0", "-0", "00", "7", "-129", "300", "2147483648", "9223372036854775808", "123456789012345678901234567890"),
    *("0.1", "-0.0", "16777217", "16777216.5000000001", "1e30", "1E+2", "1e400", "1e-400", "3.4028235677973366e38"),
    *("1.5", "1.50", "9007199254740993", "1e999999999", "1e9999999999", "0.000", "1.", ".5", "+1", "1e"),
)
TEXTS = (
    '""',
    '"x"',
    '"AQI="',
    '"AQ"',
    '"\\u00e9"',
    '"\\ud83d\\ude00"',
    '"\\ud83d"',
    '"NaN"',
    '"\\x"',
    '"\x7f"',
    '"ZA=="',
)
# But 0xFF: in a short name, Jackson may take it for the filling of the name before.
BYTES = (
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xc3",
    b"\xef\xbb\xbf",
    b"\x00",
    b" ",
    b"\xf4\x90\x80\x80",
    b"\xe2\x80\xa8",
)


def random_converters(seed: int, count: int) -> list[dict[str, Any]]:
    """Return so many vectors, the same for the same seed."""
    random = Random(seed)
    makers = (_json_read, _json_read, _json_written, _string)
    return [{"kind": "header_converters"} | makers[number % len(makers)](random) for number in range(count)]


def _config(random: Random) -> dict[str, str]:
    config = {"schemas.enable": random.choice(("true", "true", "false"))}
    return config | random.choice(({}, {}, {"decimal.format": "numeric"}, {"replace.null.with.default": "false"}))


def _json_written(random: Random) -> dict[str, Any]:
    schema = random.choice((None, random.choice(SCHEMAS), {"type": "ARRAY", "valueSchema": random.choice(SCHEMAS)}))
    value = random_value(random)
    if schema is not None and schema["type"] == "ARRAY":
        value = {"array": [value]}
    if schema is None and value is not None and "struct" in value:
        schema = value["struct"]["schema"]
    config = _config(random)
    if '"float32"' in json.dumps(value) and (schema is None or config["schemas.enable"] == "false"):
        value = None  # read as double precision, it depends on the digits that Java's version wrote
    return {"converter": "json", "config": config} | {"op": "fromConnectHeader", "schema": schema, "value": value}


def _string(random: Random) -> dict[str, Any]:
    encoding = random.choice(("UTF-8", "ISO-8859-1", "UTF-16", "UTF-16LE", "UTF-32", "US-ASCII"))
    asked = {"converter": "string", "config": {"converter.encoding": encoding}}
    value = random_value(random)
    form = json.dumps(value)
    # The text of bytes is an address; that of a float depends on Java's version, which shows in any bytes but UTF-8.
    if random.random() < 0.5 or '"bytes"' in form or ('"float' in form and encoding.startswith("UTF-")):
        content = random.randbytes(random.randint(0, 9))
        return asked | {"op": "toConnectHeader", "bytes": content.hex()}
    return asked | {"op": "fromConnectHeader", "schema": None, "value": value}


def _json_read(random: Random) -> dict[str, Any]:
    config = _config(random)
    text = _payload(random)
    if config["schemas.enable"] == "true":
        text = f'{{"schema":{json.dumps(_schema(random))},"payload":{text}}}'
    content = text.encode("utf-8", "surrogatepass")
    if random.random() < 0.3:
        place = random.randint(0, len(content))
        piece = random.choice((random.choice(BYTES), random.choice(PIECES).encode("utf-8", "surrogatepass")))
        content = random.choice(
            (content[:place], content[:place] + content[place + 1 :], content[:place] + piece + content[place:])
        )
    if random.random() < 0.05:
        content = content.decode("utf-8", "replace").encode(random.choice(("utf-16-be", "utf-16-le", "utf-32-be")))
    return {"converter": "json", "config": config, "op": "toConnectHeader", "bytes": content.hex()}


def _payload(random: Random, depth: int = 3) -> str:
    kind = random.random()
    if depth and kind < 0.2:
        return f"[{random.choice((',', ' , ')).join(_payload(random, depth - 1) for _ in range(random.randint(0, 3)))}]"
    if depth and kind < 0.45:
        names = random.choices(('"a"', '"b"', '"c"', '"\\u00e9"', '"é"'), k=random.randint(0, 3))
        return f"{{{','.join(f'{name}:{_payload(random, depth - 1)}' for name in names)}}}"
    return random.choice(
        (random.choice(NUMBERS), random.choice(NUMBERS), random.choice(TEXTS), "true", "false", "null")
    )


def _schema(random: Random, depth: int = 2) -> Json:
    kind = random.random()
    facts: dict[str, Any] = {}
    if random.random() < 0.4:
        facts["optional"] = random.choice((True, True, False, "true", None))
    if random.random() < 0.2:
        facts["default"] = random.choice((1, 300, "x", "AQI=", None, True, 1.5, [], [1], {}, {"a": 1}))
    if random.random() < 0.1:
        facts |= random.choice(({"version": 3_000_000_000}, {"name": ""}, {"doc": 5}, {"parameters": {"a": "b"}}))
    if depth and kind < 0.2:
        return {"type": "array", "items": _schema(random, depth - 1)} | facts
    if depth and kind < 0.35:
        keys = {"type": random.choice(("string", "int32", "boolean", "double"))}
        return {"type": "map", "keys": keys, "values": _schema(random, depth - 1)} | facts
    if depth and kind < 0.6:
        names = random.sample("abc", k=random.randint(0, 3))
        return {"type": "struct", "fields": [_schema(random, depth - 1) | {"field": name} for name in names]} | facts
    chosen: dict[str, Any] = dict(random.choice(SCHEMAS))
    return chosen | {"type": JSON_NAMES.get(chosen["type"], chosen["type"].lower())} | facts
