"""Random vectors without results, for Kafka itself to do: texts and values that are near to what it knows."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

from tests.support.connect.forms import Json

DATE = {"type": "INT32", "name": "org.apache.kafka.connect.data.Date", "version": 1}
TIME = {"type": "INT32", "name": "org.apache.kafka.connect.data.Time", "version": 1}
TIMESTAMP = {"type": "INT64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1}
DAY_MS = 86_400_000
SCHEMAS = (None, None, {"type": "STRING"}, DATE, TIME, TIMESTAMP)
CONVERSIONS = (
    *("convertToBoolean", "convertToByte", "convertToShort", "convertToInteger", "convertToLong", "convertToFloat"),
    *("convertToDouble", "convertToDecimal", "convertToDate", "convertToTime", "convertToTimestamp", "convertToList"),
    *("convertToMap", "convertToStruct", "convertToString", "inferSchema"),
)
PIECES = (
    *("[", "]", "{", "}", ",", ":", '"', "\\", " ", "\t", "\n", "-", "+", ".", "e", "E", "T", "Z", "x", "null", "true"),
    *("false", "NaN", "\u221e", "Infinity", "0", "1", "9", "00", "12", "127", "128", "32768", "99999", "2147483648"),
    *("9223372036854775807", "9223372036854775808", "1e19", "3.4e38", "1e39", "1.8e308", "1e-46", "0.1", "16777217.0"),
    *("2017-05-21", "16:31:05.387Z", "2017-05-21T16:31:05.387Z", "16\\:31\\:05.387Z", "\u0661", "\uff15", "\u00b2"),
    *("\u00a0", "\u2003", "\ud800", "\U0001f600", "\x00", "\x1f", "\u00e9", "1E3", "E-", "[]", "{}", '""', '"a"', ", "),
)
DATE_PIECES = ("-", ":", ".", "T", "Z", " ", "\t", "E", "x", "\\:", "\u221e", "NaN", "\u0665", "+", "\U0001f600")
SHAPES = ("y-m-d", "y-m-dx", "h:m:s.fZ", "h:m:s.fZx", "y-m-dTh:m:s.fZ", "y-m-dTh:m:s.fZx")


def random_vectors(seed: int, count: int) -> list[dict[str, Any]]:
    """Return so many vectors, the same for the same seed."""
    random = Random(seed)
    makers: tuple[Callable[[Random], dict[str, Any]], ...] = (_parsed, _parsed, _converted, _written, _read)
    return [makers[number % len(makers)](random) for number in range(count)]


def _parsed(random: Random) -> dict[str, Any]:
    return {"kind": "values", "op": "parseString", "input": random_text(random)}


def _converted(random: Random) -> dict[str, Any]:
    operation = random.choice(CONVERSIONS)
    makers = (random_value, random_value, _near_value)
    vector = {
        "kind": "values",
        "op": operation,
        "schema": random.choice(SCHEMAS),
        "value": random.choice(makers)(random),
    }
    return vector | ({"scale": random.randint(-3, 9)} if operation == "convertToDecimal" else {})


def _near_value(random: Random) -> Json:
    """Return the form of a point in time, a number's text or any text: what most conversions take."""
    if random.random() < 0.5:
        return {"millis": _millis(random)}
    return {"string": random.choice((_number, _date, random_text))(random)}


def _millis(random: Random) -> int:
    ages = (random.randint(-(10**14), 10**14), random.randint(-(10**18), 10**18), random.randint(0, DAY_MS))
    return random.choice((*ages, random.randint(-9, 99) * DAY_MS, random.randint(-(10**6), 10**6) * DAY_MS))


def _written(random: Random) -> dict[str, Any]:
    vector = {"kind": "simple_header_converter", "op": "fromConnectHeader", "schema": None}
    return vector | {"value": random_value(random)}


def _read(random: Random) -> dict[str, Any]:
    if random.random() < 0.5:
        content = random_text(random).encode("utf-8", "surrogatepass")
    else:
        bytes_near_utf8 = (
            0x31,
            0x5B,
            0x80,
            0xA0,
            0xBF,
            0xC0,
            0xC3,
            0xE0,
            0xE2,
            0xED,
            0xF0,
            0xF4,
            0xF5,
            0xFF,
            0x82,
            0x9F,
        )
        content = bytes(random.choices(bytes_near_utf8, k=random.randint(0, 7)))
    return {"kind": "simple_header_converter", "op": "toConnectHeader", "bytes": content.hex()}


def random_text(random: Random) -> str:
    """Return a text: pieces of one, a number, a date, or the literal of a value with a mistake in it, or without."""
    makers = (_pieces, _number, _date, _literal, _broken_literal)
    text = random.choice(makers)(random)
    return random.choice((text, text, text, f" {text}", f"{text} ", f"{text},x", f"[{text}]", f'{{"k":{text}}}'))


def _pieces(random: Random) -> str:
    return "".join(random.choices(PIECES, k=random.randint(0, 9)))


def _number(random: Random) -> str:
    digits = "".join(random.choices("0123456789", k=random.choice((1, 2, 3, 5, 9, 10, 17, 18, 19, 20, 40))))
    point = random.choice(("", "", ".", ".0", ".5", f".{random.randint(0, 10 ** random.randint(1, 20))}"))
    powers = (0, 1, 18, 19, 38, 39, 45, 46, 308, 309, 2**31 - 1, 2**31, 99999999999)
    exponent = random.choice(
        ("", "", "", f"e{random.choice(powers)}", f"E-{random.choice(powers)}", f"e+00{random.choice(powers)}")
    )
    return f"{random.choice(('', '', '-', '+'))}{digits}{point}{exponent}"


def _date(random: Random) -> str:
    """Return a text with the length of a date, a time or a timestamp, and some of what it consists of."""
    parts = []
    for letter in random.choice(SHAPES):
        if letter in "ymdhsf":
            number = str(random.choice((0, 1, 4, 10, 12, 13, 31, 45, 59, 99, 1500, 1582, 1583, 1970, 2017, 99999)))
            number = random.choice((number, number, number, f"0{number}", f"-{number}", f" {number}", f"{number}E1"))
            parts.append(random.choice((number,) * 9 + DATE_PIECES[9:13]))
        else:
            parts.append(random.choice((letter,) * 40 + DATE_PIECES))
    text = "".join(parts)
    length = random.choice((10, 12, 24))
    cut = text[:length].ljust(length, random.choice("x0 "))
    return random.choice((cut, cut, text, f'"{cut}"', f'["{cut}"]', f"[{cut}]", f"{{{cut}:1}}"))


def _literal(random: Random, depth: int = 3) -> str:
    """Return the literal of an array, a map or a scalar."""
    kind = random.random()
    if depth and kind < 0.35:
        return f"[{','.join(_literal(random, depth - 1) for _ in range(random.randint(0, 4)))}]"
    if depth and kind < 0.6:
        pairs = (f"{_literal(random, depth - 1)}:{_literal(random, depth - 1)}" for _ in range(random.randint(0, 3)))
        return f"{{{random.choice((',', ', ', ' ')).join(pairs)}}}"
    scalars = (
        "1",
        "300",
        "70000",
        "5000000000",
        "1.5",
        "1e300",
        "true",
        "false",
        "null",
        '"a"',
        '"b c"',
        '" "',
        '"2017-05-21"',
    )
    more = (
        "2017-05-21",
        "16:31:05.387Z",
        '"16:31:05.387Z"',
        "2017-05-21T16:31:05.387Z",
        "99999999999999999999",
        "1e400",
        "-0.0",
    )
    return random.choice((*scalars, *more, "1.0", "-1e-400", "0", "10e399", " 7", '"\\""', "16777217", "16777216.5"))


def _broken_literal(random: Random) -> str:
    literal = _literal(random)
    place = random.randint(0, len(literal))
    return random.choice(
        (
            literal[:place],
            literal[:place] + literal[place + 1 :],
            literal[:place] + random.choice(PIECES) + literal[place:],
        )
    )


def random_value(random: Random, depth: int = 2) -> Json:
    """Return the form of a value."""
    kind = random.random()
    if depth and kind < 0.15:
        return {"array": [random_value(random, depth - 1) for _ in range(random.randint(0, 3))]}
    if depth and kind < 0.25:
        keys = random.sample(("a", "b", 'q"', "\\", ""), k=random.randint(0, 3))
        forms = [{"string": key} if random.random() < 0.8 else random_value(random, depth - 1) for key in keys]
        return {"map": [[form, random_value(random, depth - 1)] for form in forms]}
    if kind < 0.28:
        return {"struct": _struct(random)}
    if kind < 0.32:
        return None
    bits = random.choice((8, 16, 32, 64))
    integer = random.choice((random.getrandbits(bits), random.randint(-3, 3))) % (1 << bits)
    float_bits = random.choice((random.getrandbits(32), random.randint(0, 300), random.randint(100, 150) << 23))
    double_bits = random.choice((random.getrandbits(64), random.randint(0, 300), random.randint(900, 1200) << 52))
    decimal = Decimal(
        (random.randint(0, 1), tuple(random.choices(range(10), k=random.randint(1, 25))), random.randint(-30, 30))
    )
    return random.choice(
        (
            {"bool": bool(random.getrandbits(1))},
            {f"int{bits}": integer - (1 << bits) if integer >> (bits - 1) else integer},
            {"float32": _float_text(">f", struct.pack(">I", float_bits))},
            {"float64": _float_text(">d", struct.pack(">Q", double_bits))},
            {"decimal": str(decimal if decimal else abs(decimal))},
            {"string": _pieces(random)},
            {"bytes": random.randbytes(random.randint(0, 9)).hex()},
            {"bytebuffer": random.randbytes(random.randint(0, 9)).hex()},
            {"millis": _millis(random)},
            {"bigint": str(random.getrandbits(80))},
        )
    )


def _struct(random: Random) -> Json:
    fields: list[tuple[str, Json, Json]] = [
        ("a", {"type": "INT8", "optional": True}, {"int8": random.randint(-128, 127)}),
        ('b"', {"type": "STRING", "default": {"string": "x\\"}}, {"string": _pieces(random)}),
        ("c", TIMESTAMP | {"optional": True}, {"millis": _millis(random)}),
        ("d e", {"type": "ARRAY", "valueSchema": {"type": "BYTES"}, "optional": True}, {"array": [{"bytes": "00ff"}]}),
    ]
    chosen = random.sample(fields, k=random.randint(0, len(fields)))
    return {
        "schema": {"type": "STRUCT", "fields": [[name, schema] for name, schema, _ in chosen]},
        "fields": [[name, value] for name, _, value in chosen if random.random() < 0.7],
    }


def _float_text(width: str, content: bytes) -> str:
    (value,) = struct.unpack(width, content)
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
