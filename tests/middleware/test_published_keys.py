"""Keys of tokens that an identity provider publishes: they come, go, and can't be had for a while."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from statestore.errors import ServiceUnavailableError, TokenRefusedError
from statestore.errors.middleware import UnknownKeyIdError
from statestore.middleware.security import token_keys
from statestore.middleware.security.auth import TOKEN_HEADER, Authentication, claims_of
from statestore.processor.chain_client import ChainClient
from tests.support.passed_records import arrived, produced
from tests.support.security_keys import NOW_MS, token

OLD, NEW = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
RSA, SMALL_RSA = rsa.generate_private_key(65537, 2048), rsa.generate_private_key(65537, 1024)
EDWARDS = ed25519.Ed25519PrivateKey.generate()


def published(key: Any, **members: Any) -> dict[str, Any]:
    """A public key as it is published; a private one, if that is what is given."""
    algorithms = jwt.algorithms.get_default_algorithms()
    kind = {"EllipticCurve": "ES256", "ECPr": "ES256", "ECPu": "ES256", "RSA": "RS256", "Ed25": "EdDSA"}
    algorithm: Any = next(algorithms[name] for start, name in kind.items() if type(key).__name__.startswith(start))
    return {**algorithm.to_jwk(key, as_dict=True), **members}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


class Provider:
    """An identity provider on this machine, which answers as it is told and counts how often it was asked."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.head: Callable[[Any], None] | None = None
        self.stream: Callable[[Any], None] | None = None
        self.asked = 0
        self.sent = 0
        provider = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                self.send_response(provider.status)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                if provider.head is not None:
                    self.flush_headers()
                    provider.head(self)
                self.end_headers()
                if provider.stream is not None:
                    provider.stream(self)
                self.wfile.write(provider.body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """Say nothing of clients that hang up."""

        self.server = Server(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/keys?tenant=secret"

    def send_for_ever(self, handler: Any) -> None:
        for _ in range(1600):  # 100 MiB
            self.sent += handler.wfile.write(b" " * (1 << 16))

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    try:
        yield made
    finally:
        made.stop()


class Clock:
    """What the process takes for the time since it began, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(token_keys, "monotonic", made)
    return made


def checking(provider: Provider, **options: Any) -> ChainClient:
    checker = Authentication(jwks=provider.address, algorithms=["ES256", "RS256", "EdDSA", "HS256"], **options)
    return ChainClient([pickle.loads(pickle.dumps(checker))], clock=lambda: NOW_MS)


def subject(client: ChainClient, key: Any = OLD, kid: str | None = "old", algorithm: str = "ES256") -> Any:
    given = token(key, algorithm, kid).encode()
    (record,) = client.ingest(arrived(produced(headers=[(TOKEN_HEADER, given)])))
    return claims_of(record.headers)["sub"]


def test_a_new_key_is_known_when_a_token_names_it_and_one_that_is_gone_is_refused(
    provider: Provider, clock: Clock
) -> None:
    provider.body = key_set(published(OLD.public_key(), kid="old"))
    with checking(provider) as client, checking(provider) as another:
        assert [subject(client), subject(client, kid=None), subject(another)] == ["alice"] * 3
        assert provider.asked == 1, "once for the process"
        provider.body = key_set(published(NEW.public_key(), kid="new"))
        clock.now += 1
        assert subject(client, NEW, "new") == "alice"
        for each in (client, another):
            with pytest.raises(UnknownKeyIdError):
                subject(each)
        assert provider.asked == 2


def test_made_up_key_ids_ask_once_in_ten_seconds(provider: Provider, clock: Clock) -> None:
    provider.body = key_set(published(OLD.public_key(), kid="old"))
    with checking(provider) as client:
        for number in range(20):
            with pytest.raises(UnknownKeyIdError):
                subject(client, NEW, f"made up {number}")
        assert provider.asked == 2, "at the start, and for the first one"
        clock.now += 10
        for number in range(20):
            with pytest.raises(UnknownKeyIdError):
                subject(client, NEW, f"made up {number}")
        assert provider.asked == 3
        assert subject(client) == "alice"


def test_keys_are_fetched_again_after_five_minutes_and_go_on_for_an_hour_without(
    provider: Provider, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    provider.body = key_set(published(OLD.public_key(), kid="old"), published(NEW.public_key(), kid="new"))
    with checking(provider) as client:
        assert subject(client) == "alice"
        clock.now += 299
        assert (subject(client), provider.asked) == ("alice", 1)
        provider.status = 503
        clock.now += 1
        for _ in range(3):
            assert (subject(client), provider.asked) == ("alice", 2)
        assert "HTTP Error 503" in caplog.text
        clock.now += 10
        with pytest.raises(ServiceUnavailableError, match="no record was refused for it"):
            subject(client, NEW, "perhaps of a moment ago")
        assert provider.asked == 3
        clock.now += 3289
        assert subject(client, NEW, "new") == "alice"
        clock.now += 1
        with pytest.raises(ServiceUnavailableError, match=r"identity provider at 127\.0\.0\.1 .*503") as raised:
            subject(client)
        assert "secret" not in f"{raised.value}{caplog.text}{client.chain}"
        provider.status = 200
        clock.now += 10
        assert subject(client) == "alice"
        with pytest.raises(UnknownKeyIdError):
            subject(client, NEW, "made up")


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\xff", b"{", b"[" * 100_000, b"[]", b"7", b"{}", b'{"keys": 7}', b'{"keys": [7, null, {}, "x"]}'),
        key_set(published(OLD, kid="old")),
        key_set({"kty": "oct", "k": "c3Nz" * 11, "kid": "old", "alg": "HS256"}),
        key_set(published(SMALL_RSA.public_key(), kid="old")),
        key_set(published(OLD.public_key())),
        key_set(published(OLD.public_key(), kid="old", use="enc")),
        key_set(published(OLD.public_key(), kid=["old"])),
        key_set(published(OLD.public_key(), kid=7)),
    ],
    ids=lambda body: body[:40],
)
def test_what_is_no_set_of_public_keys_ends_the_query_and_refuses_nobody(provider: Provider, body: bytes) -> None:
    provider.body = body
    with checking(provider) as client, pytest.raises(ServiceUnavailableError, match=r"no key set|no public key"):
        subject(client)


def test_one_broken_key_takes_no_other_along(provider: Provider) -> None:
    broken = {"kty": "RSA", "n": "AA", "e": "AA", "kid": "broken"}, {"kty": "what", "kid": "x"}, 7
    keys = [
        published(RSA.public_key(), kid="rsa"),
        published(EDWARDS.public_key(), kid="ed", use="sig"),
        published(OLD.public_key(), kid="old", alg="ES256"),
        published(NEW.public_key(), kid="old"),
    ]
    provider.body = key_set(*broken, *keys)  # type: ignore[arg-type]
    with checking(provider) as client:
        for key, kid, algorithm in ((RSA, "rsa", "RS256"), (EDWARDS, "ed", "EdDSA"), (OLD, "old", "ES256")):
            assert subject(client, key, kid, algorithm) == "alice"
        with pytest.raises(TokenRefusedError, match="not that of key"):
            subject(client, b"s" * 32, "rsa", "HS256")
        with pytest.raises(TokenRefusedError, match="names no key"):
            subject(client, kid=None)


def test_a_provider_that_sends_too_much_or_elsewhere_or_nothing_is_given_up(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.body = key_set(published(OLD.public_key(), kid="old"))
    provider.stream = provider.send_for_ever
    with checking(provider) as client:
        with pytest.raises(ServiceUnavailableError, match="more than 1048576 bytes"):
            subject(client)
        assert provider.sent < 50 << 20
        provider.stream, provider.status = None, 302
        with pytest.raises(ServiceUnavailableError, match="302"):
            subject(client)
        monkeypatch.setattr(token_keys, "_WAITS_S", 0.2)
        silence = threading.Event()
        provider.stream, provider.status = lambda handler: bool(silence.wait(60)) and None, 200
        with pytest.raises(ServiceUnavailableError, match=r"timed out|to answer"):
            subject(client)
        silence.set()
        provider.stop()
        with pytest.raises(ServiceUnavailableError, match="refused"):
            subject(client)


def test_one_that_answers_drop_by_drop_is_given_up(provider: Provider, clock: Clock) -> None:
    def drip(handler: Any) -> None:
        for _ in range(100):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            clock.now += 1

    provider.stream = drip
    with checking(provider) as client, pytest.raises(ServiceUnavailableError, match=r"more than 10\.0 s to answer"):
        subject(client)


def test_headers_that_come_drop_by_drop_are_given_up(
    provider: Provider, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "_WAITS_S", 0.5)
    is_given_up = threading.Event()

    def drip(handler: Any) -> None:
        for _ in range(20):
            is_given_up.wait(0.1)
            handler.wfile.write(b"X-Next: 1\r\n")

    provider.head = drip
    provider.body = key_set(published(OLD.public_key(), kid="old"))
    with checking(provider) as client, pytest.raises(ServiceUnavailableError, match=r"more than 0\.5 s to answer"):
        subject(client)
    is_given_up.set()


def test_it_is_made_by_a_configuration_and_says_where_it_asks(provider: Provider) -> None:
    provider.body = key_set(published(OLD.public_key(), kid="old"))
    config = {"statestore.token.jwks": provider.address, "statestore.token.algorithms": "ES256"}
    made = Authentication.from_config(config)
    with ChainClient([made], clock=lambda: NOW_MS) as client:
        assert subject(client) == "alice"
    assert repr(made) == "Authentication(keys of 127.0.0.1, algorithms=['ES256'])"
    for address in (
        "http://login.example/keys",
        "file:///etc/keys",
        "//login.example",
        "http://127.0.0.1.example/keys",
    ):
        with pytest.raises(ValueError, match="by https"):
            Authentication(jwks=address, algorithms=["ES256"])
    with pytest.raises(ValueError, match="not both"):
        Authentication(lambda: None, jwks=provider.address, algorithms=["ES256"])  # type: ignore[arg-type,return-value]
