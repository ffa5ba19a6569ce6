"""Values and headers that only who has the key can read, between topics and in state."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Headers, Serdes
from statestore.errors import ConfigException, DeserializationError, SerializationError
from statestore.errors.middleware import ChainOrderError, CiphertextRefusedError, KeyUnusableError, UnknownKeyIdError
from statestore.middleware import Chain, Interceptor
from statestore.middleware.security.encryption import (
    ENCRYPTION_HEADER,
    Encryption,
    HeaderEncryption,
    encrypted_serde,
    open_header,
)
from statestore.middleware.security.keys import AesKey, HmacKey, Keyring
from statestore.middleware.size.compression import Compression
from tests.support.passed_records import arrived, contents, in_columns, produced, shown, started, through
from tests.support.security_keys import AFTER, BEFORE, OLD

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "ciphertexts.json").read_text(encoding="utf-8"))
MARK = (ENCRYPTION_HEADER, b"aes-gcm")
HEADERS: Any = [("a", b"1"), ("b", b"2"), ("a", None), ("a", b"")]


def keys_of_the_vault() -> Keyring:
    """Keys of an executor."""
    return AFTER


def sent_by(interceptor: Interceptor, **record: Any) -> Any:
    (sent,) = Chain([interceptor]).emit(produced(**record))
    return sent


def changed(data: bytes) -> list[bytes]:
    """The data with one bit flipped, each in turn, and cut at each place."""
    flipped = [bytes((*data[:at], data[at] ^ 1 << bit, *data[at + 1 :])) for at in range(len(data)) for bit in range(8)]
    return flipped + [data[:at] for at in range(len(data))] + [data + b"\x00"]


def test_ciphertexts_of_the_first_release_are_read() -> None:
    ring = Keyring({one["key_id"]: AesKey(bytes.fromhex(one["key"])) for one in GOLDEN})
    for one in GOLDEN:
        frame, plain = bytes.fromhex(one["frame"]), bytes.fromhex(one["plain"])
        if one["use"] == "value":
            key = None if one["record_key"] is None else bytes.fromhex(one["record_key"])
            (got,) = Chain([Encryption(ring)]).ingest(arrived(produced(key, frame, topic=one["topic"])))
            assert got.value == plain
        elif one["use"] == "stored":
            assert encrypted_serde(Serdes.bytes(), ring, context=one["context"]).deserialize(frame) == plain
        else:
            assert open_header(Headers([(one["name"], frame)]), one["name"], ring) == plain
    assert {one["use"] for one in GOLDEN} == {"value", "stored", "header"}


@settings(max_examples=40, deadline=None)
@given(key=st.none() | st.binary(max_size=5), value=st.none() | st.binary(max_size=40), bind=st.booleans())
def test_a_value_comes_back_and_was_not_readable(key: bytes | None, value: bytes | None, bind: bool) -> None:
    encryption = Encryption(BEFORE, bind_topic=bind)
    sent = sent_by(encryption, key=key, value=value, headers=HEADERS)
    if value is None:
        assert contents([sent]) == [(key, None, HEADERS)], "null is no value, and says so"
    else:
        assert contents([sent])[0][2] == [*HEADERS, MARK]
        assert len(value) < 4 or value not in sent.value
    assert contents([through(encryption, produced(key, value, HEADERS))]) == [(key, value, HEADERS)]


def test_equal_values_do_not_look_equal() -> None:
    assert sent_by(Encryption(BEFORE)).value != sent_by(Encryption(BEFORE)).value


@pytest.mark.parametrize("bind", [False, True])
def test_a_ciphertext_that_was_changed_or_moved_is_refused(bind: bool) -> None:
    encryption = Encryption(BEFORE, bind_topic=bind)
    sent = sent_by(encryption)
    for value in changed(sent.value):
        with pytest.raises((CiphertextRefusedError, UnknownKeyIdError)):
            Chain([encryption]).ingest(arrived(sent.copy(value=value)))
    for key in (b"other", b"", None):
        with pytest.raises(CiphertextRefusedError, match="changed, moved, or not encrypted by key '1'"):
            Chain([encryption]).ingest(arrived(sent.copy(key=key)))
    mirrored = arrived(sent, topic="eu.orders")
    if bind:
        with pytest.raises(CiphertextRefusedError, match="moved"):
            Chain([encryption]).ingest(mirrored)
    else:
        assert Chain([encryption]).ingest(mirrored)
        with pytest.raises(CiphertextRefusedError, match="not bound to its topic"):
            Chain([Encryption(BEFORE, bind_topic=True)]).ingest(arrived(sent))


def test_keys_rotate_and_unknown_ones_are_refused() -> None:
    old, new = sent_by(Encryption(BEFORE)), sent_by(Encryption(AFTER))
    for sent in (old, new):
        assert contents(Chain([Encryption(AFTER)]).ingest(arrived(sent))) == [(b"k", b"v", [])]
    with pytest.raises(UnknownKeyIdError, match="encryption: the keyring has no key '2'"):
        Chain([Encryption(BEFORE)]).ingest(arrived(new))
    with pytest.raises(UnknownKeyIdError):
        Chain([Encryption(Keyring({"1": HmacKey(b"h" * 32)}))]).ingest(arrived(old))
    for ring in (Keyring({"1": OLD}), Keyring({"1": HmacKey(b"h" * 32)}, "1")):
        with pytest.raises(KeyUnusableError):
            sent_by(Encryption(ring))


def test_what_is_not_encrypted_is_refused_or_passes() -> None:
    plain = produced(headers=HEADERS)
    with pytest.raises(CiphertextRefusedError, match="the value can't be decrypted: it is not encrypted"):
        Chain([Encryption(BEFORE)]).ingest(arrived(plain))
    lenient = Encryption(BEFORE, required=False)
    assert contents(Chain([lenient]).ingest(arrived(plain))) == contents([plain])
    with pytest.raises(CiphertextRefusedError):
        Chain([lenient]).ingest(arrived(produced(headers=[MARK])))
    null_mark = produced(headers=[(MARK[0], None)])
    assert contents(lenient.on_ingest_columns(in_columns([null_mark]))) == [(b"k", b"v", [])]
    assert contents(Chain([lenient]).ingest(arrived(null_mark))) == [(b"k", b"v", [])]
    tombstone = arrived(produced(value=None, headers=[MARK]))
    assert contents(Chain([Encryption(BEFORE)]).ingest(tombstone)) == [(b"k", None, [])]


@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize("values", [[b"v", None, b""], [b"v", b"w"], [None], []], ids=str)
def test_columns_are_encrypted_as_records_are(values: list[bytes | None], bind: bool) -> None:
    encryption = Encryption(BEFORE, bind_topic=bind)
    records = [produced(b"%d" % number, value, HEADERS) for number, value in enumerate(values)]
    sent = encryption.on_emit_columns(in_columns(records))
    one_by_one = [made for record in records for made in encryption.on_emit(record.copy())]
    keys_and_headers = [(key, headers) for key, _, headers in contents(one_by_one)]
    assert [(key, headers) for key, _, headers in contents(sent)] == keys_and_headers
    assert contents(encryption.on_ingest_columns(sent)) == contents(records)
    assert contents(encryption.on_ingest_columns(in_columns(one_by_one))) == contents(records)
    if any(values):
        with pytest.raises(CiphertextRefusedError):
            encryption.on_ingest_columns(in_columns(records))


def test_one_side_may_be_all_that_is_wanted() -> None:
    ring = Keyring({"1": OLD})
    values = Encryption(BEFORE, decrypt=False), Encryption(ring, encrypt=False)
    headers = HeaderEncryption(["a"], BEFORE, open=False), HeaderEncryption(["a"], ring, encrypt=False)
    for sender, receiver in (values, headers):
        (sent,) = Chain([sender]).emit(produced(headers=[("a", b"1")]))
        assert contents(Chain([sender]).ingest(arrived(sent))) == contents([sent])
        assert Chain([receiver]).emit(sent) == [sent]
        columns = in_columns([sent])
        assert sender.on_ingest_columns(columns) is receiver.on_emit_columns(columns) is columns
        assert contents(receiver.on_ingest_columns(columns)) == [(b"k", b"v", [("a", b"1")])]


def test_an_order_that_hides_nothing_is_refused() -> None:
    class ClaimCheck(Interceptor):
        kind = "claim-check"

    Chain([Compression(), HeaderEncryption(["a"], BEFORE), Encryption(BEFORE), ClaimCheck()])
    with pytest.raises(ChainOrderError, match="does not get smaller"):
        Chain([Encryption(BEFORE), Compression()])
    with pytest.raises(ChainOrderError, match="unencrypted"):
        Chain([ClaimCheck(), Encryption(BEFORE)])


# ---- headers ----


def test_a_header_is_encrypted_and_opened() -> None:
    hiding = HeaderEncryption(["a"], BEFORE)
    sent = sent_by(hiding, headers=HEADERS)
    names, values = zip(*contents([sent])[0][2], strict=True)
    assert names == ("a", "b", "a", "a"), "in their places"
    assert values[1:3] == (b"2", None)
    assert values[0] != b"1"
    assert contents(Chain([hiding]).ingest(arrived(sent))) == [(b"k", b"v", HEADERS)]
    untouched = produced(headers=[("c", b"3")])
    assert Chain([hiding]).emit(untouched) == [untouched]


def test_a_header_stays_encrypted_until_somebody_opens_it() -> None:
    leaving = HeaderEncryption(["a", "c"], BEFORE, open=False)
    sent = sent_by(leaving, headers=HEADERS[:2])
    (kept,) = Chain([leaving]).ingest(arrived(sent))
    assert contents([kept]) == contents([sent])
    assert open_header(kept.headers, "a", AFTER) == b"1"
    assert open_header(kept.headers, "c", AFTER) is None
    assert open_header(Headers([("a", None)]), "a", AFTER) is None
    (again,) = Chain([leaving]).emit(produced(headers=kept.headers))
    assert again.headers == kept.headers, "it is not encrypted twice"
    with pytest.raises(CiphertextRefusedError, match="header 'b' can't be decrypted: it is not encrypted"):
        open_header(kept.headers, "b", AFTER)
    with pytest.raises(CiphertextRefusedError, match="moved"):
        open_header(Headers([("c", kept.headers.last_header("a").value)]), "c", AFTER)


def test_what_only_looks_encrypted_is_encrypted() -> None:
    alike = b"\xec\x01\x00\x011" + b"x" * 40
    hiding = HeaderEncryption(["a"], BEFORE)
    sent = sent_by(hiding, headers=[("a", alike)])
    assert sent.headers.last_header("a").value != alike
    assert contents(Chain([hiding]).ingest(arrived(sent)))[0][2] == [("a", alike)]


def test_a_header_that_is_not_encrypted_is_refused_or_passes() -> None:
    plain = produced(headers=HEADERS)
    with pytest.raises(CiphertextRefusedError, match="header 'a'"):
        Chain([HeaderEncryption(["a"], BEFORE)]).ingest(arrived(plain))
    lenient = HeaderEncryption(["a"], BEFORE, required=False)
    assert contents(Chain([lenient]).ingest(arrived(plain))) == contents([plain])


def test_columns_of_headers_are_encrypted_as_records_are() -> None:
    records = [produced(headers=HEADERS), produced(headers=[("b", b"a")]), produced()]
    hiding = HeaderEncryption(["a"], BEFORE)
    sent = hiding.on_emit_columns(in_columns(records))
    assert contents(sent)[0] != contents(records)[0]
    assert contents(sent)[1:] == contents(records)[1:]
    assert contents(hiding.on_ingest_columns(sent)) == contents(records)
    assert HeaderEncryption(["a"], BEFORE, open=False).on_ingest_columns(sent) is sent


# ---- serdes ----


@pytest.mark.parametrize("serde", [Serdes.string(), Serdes.json(), Serdes.int64()], ids=lambda serde: serde.name)
def test_an_encrypted_serde_writes_ciphertext(serde: Any) -> None:
    value = 7 if serde.name == "int64" else "plain text"
    before, after = (pickle.loads(pickle.dumps(encrypted_serde(serde, ring))) for ring in (BEFORE, AFTER))
    data = before.serialize(value)
    assert serde.serialize(value) not in data
    assert [before.deserialize(data), after.deserialize(data)] == [value, value]
    assert before.name == f"encrypted {serde.name}"
    assert after.on_topic("orders").deserialize(after.on_topic("orders").serialize(value, None), None) == value
    with pytest.raises(DeserializationError, match="no key '2'"):
        before.deserialize(after.serialize(value))
    for other in changed(data):
        with pytest.raises(DeserializationError, match="encrypted"):
            after.deserialize(other)
    if serde.columns is not None:
        column = serde.columns.deserialize(pa.array([serde.serialize(value), None]))
        written = after.columns.serialize(column)
        assert written.is_null().to_pylist() == [False, True]
        assert after.deserialize(written[0].as_py()) == value
        assert after.columns.deserialize(written).equals(column)
        assert after.columns.deserialize(pa.array([data])).to_pylist() == [value]


def test_an_encrypted_serde_is_bound_to_its_context() -> None:
    totals, names = (encrypted_serde(Serdes.string(), BEFORE, context=store) for store in ("totals", "names"))
    with pytest.raises(DeserializationError, match="moved"):
        names.deserialize(totals.serialize("x"))
    assert totals == encrypted_serde(Serdes.string(), BEFORE, context="totals")


def test_a_serde_of_topics_and_headers_is_encrypted_too() -> None:
    def serialize(topic: str | None, headers: Any, value: str) -> bytes:
        if headers is not None:
            headers.add("of", str(topic).encode())
        return value.encode()

    serde = Serdes.of_topics("text", serialize, lambda topic, headers, data: f"{topic}:{data.decode()}")
    sealed = encrypted_serde(serde, BEFORE)
    headers = Headers()
    data = sealed.on_topic("t").serialize("a secret", headers)
    assert (b"a secret" in data, list(headers)) == (False, [("of", b"t")])
    assert sealed.on_topic("t").deserialize(data, headers) == "t:a secret"
    assert sealed.deserialize(data) == "None:a secret"


def test_errors_of_an_encrypted_serde_show_no_value() -> None:
    strings, numbers = (encrypted_serde(serde, BEFORE) for serde in (Serdes.string(), Serdes.int64()))
    with pytest.raises(SerializationError) as written:
        numbers.serialize("the secret")  # type: ignore[arg-type]
    with pytest.raises(DeserializationError) as read:
        numbers.deserialize(strings.serialize("the secret"))
    with pytest.raises(SerializationError) as column:
        numbers.columns.serialize(pa.array(["the secret"]))
    for raised in (written, read, column):
        assert "secret" not in shown(raised.value)
        assert "encrypted int64: can't" in str(raised.value)


# ---- where keys come from ----


def test_it_is_made_by_a_configuration_and_travels() -> None:
    config = {
        f"statestore.{kind}.keys": f"{__name__}:keys_of_the_vault" for kind in ("encryption", "header-encryption")
    }
    values = Encryption.from_config(config)
    headers = HeaderEncryption.from_config({**config, "statestore.header-encryption.names": "a"})
    for made in (values, headers):
        again = started(pickle.loads(pickle.dumps(made)))
        assert contents([through(again, produced(headers=HEADERS))]) == [(b"k", b"v", HEADERS)]
        assert repr(made) == f"{type(made).__name__}(keys_of_the_vault)"
    with pytest.raises(ConfigException, match="names"):
        HeaderEncryption.from_config(config)


def test_provided_keys_are_asked_for_anew_in_each_batch() -> None:
    rings = [BEFORE, AFTER]
    encryption = Encryption(lambda: rings.pop(0))
    first = sent_by(started(encryption))
    assert sent_by(encryption).value[4:5] == first.value[4:5]
    started(encryption)
    assert contents(Chain([encryption]).ingest(arrived(first))) == [(b"k", b"v", [])]
    assert sent_by(encryption).value[4:5] == b"2"
    with pytest.raises(TypeError, match="must return a Keyring"):
        sent_by(Encryption(lambda: b"key"))  # type: ignore[arg-type,return-value]
