"""The table of KIP-1271's names is complete, and what it names is there."""

from __future__ import annotations

import re
from functools import reduce
from typing import Any, Final

import pytest

import statestore.testing
import statestore.view
from tests.support.documentation import ROOT

PAGE = ROOT / "docs" / "kip-1271.md"
ROW = re.compile(r"^\| `(?P<theirs>[\w.]+)`(?: \(4\.3\.1\))? \| (?:`(?P<ours>[\w.]+)`|none) \|", re.M)
ROWS = list(ROW.finditer(PAGE.read_text(encoding="utf-8")))

# What the KIP's section "Proposed Changes" shows, and what the released classes have beyond it.
KIP: Final = {
    "ValueTimestampHeaders": "make makeAllowNullable getValueOrNull value timestamp headers",
    "VersionedRecordWithHeaders": "validTo",
    "AggregationWithHeaders": "make makeAllowNullable getAggregationOrNull aggregation headers",
    "TimestampedKeyValueStoreWithHeaders": "",
    "VersionedKeyValueStoreWithHeaders": "put",
    "TimestampedWindowStoreWithHeaders": "",
    "SessionStoreWithHeaders": "",
    "ReadOnlySessionStoreWithHeaders": "",
    "HeaderBytesStore": "",
    "HeadersBytesStore": "convertToHeaderFormat convertFromPlainToHeaderFormat",
    "HeadersBytesStoreSupplier": "",
    "StateSerdes": "keyFrom valueFrom rawKey rawValue",
    "Stores": "persistentTimestampedKeyValueStoreWithHeaders persistentVersionedKeyValueStoreWithHeaders "
    "persistentTimestampedWindowStoreWithHeaders persistentSessionStoreWithHeaders "
    "timestampedKeyValueStoreWithHeadersBuilder versionedKeyValueStoreWithHeadersBuilder "
    "timestampedWindowStoreWithHeadersBuilder sessionStoreWithHeadersBuilder",
    "TopologyTestDriver": "getTimestampedKeyValueStoreWithHeaders getVersionedKeyValueStoreWithHeaders "
    "getTimestampedWindowStoreWithHeaders getSessionStoreWithHeaders",
    "QueryableStoreTypes": "timestampedKeyValueStoreWithHeaders timestampedWindowStoreWithHeaders "
    "sessionStoreWithHeaders",
}
OLDER: Final = {"Stores", "TopologyTestDriver", "QueryableStoreTypes"}
"""Classes that the KIP only adds methods to."""


def test_each_name_of_the_kip_has_a_row() -> None:
    classes = {name for name in KIP if name not in OLDER}
    methods = {f"{name}.{method}" for name, all_of in KIP.items() for method in all_of.split()}
    assert {row["theirs"] for row in ROWS} == classes | methods
    assert len(ROWS) == len(classes | methods)
    assert PAGE.read_text(encoding="utf-8").count("\n| `") == len(ROWS), "every row of the table is one"


@pytest.mark.parametrize("row", [row for row in ROWS if row["ours"]], ids=lambda row: str(row["ours"]))
def test_what_a_row_names_is_there(row: re.Match[str]) -> None:
    name, *attributes = row["ours"].split(".")
    elsewhere = {"TopologyTestDriver": statestore.testing, "QueryableStoreTypes": statestore.view}
    module = elsewhere.get(name, statestore)
    assert name in module.__all__
    found: Any = reduce(getattr, attributes, getattr(module, name))
    assert found.__doc__


def test_every_name_with_headers_that_is_exported_is_in_the_table() -> None:
    ours = {row["ours"] for row in ROWS}
    with_headers = {name for name in statestore.__all__ if re.search(r"Headers?(Bytes|$)", name)}
    assert with_headers - {"Header", "Headers"} <= ours
