"""Properties of a connector whose one step moves a field of the value to a header."""

from __future__ import annotations

from typing import Final

REGION_TO_HEADER: Final = {
    "transforms": "region",
    "transforms.region.type": "org.apache.kafka.connect.transforms.HeaderFrom$Value",
    "transforms.region.fields": "region",
    "transforms.region.headers": "region",
    "transforms.region.operation": "move",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
}
