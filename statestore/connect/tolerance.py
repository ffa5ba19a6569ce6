"""What a connector's configuration says about records that fail. Source: KIP-298; Kafka's `SinkConnectorConfig`.

Kafka tolerates what converters and transformations raise, and nothing that the connector's own code does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from statestore.connect.config import ConfigDef, ConfigType, Property, one_of, warn_of_meaningless

_ALL: Final = "all"
_TOLERANCE: Final = "errors.tolerance"
_TOPIC: Final = "errors.deadletterqueue.topic.name"
_CONTEXT: Final = "errors.deadletterqueue.context.headers.enable"
_LOG: Final = "errors.log.enable"
_MESSAGES: Final = "errors.log.include.messages"
_NAME: Final = "name"
_CONFIG: Final = ConfigDef(
    Property(_TOLERANCE, default="none", rule=one_of("none", _ALL), doc="all leaves out what fails"),
    Property(_TOPIC, default="", doc="the topic for dead letters; none if it is empty"),
    Property(_CONTEXT, ConfigType.BOOLEAN, default=False, doc="whether they say what was wrong"),
    Property(_LOG, ConfigType.BOOLEAN, default=False, doc="whether each record that is left out is logged"),
    Property(_MESSAGES, ConfigType.BOOLEAN, default=False, doc="Logs say where a record is, and never what it holds."),
    Property(_NAME, default=None, doc="what dead letters call the query"),
)


@dataclass(frozen=True)
class Tolerance:
    """What is done about records that can't be read or transformed, if the query does not say it."""

    is_on: bool = False
    topic: str = ""
    """The topic for dead letters, if it is on; "" if there is none, and records are left out."""
    name: str | None = None
    with_context: bool = False
    logs_all: bool = False

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Tolerance:
        """Return what a connector's properties say. Raises ConfigException for a value that is wrong."""
        found = _CONFIG.parse(properties, warn=False)
        return cls(found[_TOLERANCE] == _ALL, found[_TOPIC] or "", found[_NAME], found[_CONTEXT], found[_LOG])

    @property
    def properties(self) -> tuple[str, ...]:
        """The names of the properties that mean something, as the others are."""
        of_letters = (_TOPIC, _CONTEXT, _NAME) if self.is_on else ()
        return (_TOLERANCE, _LOG, _MESSAGES, *of_letters)

    def warn_of_topic(self) -> None:
        """Log a warning that the topic for dead letters does nothing: the query has another one."""
        warn_of_meaningless([_TOPIC])
