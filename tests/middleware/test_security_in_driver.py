"""Signatures, tokens and encryption around a topology with stores: what is refused never reaches them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statestore import Serdes, Topology
from statestore.errors import AccessDeniedError, StateStoreError
from statestore.errors.middleware import KeyUnusableError
from statestore.middleware import Chain, FailureHandling
from statestore.middleware.security.auth import TOKEN_HEADER, Authentication, TokenKey, claims_of
from statestore.middleware.security.authorization import Authorization
from statestore.middleware.security.cedar import CedarPolicy
from statestore.middleware.security.encryption import Encryption, HeaderEncryption, encrypted_serde, open_header
from statestore.middleware.security.keys import AesKey, Ed25519PrivateKey, Ed25519PublicKey, HmacKey, Keyring
from statestore.middleware.security.signing import Signing
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.kept_records import files_with, keeping
from tests.support.passed_records import Clocks, arrived, produced, shown, started
from tests.support.security_keys import AES_SECRETS, AFTER, BEFORE, NOW_MS, SIGNING_RINGS, TOKEN_RING, token

BYTES = Serdes.bytes()
LETTER = "__connect.errors.exception."


def driver(topology: Topology, *interceptors: Any, now_ms: int = NOW_MS, **options: Any) -> TopologyTestDriver:
    return TopologyTestDriver(topology, initial_wall_clock_time_ms=now_ms, interceptors=interceptors, **options)


def pipe(run: TopologyTestDriver, record: Any, times: int = 1, *, in_micro_batch: bool = False) -> None:
    topic = run.create_input_topic("orders", key_serde=BYTES, value_serde=BYTES)
    piped = [TestRecord(record.key, record.value, timestamp_ms=1000, headers=list(record.headers))] * times
    (topic.pipe_micro_batch if in_micro_batch else topic.pipe_record_list)(piped)


def read(run: TopologyTestDriver, topic: str) -> list[Any]:
    return list(run.create_output_topic(topic, key_serde=BYTES, value_serde=BYTES).read_records_to_list())


def texts(record: Any) -> dict[str, str]:
    return {key: value.decode(errors="replace") for key, value in record.headers if value is not None}


@pytest.mark.parametrize("in_micro_batch", [False, True])
def test_b13_a_record_that_is_sent_again_is_refused_for_as_long_as_it_could_be(in_micro_batch: bool) -> None:
    signer = started(Signing(SIGNING_RINGS["hmac"][0]), Clocks(NOW_MS))
    sent, another = (signer.on_emit(produced(b"k", b"v"))[0] for _ in range(2))
    refusing = Signing(SIGNING_RINGS["hmac"][1], sign=False, window_ms=60_000, ahead_ms=1000, refuse_replays=True)
    with driver(keeping(), refusing, failures=FailureHandling(dead_letters="refused")) as run:
        pipe(run, sent, 2, in_micro_batch=in_micro_batch)
        pipe(run, another, in_micro_batch=in_micro_batch)
        assert len(read(run, "kept-orders")) == 2
        run.restart(restore_from="changelog")
        pipe(run, sent, in_micro_batch=in_micro_batch)
        assert [texts(letter)[f"{LETTER}message"] for letter in read(run, "refused")] == [
            "the signature is refused: it was seen before: the record is sent again"
        ] * 2
        seen = run.get_all_state_stores()["signing-seen"]
        assert seen.approximate_num_entries() == 2
        run.advance_wall_clock_time(61_001)
        pipe(run, sent, in_micro_batch=in_micro_batch)
        (letter,) = read(run, "refused")
        assert "made 61001 ms ago" in texts(letter)[f"{LETTER}message"]
        with seen.all() as entries:
            assert list(entries) == []


@pytest.mark.parametrize("in_micro_batch", [False, True])
def test_b18_what_is_denied_never_reaches_state_and_goes_to_audit_as_it_came(in_micro_batch: bool) -> None:
    chain = Chain(
        [
            Authorization(lambda request: request.principal == "alice", audit_topic="audit"),
            Authentication(TOKEN_RING, algorithms=["HS256"], audit_topic="audit"),
        ]
    )
    tokens = {b"alice": token(), b"mallory": token(sub="mallory"), b"late": token(exp=NOW_MS // 1000), b"none": ""}
    with driver(keeping(), chain) as run:
        for key, given in tokens.items():
            headers = [(TOKEN_HEADER, given.encode())] if given else []
            pipe(run, produced(key, b"of " + key, headers), in_micro_batch=in_micro_batch)
        (passed,) = read(run, "kept-orders")
        assert (passed.key, list(passed.headers)) == (b"alice", [])
        with run.get_all_state_stores()["kept"].all() as entries:
            ((key, kept),) = list(entries)
        assert (key, claims_of(kept.headers)) == (b"alice", {"sub": "alice"})
        letters = read(run, "audit")
    assert [(letter.key, letter.value) for letter in letters] == [
        (key, b"of " + key) for key in (b"mallory", b"late", b"none")
    ]
    assert [texts(letter)[f"{LETTER}class.name"] for letter in letters] == [
        f"statestore.errors.{name}" for name in ("AccessDeniedError", "TokenRefusedError", "TokenRefusedError")
    ]
    reasons = [texts(letter)[f"{LETTER}message"] for letter in letters]
    assert [part in reason for part, reason in zip(("may not write", "expired", "no header"), reasons, strict=True)]
    assert texts(letters[0])[TOKEN_HEADER] == tokens[b"mallory"], "as it came"


def test_signing_encryption_and_tokens_stand_in_one_chain() -> None:
    def chain(ring: Keyring, keys: Any) -> Chain:
        return Chain(
            [
                Authorization(lambda request: True),
                Authentication(TOKEN_RING, algorithms=["HS256"], token=token),
                HeaderEncryption(["iban"], ring, open=False),
                Encryption(ring),
                Signing(keys),
            ]
        )

    plain = produced(b"k", b"v", [("iban", b"DE00")])
    producer = chain(BEFORE, SIGNING_RINGS["ed25519"][0])
    for interceptor in producer:
        started(interceptor, Clocks(NOW_MS))
    (sent,) = producer.emit(plain)
    with driver(keeping(), chain(AFTER, SIGNING_RINGS["ed25519"][0])) as run:
        pipe(run, sent)
        kept = run.get_all_state_stores()["kept"].get(b"k")
        assert (kept.value, open_header(kept.headers, "iban", AFTER)) == (b"v", b"DE00")
        (out,) = read(run, "kept-orders")
    assert (out.key, out.value == b"v", b"DE00" in dict(out.headers).values()) == (b"k", False, False)


def test_state_at_rest_holds_ciphertext_and_keys_rotate(tmp_path: Path) -> None:
    hidden, seen = (os.urandom(48) for _ in range(2))
    for number, ring in enumerate((BEFORE, AFTER)):
        kept = encrypted_serde(BYTES, ring, context="kept")
        with driver(keeping(kept), state_dir=tmp_path, application_id="app") as run:
            if number:
                assert run.get_all_state_stores()["kept"].get(b"0" + seen).value == hidden, "by the old key"
            pipe(run, produced(b"%d" % number + seen, hidden))
            logged = read(run, "app-kept-changelog")[-1].value
            assert hidden not in logged
            assert str(ring.active).encode() == logged[logged.index(b"\xec\x01") + 4 :][:1]
        assert files_with(seen, tmp_path), "the search finds what is there: keys are not encrypted"
        assert [files_with(secret, tmp_path) for secret in (hidden, *AES_SECRETS)] == [[], [], []]


def test_no_secret_shows_in_objects_or_errors(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "SECRET-that-nobody-may-see-anywhere"
    raw = secret.encode().ljust(64, b"!")[:32]
    keys = [HmacKey(raw), Ed25519PrivateKey(raw), AesKey(raw), TokenKey("HS256", raw)]
    aes, mac, sealed = Keyring({"a": keys[2]}, "a"), Keyring({"m": keys[0]}, "m"), Keyring({"t": keys[3]})
    given = token(raw, kid="t", sub=secret)
    interceptors: list[Any] = [
        Authorization(CedarPolicy(f'forbid(principal == User::"{secret}", action, resource);')),
        Authentication(sealed, algorithms=["HS256"], token=given),
        Encryption(aes),
        HeaderEncryption(["h"], aes),
        Signing(mac),
    ]
    serde = encrypted_serde(Serdes.string(), aes)
    chain = Chain([started(interceptor, Clocks(NOW_MS)) for interceptor in interceptors])
    (sent,) = chain.emit(produced(b"k", secret.encode(), [("h", secret.encode())]))
    with contextlib.suppress(AccessDeniedError):
        chain.ingest(arrived(sent.copy()))
    shown_objects = [*keys, aes, mac, sealed, *interceptors, chain, chain.describe(), serde]
    hostile: list[Callable[[], Any]] = [
        lambda: HmacKey(secret.encode()[:31]),
        lambda: AesKey(raw + b"x"),
        lambda: Ed25519PrivateKey(raw + b"x"),
        lambda: Ed25519PublicKey(raw + b"x"),
        lambda: TokenKey("RS256", raw),
        lambda: TokenKey("HS512", raw),
        lambda: Keyring({"a": raw}),  # type: ignore[dict-item]
        lambda: Signing(raw),  # type: ignore[arg-type]
        lambda: Chain([Signing(Keyring({"a": keys[2]}, "a"))]).emit(produced()),
        lambda: Chain([Encryption(mac)]).emit(produced(value=secret.encode())),
        lambda: serde.deserialize(serde.serialize(secret)[:-1]),
        lambda: encrypted_serde(Serdes.int64(), aes).serialize(secret),  # type: ignore[arg-type]
        lambda: encrypted_serde(Serdes.int64(), aes).deserialize(serde.serialize(secret)),
        lambda: Chain([Encryption(mac)]).ingest(arrived(sent)),
        lambda: chain.interceptors[4].on_ingest(arrived(sent.copy(value=secret.encode()))),
        lambda: chain.interceptors[3].on_ingest(arrived(produced(headers=[("h", secret.encode())]))),
        lambda: chain.interceptors[2].on_ingest(arrived(produced(value=secret.encode()))),
        *(
            lambda text=text: chain.interceptors[1].on_ingest(arrived(produced(headers=[(TOKEN_HEADER, text)])))
            for text in (secret.encode(), secret.encode() + given.encode(), given.encode()[:-2], secret.encode() * 999)
        ),
    ]
    for number, call in enumerate(hostile):
        with pytest.raises((StateStoreError, ValueError, TypeError)) as raised:
            call()
        shown_objects.append(shown(raised.value))
        assert "SECRET" not in shown(raised.value), number
    texts_shown = [repr(shown_object) for shown_object in shown_objects] + [
        str(shown_object) for shown_object in shown_objects
    ]
    assert [text for text in texts_shown if "SECRET" in text or given in text] == []
    assert "SECRET" not in caplog.text


def test_a_ring_that_can_not_encrypt_ends_the_query_though_failing_records_are_left_out() -> None:
    kept = encrypted_serde(BYTES, Keyring(dict(BEFORE)))
    with (
        driver(keeping(kept), failures=FailureHandling(processing="continue")) as run,
        pytest.raises(KeyUnusableError, match="no active key"),
    ):
        pipe(run, produced())
