"""Signatures: what was signed is verified, and nothing else is."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.errors import ConfigException, SignatureRefusedError
from statestore.errors.middleware import ChainOrderError, KeyUnusableError, UnknownKeyIdError
from statestore.kip82.id_headers import HeaderIds
from statestore.middleware import Chain
from statestore.middleware.lifetime.expiry import ExpiryHeader
from statestore.middleware.lineage.chargeback import Chargeback
from statestore.middleware.lineage.tracing import TRACEPARENT
from statestore.middleware.lineage.trail import PaperTrail
from statestore.middleware.security.auth import TOKEN_HEADER, Authentication
from statestore.middleware.security.authorization import Authorization
from statestore.middleware.security.cedar import CedarPolicy
from statestore.middleware.security.encryption import HeaderEncryption
from statestore.middleware.security.frames import SignatureHead, canonical_bytes, read_frame, signed_bytes
from statestore.middleware.security.keys import AesKey, Ed25519PrivateKey, Ed25519PublicKey, HmacKey, Keyring
from statestore.middleware.security.signing import SIGNATURE_HEADER, Signing
from statestore.middleware.size.compact_headers import CompactHeaders
from statestore.middleware.size.compression import Compression
from tests.support.passed_records import Clocks, arrived, contents, in_columns, produced, started, through
from tests.support.security_keys import NOW_MS, PRIVATE, SECRET, SIGNING_RINGS, TOKEN_RING, token

GOLDEN = Path(__file__).parents[1] / "golden"
VECTORS = {
    version: json.loads((GOLDEN / name).read_text(encoding="utf-8"))
    for version, name in ((1, "signatures.json"), (2, "signatures-2.json"))
}
HEADERS: Any = [("a", b"1"), ("b", b"2"), ("a", None)]


def keys_of_the_vault() -> Keyring:
    """Keys of an executor."""
    return SIGNING_RINGS["hmac"][0]


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize(
    ("version", "vector"),
    [(version, vector) for version, vectors in VECTORS.items() for vector in vectors],
    ids=lambda part: part["key_id"] if isinstance(part, dict) else str(part),
)
def test_a_signature_is_what_it_always_was(version: int, vector: dict[str, Any]) -> None:
    key = (HmacKey if vector["algorithm"] == 1 else Ed25519PrivateKey)(bytes.fromhex(vector["key"]))
    headers: Any = [(name, unhex(value)) for name, value in vector["headers"]]
    names = tuple(vector["names"])
    fields = (unhex(vector["record_key"]), unhex(vector["value"]))
    bind = vector["topic"] is not None
    head = SignatureHead(
        vector["algorithm"], vector["key_id"], vector["time_ms"], vector["serial"], bind, names, version
    )
    signed = signed_bytes(head, head.to_bytes(), vector["topic"] or "any", *fields, headers, own=SIGNATURE_HEADER)
    frame = bytes.fromhex(vector["frame"])
    assert signed.hex() == vector["signed"]
    assert head.to_bytes() + key.sign(signed) == frame
    assert read_frame(frame) == (head, len(head.to_bytes()))
    record = produced(*fields, [*headers, (SIGNATURE_HEADER, frame)], topic=vector["topic"] or "any")
    named: Any = {"version_1_headers": names} if version == 1 else {"unsigned": names}
    verifier = Signing(Keyring({vector["key_id"]: key}), bind_topic=bind, **named)
    assert contents(Chain([verifier]).ingest(arrived(record))) == [(*fields, headers)]


@pytest.mark.parametrize("algorithm", SIGNING_RINGS)
def test_b13_what_was_signed_passes_without_its_signature(algorithm: str) -> None:
    signing, verifying = (Signing(ring) for ring in SIGNING_RINGS[algorithm])
    for key, value in ((b"k", b"v"), (None, b""), (b"", None)):
        record = produced(key, value, HEADERS)
        assert contents([through(signing, record, verifying)]) == [(key, value, HEADERS)]
    kept = through(signing, produced(headers=HEADERS), Signing(SIGNING_RINGS[algorithm][1], keep=True))
    assert Chain([verifying]).ingest(kept), "a signature that was kept can be verified again"


def bits_flipped(data: bytes) -> list[bytes]:
    return [
        bytes((*data[:place], data[place] ^ 1 << bit, *data[place + 1 :]))
        for place in range(len(data))
        for bit in range(8)
    ]


@settings(max_examples=15, deadline=None)
@given(
    algorithm=st.sampled_from(sorted(SIGNING_RINGS)),
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=6),
    signed=st.lists(st.none() | st.binary(max_size=3), max_size=3),
    bind_topic=st.booleans(),
)
def test_b13_one_flipped_bit_is_refused(
    algorithm: str, key: bytes | None, value: bytes | None, signed: list[bytes | None], bind_topic: bool
) -> None:
    signing, verifying = (Signing(ring, unsigned=["free"], bind_topic=bind_topic) for ring in SIGNING_RINGS[algorithm])
    others: Any = [("free", b"x")]
    (sent,) = Chain([signing]).emit(produced(key, value, [*(("h", one) for one in signed), *others]))
    frame = sent.headers.last_header(SIGNATURE_HEADER).value
    pairs = [("h", one) for one in signed]
    changed = [(flipped, value, pairs, frame) for flipped in bits_flipped(key or b"")]
    changed += [(key, flipped, pairs, frame) for flipped in bits_flipped(value or b"")]
    changed += [(key, value, pairs, flipped) for flipped in bits_flipped(frame)]
    for place, one in enumerate(signed):
        for flipped in bits_flipped(one or b""):
            changed.append((key, value, [*pairs[:place], ("h", flipped), *pairs[place + 1 :]], frame))
        changed.append((key, value, pairs[:place] + pairs[place + 1 :], frame))
    changed.append((key, value, [*pairs, ("h", b"")], frame))
    changed.append((b"" if key is None else None, value, pairs, frame) if not key else (None, value, pairs, frame))
    changed.append((key, b"" if value is None else None, pairs, frame))
    for other_key, other_value, headers, other_frame in changed:
        record = produced(other_key, other_value, [*headers, *others, (SIGNATURE_HEADER, other_frame)])
        with pytest.raises((SignatureRefusedError, UnknownKeyIdError)):
            Chain([verifying]).ingest(arrived(record))
    free = produced(key, value, [*pairs, ("free", b"changed"), (SIGNATURE_HEADER, frame)])
    assert Chain([verifying]).ingest(arrived(free)), "of a header that is not signed nothing is said"


FIELDS = st.lists(
    st.none() | st.binary(max_size=9) | st.sampled_from([b"\x00\x00\x00\x00", b"\xff\xff\xff\xff"]), max_size=5
)


@settings(deadline=None)
@given(FIELDS)
def test_fields_are_read_back_from_what_is_signed_in_one_way_only(fields: list[bytes | None]) -> None:
    data, read = canonical_bytes(fields), []
    while data:
        size = int.from_bytes(data[:4], "big", signed=True)
        read.append(None if size < 0 else data[4 : 4 + size])
        data = data[4 + max(size, 0) :]
    assert read == fields


def test_b13_bytes_do_not_move_between_fields() -> None:
    (sent,) = Chain([Signing(SIGNING_RINGS["hmac"][0])]).emit(produced(b"ab", b"c"))
    moved = produced(b"a", b"bc", sent.headers)
    with pytest.raises(SignatureRefusedError, match="not that of this record"):
        Chain([Signing(SIGNING_RINGS["hmac"][1])]).ingest(arrived(moved))


def test_a_signature_is_of_the_algorithm_of_its_key() -> None:
    head = SignatureHead(2, "h", 0, 0, False, ())
    data = head.to_bytes()
    frame = data + SECRET.sign(signed_bytes(head, data, "orders", b"k", b"v", (), own=SIGNATURE_HEADER))
    with pytest.raises(SignatureRefusedError, match="not that of this record"):
        Chain([Signing(SIGNING_RINGS["hmac"][1])]).ingest(arrived(produced(headers=[(SIGNATURE_HEADER, frame)])))


def test_who_signs_last_is_who_has_signed() -> None:
    signing = Signing(SIGNING_RINGS["hmac"][0])
    (sent,) = Chain([signing]).emit(produced(headers=[(SIGNATURE_HEADER, b"old"), ("a", b"1")]))
    assert [header.key for header in sent.headers] == ["a", SIGNATURE_HEADER]
    assert [name for name, _ in contents(signing.on_emit_columns(in_columns([sent])))[0][2]] == ["a", SIGNATURE_HEADER]


def test_b13_keys_rotate_by_their_ids() -> None:
    old, new = HmacKey(b"o" * 32), HmacKey(b"n" * 32)
    before, after = Keyring({"1": old}, "1"), Keyring({"1": old, "2": new}, "2")
    through(Signing(before), produced(), Signing(after))
    through(Signing(after), produced(), Signing(after))
    with pytest.raises(UnknownKeyIdError) as raised:
        through(Signing(after), produced(), Signing(before))
    assert (raised.value.key_id, raised.value.purpose) == ("2", "signing")
    with pytest.raises(SignatureRefusedError, match="not that of this record by key '1'"):
        through(Signing(before), produced(), Signing(Keyring({"1": new})))
    with pytest.raises(SignatureRefusedError, match="not that of this record"):
        through(Signing(before), produced(), Signing(Keyring({"1": PRIVATE})))
    with pytest.raises(UnknownKeyIdError):
        through(Signing(before), produced(), Signing(Keyring({"1": AesKey(b"x" * 16)})))


def test_only_who_has_a_key_to_sign_with_signs() -> None:
    for ring in (
        Keyring({"e": PRIVATE.public_key}, "e"),
        Keyring({"h": SECRET}),
        Keyring({"a": AesKey(b"x" * 16)}, "a"),
    ):
        with pytest.raises(KeyUnusableError, match="signing: "):
            Chain([Signing(ring)]).emit(produced())
    with pytest.raises(TypeError, match="public key can't sign"):
        PRIVATE.public_key.sign(b"")


def test_one_side_may_be_all_that_is_wanted() -> None:
    signing, verifying = (SIGNING_RINGS["hmac"][side] for side in (0, 1))
    verifier, signer = Signing(verifying, sign=False), Signing(signing, verify=False)
    (sent,) = Chain([signer]).emit(produced())
    assert Chain([signer]).ingest(arrived(sent))[0].headers == sent.headers
    assert Chain([verifier]).emit(sent) == [sent]
    columns = in_columns([sent])
    assert signer.on_ingest_columns(columns) is verifier.on_emit_columns(columns) is columns
    assert contents(verifier.on_ingest_columns(columns)) == contents([through(signer, produced(), verifier)])


def test_what_is_not_signed_is_refused_or_passes() -> None:
    with pytest.raises(SignatureRefusedError, match=f"there is no header '{SIGNATURE_HEADER}'"):
        Chain([Signing(SIGNING_RINGS["hmac"][1])]).ingest(arrived(produced()))
    lenient = Signing(SIGNING_RINGS["hmac"][1], required=False)
    assert contents(Chain([lenient]).ingest(arrived(produced()))) == [(b"k", b"v", [])]
    with pytest.raises(SignatureRefusedError):
        Chain([lenient]).ingest(arrived(produced(headers=[(SIGNATURE_HEADER, b"forged")])))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x01",
        b"\x03\x01\x00\x01h",
        b"\x01\x01\x02\x01h",
        b"\x01\x01\x00\xffh",
        b"\x01\x01\x00\x00",
        b"\x00" * 17000,
        b"\x01\x01\x00\x01h" + b"\x00" * 16 + b"\xff" * 40,
        b"\x01\x01\x00\x01\xff" + b"\x00" * 40,
    ],
)
def test_a_malformed_signature_is_refused_with_the_reason(frame: bytes) -> None:
    with pytest.raises(SignatureRefusedError, match=r"malformed|more than"):
        Chain([Signing(SIGNING_RINGS["hmac"][1])]).ingest(arrived(produced(headers=[(SIGNATURE_HEADER, frame)])))


def test_a_verifier_says_what_has_to_be_signed() -> None:
    signing, verifying = SIGNING_RINGS["ed25519"]
    with pytest.raises(SignatureRefusedError, match=r"have to be signed, and are not: \['b'\]"):
        through(Signing(signing, unsigned=["a", "b"]), produced(headers=HEADERS), Signing(verifying, unsigned=["a"]))
    through(Signing(signing, unsigned=["b"]), produced(headers=HEADERS), Signing(verifying, unsigned=["a", "b"]))
    with pytest.raises(SignatureRefusedError, match="the topic is not signed"):
        through(Signing(signing), produced(), Signing(verifying, bind_topic=True))


def test_version_1_is_taken_by_who_says_so_and_has_to_sign_what_it_has_to() -> None:
    vector = VECTORS[1][0]
    record = produced(b"k", b"value", [(name, unhex(value)) for name, value in vector["headers"]])
    record.headers.add(SIGNATURE_HEADER, bytes.fromhex(vector["frame"]))
    ring = Keyring({vector["key_id"]: HmacKey(bytes.fromhex(vector["key"]))})
    with pytest.raises(SignatureRefusedError, match="version 1, which does not sign all headers"):
        Chain([Signing(ring)]).ingest(arrived(record))
    with pytest.raises(SignatureRefusedError, match=r"have to be signed, and are not: \['b'\]"):
        Chain([Signing(ring, version_1_headers=["a", "b"])]).ingest(arrived(record))
    assert Chain([Signing(ring, version_1_headers=["a"])]).ingest(arrived(record))
    assert vector["names"] == ["a", "c"], "so of b nothing is said"
    other = record.copy(headers=[("b", b"other"), *((key, value) for key, value in record.headers if key != "b")])
    assert Chain([Signing(ring, version_1_headers=[])]).ingest(arrived(other))


@settings(max_examples=50, deadline=None)
@given(
    names=st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True),
    headers=st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.none() | st.binary(max_size=2)), max_size=3),
    kept=st.sets(st.integers(0, 2)),
    data=st.binary(max_size=3),
)
def test_no_version_can_be_taken_for_the_other(names: list[str], headers: Any, kept: set[int], data: bytes) -> None:
    """Neither with its own names, nor with all headers for names, nor with fewer headers."""
    (sent,) = Chain([Signing(SIGNING_RINGS["hmac"][0], unsigned=names)]).emit(produced(b"k", data, headers))
    frame = sent.headers.last_header(SIGNATURE_HEADER).value
    head, end = read_frame(frame)
    lenient = Signing(SIGNING_RINGS["hmac"][1], unsigned=["a", "b", "c"], version_1_headers=[])
    for others in (head.names, ("a", "b", "c"), tuple(name for name, _ in headers), ()):
        forged = dataclasses.replace(head, names=others, version=1).to_bytes() + frame[end:]
        left = [header for place, header in enumerate(headers) if place in kept]
        with pytest.raises(SignatureRefusedError, match="not that of this record"):
            Chain([lenient]).ingest(arrived(produced(b"k", data, [*left, (SIGNATURE_HEADER, forged)])))


def test_a_mirrored_record_verifies_unless_its_topic_is_signed() -> None:
    signing, verifying = SIGNING_RINGS["hmac"]
    (sent,) = Chain([Signing(signing)]).emit(produced())
    assert Chain([Signing(verifying)]).ingest(arrived(sent, topic="eu.orders"))
    (bound,) = Chain([Signing(signing, bind_topic=True)]).emit(produced())
    with pytest.raises(SignatureRefusedError, match="not that of this record"):
        Chain([Signing(verifying)]).ingest(arrived(bound, topic="eu.orders"))


def test_b13_a_signature_is_worth_something_in_its_window_only() -> None:
    now_ms = 1_700_000_000_000
    signing, verifying = SIGNING_RINGS["hmac"]
    (sent,) = started(Signing(signing), Clocks(now_ms)).on_emit(produced())
    window = dict(window_ms=1000, ahead_ms=10)
    for late_ms, problem in ((1000, None), (1001, "made 1001 ms ago"), (-10, None), (-11, "made 11 ms in the future")):
        verifier = started(Signing(verifying, **window), Clocks(now_ms + late_ms))
        by_record = started(Signing(verifying, clock="record", **window), Clocks(0))
        for one in (verifier, by_record):
            record = arrived(sent, timestamp_ms=now_ms + late_ms)
            if problem is None:
                assert one.on_ingest(record)
            else:
                with pytest.raises(SignatureRefusedError, match=problem):
                    one.on_ingest(record)


def test_a_batch_that_is_retried_signs_the_same_and_no_two_records_do() -> None:
    signing = Signing(SIGNING_RINGS["hmac"][0])
    attempts = [[started(copy.copy(signing), Clocks(shard=shard)) for shard in (0, 1)] for _ in range(2)]
    made = [[contents(one.on_emit(produced()))[0][2][0][1] for one in shards for _ in range(2)] for shards in attempts]
    assert made[0] == made[1]
    assert len(set(made[0])) == 4
    without_context = [contents(Chain([signing]).emit(produced())) for _ in range(2)]
    assert without_context[0] != without_context[1]


@pytest.mark.parametrize("algorithm", SIGNING_RINGS)
def test_columns_are_signed_and_verified_as_records_are(algorithm: str) -> None:
    records = [produced(key, value, HEADERS) for key, value in ((b"k", b"v"), (None, b""), (b"", None))]
    options: Any = dict(unsigned=["b"], bind_topic=True)
    one_by_one, together = (started(Signing(SIGNING_RINGS[algorithm][0], **options)) for _ in range(2))
    columns = together.on_emit_columns(in_columns(records))
    sent = [made for record in records for made in one_by_one.on_emit(record.copy())]
    assert contents(columns) == contents(sent)
    verifier = Signing(SIGNING_RINGS[algorithm][1], **options)
    assert contents(verifier.on_ingest_columns(in_columns(map(arrived, sent)))) == contents(records)
    kept = Signing(SIGNING_RINGS[algorithm][1], keep=True, **options)
    assert contents(kept.on_ingest_columns(columns)) == contents(sent)
    sent[1] = sent[1].copy(value=b"changed")
    with pytest.raises(SignatureRefusedError):
        verifier.on_ingest_columns(in_columns(sent))


def test_two_parties_sign_the_same_record() -> None:
    ours, theirs = Signing(SIGNING_RINGS["hmac"][0]), Signing(SIGNING_RINGS["ed25519"][0], header="their-signature")
    chain = Chain([ours, theirs])
    assert chain.describe() == "signing -> signing-their-signature"
    (sent,) = chain.emit(produced())
    assert contents(chain.ingest(arrived(sent))) == [(b"k", b"v", [])]


def test_what_a_chain_goes_by_has_to_be_signed() -> None:
    """The error names the header, and what to do, in whatever way the interceptor got its name."""
    ring = SIGNING_RINGS["hmac"][0]
    for steered, header in (
        (Compression(), "COMPRESSION"),
        (CompactHeaders(HeaderIds({"a": 1})), "_h"),
        (ExpiryHeader(1000, header="until"), "until"),
        (Authentication(TOKEN_RING, algorithms=["HS256"], header="jwt"), "jwt"),
        (Authorization(CedarPolicy("permit(principal, action, resource);", headers=["test"])), "test"),
    ):
        Chain([steered, Signing(ring)])
        with pytest.raises(ChainOrderError, match=rf"not signed: take \['{header}'\] out of `unsigned`"):
            Chain([steered, Signing(ring, unsigned=[header, "other"])])
    with pytest.raises(ChainOrderError, match="paper-trail"):
        Chain([Chargeback(), Signing(ring)])
    Chain([PaperTrail(), Chargeback(), Signing(ring, unsigned=[TRACEPARENT])])


def test_a_token_is_signed_with_its_record() -> None:
    """Before a signature it would not be: who can write to the topic could put it on another record."""
    ring = SIGNING_RINGS["hmac"][0]
    tokens = Authentication(TOKEN_RING, algorithms=["HS256"], token=token())
    with pytest.raises(ChainOrderError, match="a token has to be signed with its record"):
        Chain([Signing(ring), tokens])
    chain = Chain([started(tokens, Clocks(NOW_MS)), started(Signing(ring), Clocks(NOW_MS))])
    (sent,) = chain.emit(produced())
    assert chain.ingest(arrived(sent))
    other = sent.copy(headers=[(TOKEN_HEADER, token(sub="admin").encode()), *list(sent.headers)[1:]])
    for moved in (other, sent.copy(headers=list(sent.headers)[1:])):
        with pytest.raises(SignatureRefusedError, match="not that of this record"):
            chain.ingest(arrived(moved))


def test_what_changes_behind_a_signature_is_not_signed() -> None:
    ring = SIGNING_RINGS["hmac"][0]
    for changing, header in (
        (PaperTrail(), "paper-trail"),
        (HeaderEncryption(["iban"], Keyring({"k": AesKey(bytes(16))}), open=False), "iban"),
        (Signing(ring, header="theirs", keep=True), "theirs"),
    ):
        with pytest.raises(ChainOrderError, match=rf"\['{header}'\].*put it before, or add them to `unsigned`"):
            Chain([Signing(ring, unsigned=[]), changing])
        Chain([changing, Signing(ring, unsigned=[])])
        Chain([Signing(ring, unsigned=[header]), changing])


def test_it_is_made_by_a_configuration_and_travels() -> None:
    config = {"statestore.signing.keys": f"{__name__}:keys_of_the_vault", "statestore.signing.unsigned": "a,b"}
    made = Signing.from_config({**config, "statestore.signing.version.1.headers": "c", "other": "x"})
    again = started(pickle.loads(pickle.dumps(made)))
    through(again, produced(headers=HEADERS))
    assert repr(made) == "Signing(keys_of_the_vault)"
    old = SignatureHead(1, "h", 0, 0, False, ("c",), version=1).to_bytes() + b"signature"
    for head, problem in ((old, "not that of this record"), (old.replace(b"\x01c", b"\x01d"), r"are not: \['c'\]")):
        with pytest.raises(SignatureRefusedError, match=problem):
            again.on_ingest(arrived(produced(headers=[(SIGNATURE_HEADER, head)])))
    with pytest.raises(ConfigException, match=r"statestore\.signing\.keys"):
        Signing.from_config({})


@pytest.mark.parametrize(
    "wrong",
    [
        dict(unsigned=["x"] * 2 + [f"h{n}" for n in range(32)]),
        dict(unsigned=[SIGNATURE_HEADER]),
        dict(version_1_headers=["x" * 256]),
        dict(refuse_replays=True),
        dict(window_ms=0),
        dict(clock="sun"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"header|window|clock"):
        Signing(SIGNING_RINGS["hmac"][0], **wrong)
    with pytest.raises(TypeError):
        Signing({"h": b"x" * 32})  # type: ignore[arg-type]


def test_keys_come_as_bytes_or_pem() -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    pem, encoding = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    key = Ed25519PrivateKey(private.private_bytes(encoding, pem, serialization.NoEncryption()))
    assert key == Ed25519PrivateKey(private.private_bytes_raw())
    public = private.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert key.public_key == Ed25519PublicKey(public)
    for kind, wrong in (
        (Ed25519PrivateKey, public),
        (Ed25519PublicKey, b"-----BEGIN"),
        (HmacKey, b"short"),
        (AesKey, b"17"),
    ):
        with pytest.raises(ValueError, match=r"bytes"):
            kind(wrong)


@pytest.mark.parametrize("key_id", ["", "x" * 256, "a\nb", "\ud800"])
def test_a_keyring_takes_printable_ids_only(key_id: str) -> None:
    with pytest.raises(ValueError, match="key id"):
        Keyring({key_id: SECRET})
    with pytest.raises(ValueError, match="active"):
        Keyring({"a": SECRET}, "b")


def test_the_store_of_signatures_lasts_as_long_as_the_window() -> None:
    assert Signing(SIGNING_RINGS["hmac"][0], window_ms=5).stores() == ()
    (part,) = Signing(SIGNING_RINGS["hmac"][0], window_ms=5000, ahead_ms=1, refuse_replays=True).stores()
    assert part.builder.time_to_live.ttl_ms == 5000 + 1 + 1, "as long as a record can get in, and one more"
