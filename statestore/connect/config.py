"""Properties as Kafka defines and reads them: a name, a type, a default or none, a rule, and what it is for.

Values come as text, as they stand in a file, or as Python values of the type. Errors say what Kafka's say, with the
full name of the property. Source: Kafka's `ConfigDef` of 4.3.1.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from statestore.connect.scalars import in_range
from statestore.errors import ConfigException

_LOG = logging.getLogger(__name__)

REQUIRED: Final = object()
"""The default of a property that has none."""

Rule = Callable[[str, Any], Any]
"""Takes the full name of a property and its value, None too; returns the value to keep, or raises ConfigException."""

_CONTROLS_AND_SPACE: Final = "".join(map(chr, range(0x21)))  # what Java's String.trim takes off
_WHITESPACE: Final = " \t\n\x0b\f\r"  # what \\s is in Java
_INTEGER: Final = re.compile(r"[+-]?\d{1,64}")
_LONGEST_HINTED_NAME: Final = 200  # difflib is quadratic


class ConfigType(Enum):
    """What the value of a property is."""

    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    LIST = "list"
    CLASS = "class"


@dataclass(frozen=True)
class Property:
    """A property that may be set.

    Args:
        name: without the prefix of what it belongs to.
        type: what its value is.
        default: what stands for it if it is not set; REQUIRED if it must be.
        rule: what else must be true of its value, its default too.
        doc: what it is for.
        aliases: other names of it; only one of all may be set.
        classes: of CLASS, what stands for the Java classes that are known, by full name.
    """

    name: str
    type: ConfigType = ConfigType.STRING
    default: Any = REQUIRED
    rule: Rule | None = None
    doc: str = ""
    aliases: tuple[str, ...] = ()
    classes: Mapping[str, Any] | None = None


class Properties(Mapping[str, Any]):
    """Properties with what their names begin with where they come from: errors and warnings say the full name."""

    def __init__(self, entries: Mapping[str, Any], prefix: str = "") -> None:
        """Take properties, named without the prefix. Raises ConfigException for a name that is not a str."""
        self.prefix: Final = prefix
        self._entries: Final = dict(entries)
        for name, value in self._entries.items():
            if not isinstance(name, str):
                raise invalid(prefix + str(name), value, "Key must be a string.")

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def full_name(self, name: str) -> str:
        """Return the name with the prefix."""
        return self.prefix + name

    def below(self, prefix: str) -> Properties:
        """Return those whose names begin with a prefix, such as "transforms.a.", named without it."""
        found = {name[len(prefix) :]: value for name, value in self.items() if name.startswith(prefix)}
        return Properties(found, self.prefix + prefix)

    def without(self, *names: str) -> Properties:
        """Return the properties but these."""
        return Properties({name: value for name, value in self.items() if name not in names}, self.prefix)


class ConfigDef:
    """The properties that something has."""

    def __init__(self, *properties: Property) -> None:
        self.properties: Final = properties

    def __repr__(self) -> str:
        return f"ConfigDef({', '.join(known.name for known in self.properties)})"

    @property
    def names(self) -> list[str]:
        """The names of all of them, aliases included."""
        return [name for known in self.properties for name in (known.name, *known.aliases)]

    def parse(self, properties: Mapping[str, Any], *, warn: bool = True) -> dict[str, Any]:
        """Return the value of each property, and warn of others unless told not to.

        Raises ConfigException if a required one is missing, or a value is not of its type, or breaks its rule.
        """
        given = properties if isinstance(properties, Properties) else Properties(properties)
        if warn:
            warn_of_unknown((given.full_name(name) for name in given), [given.full_name(name) for name in self.names])
        return {known.name: _value(known, given) for known in self.properties}


def _value(known: Property, given: Properties) -> Any:
    set_names = [name for name in (known.name, *known.aliases) if name in given]
    full_name = given.full_name(set_names[0] if set_names else known.name)
    if len(set_names) > 1:
        other = given.full_name(set_names[1])
        raise ConfigException(
            f"{full_name} and {other} are one property: give one of them", name=other, value=given[set_names[1]]
        )
    if set_names:
        value = parse_type(full_name, given[set_names[0]], known.type, known.classes)
    elif known.default is REQUIRED:
        raise ConfigException(
            f'Missing required configuration "{full_name}" which has no default value.', name=full_name
        )
    else:
        value = known.default
    return value if known.rule is None else known.rule(full_name, value)


def parse_type(name: str, value: Any, type: ConfigType, classes: Mapping[str, Any] | None = None) -> Any:
    """Return a value, text or what it stands for, as one of a type; None as None.

    Blanks and control characters around a text are taken off. Raises ConfigException if it is not of that type.
    """
    if value is None:
        return None
    return _PARSERS[type](name, value.strip(_CONTROLS_AND_SPACE) if isinstance(value, str) else value, value, classes)


def _boolean(name: str, value: Any, given: Any, _: object) -> bool:
    if isinstance(value, bool):
        return value
    found = {"TRUE": True, "FALSE": False}.get(value.upper()) if isinstance(value, str) else None
    if found is None:
        raise invalid(name, given, "Expected value to be either true or false")
    return found


def _string(name: str, value: Any, given: Any, _: object) -> str:
    if not isinstance(value, str):
        raise invalid(name, given, f"Expected value to be a string, but it was a {_kind(value)}")
    return value


def _integer(bits: int, kind: str) -> Callable[[str, Any, Any, object], int]:
    def parse(name: str, value: Any, given: Any, _: object) -> int:
        if isinstance(value, str):
            if _INTEGER.fullmatch(value) is None or not in_range(int(value), bits):
                raise invalid(name, given, f"Not a number of type {kind}")
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not in_range(value, bits):
            raise invalid(name, given, f"Expected value to be a {bits}-bit integer, but it was a {_kind(value)}")
        return value

    return parse


def _list(name: str, value: Any, given: Any, _: object) -> list[Any]:
    if isinstance(value, list | tuple) and all(isinstance(element, str) for element in value):
        return list(value)
    if not isinstance(value, str):
        raise invalid(name, given, "Expected a comma separated list.")
    return [element.strip(_WHITESPACE) for element in value.split(",")] if value else []


def _class(name: str, value: Any, given: Any, classes: Mapping[str, Any] | None) -> Any:
    if not isinstance(value, str):
        return value
    known = classes or {}
    short = {full.rpartition(".")[2]: full for full in known}
    if value in known or value in short:
        return known[short.get(value, value)]
    module, _, class_name = value.partition(":")
    if not class_name:
        hint = _nearest(value, [*known, *short])
        raise invalid(
            name, given, f"Class {value} could not be found.{hint} A class of Python is written module:Class."
        )
    try:
        found: Any = importlib.import_module(module)
        for part in class_name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as cause:
        raise invalid(name, given, f"Class {value} could not be found: {cause}") from cause
    return found


_PARSERS: Final[dict[ConfigType, Callable[[str, Any, Any, Mapping[str, Any] | None], Any]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: _string,
    ConfigType.INT: _integer(32, "INT"),
    ConfigType.LONG: _integer(64, "LONG"),
    ConfigType.LIST: _list,
    ConfigType.CLASS: _class,
}


def invalid(name: str, value: Any, why: str) -> ConfigException:
    """Return the error that a property's value is wrong."""
    return ConfigException(f"Invalid value {_shown(value)} for configuration {name}: {why}", name=name, value=value)


def _kind(value: Any) -> str:
    return type(value).__name__


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- rules ----


def non_null(name: str, value: Any) -> Any:
    """Refuse None."""
    if value is None:
        raise invalid(name, value, "entry must be non null")
    return value


def non_empty_string(name: str, value: Any) -> Any:
    """Refuse "", but not None."""
    if value == "":
        raise invalid(name, value, "String must be non-empty")
    return value


def non_empty_list(name: str, value: Any) -> Any:
    """Refuse a list without elements, and None; elements may be "" and equal."""
    if not value:
        raise invalid(name, value, "Empty list")
    return value


def distinct_values(name: str, value: Any) -> Any:
    """Refuse None, no elements, and elements that are ""; of equal ones keep the first."""
    if value is not None and not value:
        raise ConfigException(
            f"Configuration '{name}' must not be empty. Valid values include: any non-empty value",
            name=name,
            value=value,
        )
    return distinct_or_none(name, value)


def distinct_or_none(name: str, value: Any) -> Any:
    """Do what `distinct_values` does, but take a list without elements."""
    if value is None:
        raise ConfigException(f"Configuration '{name}' values must not be null.", name=name)
    if "" in value:
        raise ConfigException(f"Configuration '{name}' values must not be empty.", name=name, value=value)
    return list(dict.fromkeys(value))


def one_of(*allowed: str, ignore_case: bool = False) -> Rule:
    """Return the rule that a value is one of these; None is refused."""

    def check(name: str, value: Any) -> Any:
        known = [each.upper() for each in allowed] if ignore_case else allowed
        if value is None or (value.upper() if ignore_case else value) not in known:
            how = " (case insensitive)" if ignore_case else ""
            raise invalid(name, value, f"String must be one of{how}: {', '.join(allowed)}")
        return value

    return check


def every(*rules: Rule) -> Rule:
    """Return the rule that all of several hold, in this order."""

    def check(name: str, value: Any) -> Any:
        for rule in rules:
            value = rule(name, value)
        return value

    return check


# ---- names that nobody knows ----


def warn_of_unknown(names: Iterable[str], known: Sequence[str]) -> None:
    """Log a warning for each name that is not known, with the known one that it is most like."""
    for name in names:
        if name not in known:
            shown = name[:_LONGEST_HINTED_NAME]
            _LOG.warning("Property %r is not known, and does nothing.%s", shown, _nearest(name, known))


def warn_of_meaningless(names: Sequence[str]) -> None:
    """Log one warning for all properties that are known, and do nothing here."""
    if names:
        _LOG.warning("These properties have no meaning here, and do nothing: %s", ", ".join(map(repr, names)))


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=1) if len(name) <= _LONGEST_HINTED_NAME else []
    return f" Did you mean {found[0]!r}?" if found else ""
