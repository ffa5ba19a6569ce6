"""Large values lie elsewhere, under their hash, and come back as they were or not at all."""

from __future__ import annotations

import os
import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statestore import Headers, Processor, ProcessorContext, Record, Serdes, Topology
from statestore.errors import ConfigException, LocationError
from statestore.errors.middleware import ChainOrderError, ClaimError, ClaimMissingError
from statestore.middleware import Chain, EmittedRecord, FailureHandling, Interceptor
from statestore.middleware.size.claim_check import CLAIM_CHECK_HEADER, ClaimCheck, delete_objects
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.passed_records import arrived, in_columns, produced, through

VALUE = bytes(range(256)) * 20
HASH = sha256(VALUE).hexdigest()
PATH = f"objects/{HASH[:2]}/{HASH}"
CLAIM = f"1;size={len(VALUE)};sha256={HASH};path={PATH}".encode()
HEADERS = [("trace", b"\x01")]


@pytest.fixture
def check(tmp_path: Path) -> ClaimCheck:
    return ClaimCheck(tmp_path, threshold_bytes=1000, max_bytes=10_000)


def emitted(check: ClaimCheck, value: bytes | None, headers: Any = HEADERS) -> EmittedRecord:
    (record,) = Chain([check]).emit(produced(b"k", value, headers))
    return record


def claimed(check: ClaimCheck, claim: bytes | None, value: bytes | None = b"") -> Any:
    (record,) = Chain([check]).ingest(arrived(produced(b"k", value, [(CLAIM_CHECK_HEADER, claim)])))
    return record


def test_a_large_value_is_checked_in_and_comes_back(check: ClaimCheck, tmp_path: Path) -> None:
    sent = emitted(check, VALUE)
    assert (sent.value, list(sent.headers)) == (b"", [*HEADERS, (CLAIM_CHECK_HEADER, CLAIM)])
    assert (tmp_path / PATH).read_bytes() == VALUE
    back = through(check, produced(b"k", VALUE, HEADERS))
    assert (back.key, back.value, list(back.headers)) == (b"k", VALUE, HEADERS)


@pytest.mark.parametrize("value", [None, b"", b"a" * 1000])
def test_what_is_small_enough_is_untouched(check: ClaimCheck, value: bytes | None, tmp_path: Path) -> None:
    sent = emitted(check, value)
    assert (sent.value, list(sent.headers), list(tmp_path.iterdir())) == (value, HEADERS, [])
    assert through(check, produced(value=value)).value == value


def test_a_retry_writes_the_same_object_anew(check: ClaimCheck, tmp_path: Path) -> None:
    emitted(check, VALUE)
    os.utime(tmp_path / PATH, (1000, 1000))
    again = emitted(check, VALUE)
    assert list(again.headers)[-1].value == CLAIM
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / PATH]
    assert (tmp_path / PATH).stat().st_mtime > 1000, "or it would be deleted before its last record"


def test_a_record_is_not_emitted_unless_its_value_was_written(tmp_path: Path) -> None:
    (tmp_path / "objects").write_bytes(b"no directory")
    with pytest.raises(LocationError):
        emitted(ClaimCheck(tmp_path, threshold_bytes=10), VALUE)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/etc/passwd", "another path"),
        ("../../etc/passwd", "another path"),
        (f"objects/../{PATH}", "another path"),
        ("objects/" + HASH, "another path"),
        ("s3://bucket/" + PATH, "another path"),
        (PATH + "/..", "another path"),
        ("", "not a claim"),
        ("a b", "not a claim"),
        ("x" * 2000, "not a claim"),
    ],
)
def test_no_path_but_that_of_the_hash_is_followed(check: ClaimCheck, path: str, problem: str) -> None:
    emitted(check, VALUE)
    with pytest.raises(ClaimError, match=problem) as raised:
        claimed(check, f"1;size={len(VALUE)};sha256={HASH};path={path}".encode())
    assert "passwd" not in str(raised.value)


@pytest.mark.parametrize(
    "claim",
    [
        b"",
        b"2" + CLAIM[1:],
        CLAIM.replace(b"size=5120", b"size=-1"),
        CLAIM.replace(b"size=5120", b"size=" + b"9" * 11),
        CLAIM.upper(),
        b"\xff" * 10_000,
    ],
)
def test_malformed_claims_are_refused(check: ClaimCheck, claim: bytes) -> None:
    with pytest.raises(ClaimError, match="is not a claim of version 1"):
        claimed(check, claim)


def test_a_missing_object_is_told_apart_from_one_that_is_wrong(check: ClaimCheck, tmp_path: Path) -> None:
    with pytest.raises(ClaimMissingError) as raised:
        claimed(check, CLAIM)
    assert (raised.value.path, raised.value.location) == (PATH, tmp_path.as_uri())
    emitted(check, VALUE)
    for wrong in (VALUE[:-1], VALUE + b"x", VALUE[:-1] + b"!", b"", VALUE * 1000):
        (tmp_path / PATH).write_bytes(wrong)
        with pytest.raises(ClaimError, match="not what was checked in") as other:
            claimed(check, CLAIM)
        assert not isinstance(other.value, ClaimMissingError)


def test_sizes_are_bounded_on_either_side(check: ClaimCheck, tmp_path: Path) -> None:
    with pytest.raises(ClaimError, match="10000 are allowed"):
        emitted(check, b"x" * 10_001)
    emitted(ClaimCheck(tmp_path, threshold_bytes=10), b"x" * 10_001)
    large = sha256(b"x" * 10_001).hexdigest()
    with pytest.raises(ClaimError, match="10000 are allowed"):
        claimed(check, f"1;size=10001;sha256={large};path=objects/{large[:2]}/{large}".encode())


def test_a_claim_counts_only_with_an_empty_value(check: ClaimCheck) -> None:
    for value in (None, b"v"):
        record = claimed(check, CLAIM, value)
        assert (record.value, list(record.headers)) == (value, [(CLAIM_CHECK_HEADER, CLAIM)])
    assert list(emitted(check, b"new", [(CLAIM_CHECK_HEADER, CLAIM)]).headers) == []
    assert claimed(check, None).value == b""


def test_a_lazy_claim_is_opened_by_user_code_and_forwarded_as_it_is(tmp_path: Path) -> None:
    lazy = ClaimCheck(tmp_path, threshold_bytes=1000, lazy=True)
    emitted(lazy, VALUE)
    sizes: list[int] = []

    class Sizes(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: Record[Any, Any]) -> None:
            assert record.value == b""
            sizes.append(len(lazy.fetch(record.headers)))
            self.context.forward(record)

    topology = Topology()
    topology.add_source("in", "in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    topology.add_processor("sizes", Sizes, ["in"])
    topology.add_sink("out", "out", ["sizes"], key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    with TopologyTestDriver(topology, interceptors=[lazy]) as driver:
        ends = {"key_serde": Serdes.bytes(), "value_serde": Serdes.bytes()}
        driver.create_input_topic("in", **ends).pipe_record_list(
            [TestRecord(b"k", b"", 0, Headers([(CLAIM_CHECK_HEADER, CLAIM)]))]
        )
        sent = driver.create_output_topic("out", **ends).read_record()
    assert (sizes, sent.value, list(sent.headers)) == ([len(VALUE)], b"", [(CLAIM_CHECK_HEADER, CLAIM)])
    with pytest.raises(ClaimError, match="it has no header"):
        lazy.fetch(Headers())


def test_a_claim_that_goes_on_untouched_has_its_object_written_anew(check: ClaimCheck, tmp_path: Path) -> None:
    emitted(check, VALUE)
    os.utime(tmp_path / PATH, (1000, 1000))
    claim = [*HEADERS, (CLAIM_CHECK_HEADER, CLAIM)]
    assert list(emitted(check, b"", claim).headers) == claim
    assert (tmp_path / PATH).stat().st_mtime > 1000
    assert (tmp_path / PATH).read_bytes() == VALUE
    assert list(emitted(check, b"", [(CLAIM_CHECK_HEADER, None)]).headers) == [(CLAIM_CHECK_HEADER, None)]


def test_a_claim_that_nobody_could_follow_does_not_go_on(check: ClaimCheck, tmp_path: Path) -> None:
    with pytest.raises(ClaimMissingError):
        emitted(check, b"", [(CLAIM_CHECK_HEADER, CLAIM)])
    with pytest.raises(ClaimError, match="not a claim"):
        emitted(check, b"", [(CLAIM_CHECK_HEADER, b"anything")])
    (tmp_path / PATH).parent.mkdir(parents=True)
    (tmp_path / PATH).write_bytes(VALUE[:-1])
    with pytest.raises(ClaimError, match="not what was checked in"):
        emitted(check, b"", [(CLAIM_CHECK_HEADER, CLAIM)])


def test_a_missing_object_is_a_dead_letter_in_columns_and_alone(check: ClaimCheck) -> None:
    topology = Topology()
    ends: dict[str, Any] = {"key_serde": Serdes.bytes(), "value_serde": Serdes.bytes()}
    topology.add_source("in", "in", **ends)
    topology.add_sink("out", "out", ["in"], **ends)
    emitted(check, VALUE)
    other = CLAIM.replace(HASH.encode(), b"0" * 64).replace(b"objects/" + HASH[:2].encode(), b"objects/00")
    records = [
        TestRecord(b"k", value, 0, Headers(headers))
        for value, headers in [
            (b"v", []),
            (b"", [(CLAIM_CHECK_HEADER, CLAIM)]),
            (b"", [(CLAIM_CHECK_HEADER, other)]),
        ]
    ]
    with TopologyTestDriver(topology, interceptors=[check], failures=FailureHandling(dead_letters="dead")) as driver:
        source, out, dead = (
            driver.create_input_topic("in", **ends),
            driver.create_output_topic("out", **ends),
            driver.create_output_topic("dead", **ends),
        )
        for pipe in (source.pipe_record_list, source.pipe_micro_batch):
            pipe(records)
            assert [each.value for each in out.read_records_to_list()] == [b"v", b""]
            (letter,) = dead.read_records_to_list()
            assert letter.headers.last_header("__connect.errors.exception.class.name").value.endswith(
                b"ClaimMissingError"
            )


def test_columns_without_claims_are_handed_on(check: ClaimCheck) -> None:
    plain = in_columns([produced(value=b"v"), produced(value=None)])
    assert check.on_emit_columns(plain) is plain
    assert check.on_ingest_columns(plain) is plain
    assert check.on_emit_columns(in_columns([produced(value=VALUE)])) is None
    claim = in_columns([produced(value=b"", headers=[(CLAIM_CHECK_HEADER, CLAIM)])])
    assert check.on_ingest_columns(claim) is None
    assert check.on_emit_columns(claim) is None
    assert ClaimCheck(check.location, lazy=True).on_ingest_columns(claim) is claim


def test_old_objects_are_deleted_and_nothing_else(check: ClaimCheck, tmp_path: Path) -> None:
    emitted(check, VALUE)
    emitted(check, VALUE + b"new")
    for name in ("objects/notes.txt", f"objects/{HASH[:2]}/notes.txt", "shards/0"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("kept")
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.read_bytes() != VALUE + b"new":
            os.utime(path, (1000, 1000))
    assert delete_objects(tmp_path, 999_000, live=()) == 0
    assert delete_objects(tmp_path, 2_000_000, live=[CLAIM]) == 0
    with pytest.raises(ClaimError, match="not a claim"):
        delete_objects(tmp_path, 2_000_000, live=[b"anything"])
    assert delete_objects(tmp_path, 2_000_000, live=()) == 1
    assert not (tmp_path / PATH).exists()
    assert delete_objects(tmp_path, 2_000_000, live=()) == 0
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 4
    assert delete_objects(tmp_path / "elsewhere", 2_000_000, live=()) == 0


def test_it_travels_and_shows_no_secret(tmp_path: Path) -> None:
    check = pickle.loads(pickle.dumps(ClaimCheck(tmp_path, threshold_bytes=10)))
    assert through(check, produced(value=VALUE)).value == VALUE
    assert repr(ClaimCheck("s3://key:secret@bucket/values")) == "ClaimCheck('s3://bucket/values')"


def test_it_is_made_of_a_configuration(tmp_path: Path) -> None:
    made = ClaimCheck.from_config(
        {"statestore.claim-check.location": str(tmp_path), "statestore.claim-check.threshold.bytes": "10"}
    )
    assert emitted(made, VALUE).value == b""
    with pytest.raises(ConfigException, match=r"statestore\.claim-check\.location"):
        ClaimCheck.from_config({})
    with pytest.raises(ValueError, match="must hold"):
        ClaimCheck(tmp_path, threshold_bytes=10, max_bytes=9)


@pytest.mark.parametrize("kind", ["compression", "encryption", "schema"])
def test_what_has_to_come_before_is_said(kind: str, check: ClaimCheck) -> None:
    other = type("Other", (Interceptor,), {"kind": kind})()
    with pytest.raises(ChainOrderError, match=r"elsewhere by then|in clear"):
        Chain([check, other])
    Chain([other, check])
