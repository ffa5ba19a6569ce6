"""Data keys in envelopes: readable with the vault alone, whenever; never without; and only in memory."""

from __future__ import annotations

import json
import logging
import os
import pickle
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from statestore import Serde, Serdes
from statestore.errors import DeserializationError, ServiceUnavailableError, SignatureRefusedError
from statestore.errors.middleware import KeyUnusableError, UnknownKeyIdError
from statestore.middleware import Chain
from statestore.middleware.security import envelope, vaults
from statestore.middleware.security.encryption import Encryption, HeaderEncryption, encrypted_serde, open_header
from statestore.middleware.security.envelope import EnvelopeKeys
from statestore.middleware.security.keys import AesKey, HmacKey, Keyring
from statestore.middleware.security.signing import Signing
from statestore.middleware.security.vaults import KeyFile, VaultError, vault_at
from statestore.processor.chain_client import ChainClient
from statestore.testing import TopologyTestDriver
from tests.support.documentation import ROOT, run_page
from tests.support.kept_records import keeping
from tests.support.passed_records import arrived, produced, shown, through
from tests.support.security_keys import AFTER, BEFORE, NEW
from tests.support.transit_server import TOKEN, Transit, running_transit

DAY_S = 86_400
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "envelopes.json").read_text(encoding="utf-8"))


class Clock:
    """What the process takes for the time since it began, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(envelope, "monotonic", made)
    another_process()
    yield made
    another_process()


def another_process() -> None:
    """Forget all that this process knows, so that it goes on as another one."""
    envelope._data_keys.cache_clear()
    vaults._kms_client.cache_clear()


@pytest.fixture(scope="module")
def kms() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def transit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Transit]:
    with running_transit() as server:
        monkeypatch.setenv("VAULT_ADDR", f"http://127.0.0.1:{server.server.server_port}")
        monkeypatch.setenv("VAULT_TOKEN", TOKEN)
        yield server


@pytest.fixture(params=["aws-kms", "vault-transit", "file"])
def uri(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Where a vault is, of each kind that we bring."""
    if request.param == "vault-transit":
        request.getfixturevalue("transit")
        return "vault-transit://transit/orders"
    if request.param == "file":
        return master_keys(tmp_path, os.urandom(32))
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", request.getfixturevalue("kms"))
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    return f"aws-kms://{boto3.client('kms').create_key()['KeyMetadata']['Arn']}"


def master_keys(folder: Path, *keys: bytes) -> str:
    (folder / "keys").write_bytes(b"\n".join(map(b64encode, keys)) + b"\n")
    return f"file://{folder / 'keys'}"


@dataclass(frozen=True)
class Noted:
    """A vault by a file, which notes what it is asked and can be down. Copies, and other processes, share the notes."""

    name: str
    master: KeyFile

    def wrap(self, key: bytes, context: str) -> str:
        self.note("wrap", key)
        return self.master.wrap(key, context)

    def unwrap(self, wrapped: str, context: str) -> bytes | None:
        self.note("unwrap", b"")
        return self.master.unwrap(wrapped, context)

    def note(self, what: str, key: bytes) -> None:
        asked, down = NOTES.setdefault(self.name, ([], []))
        asked.append(what)
        KEYS.append(key)
        if down:
            raise ConnectionError(f"no way to the vault with {key!r}")

    @property
    def asked(self) -> list[str]:
        asked = NOTES.setdefault(self.name, ([], []))[0]
        since, asked[:] = asked[:], []
        return since

    def go_down(self, down: bool = True) -> None:
        NOTES.setdefault(self.name, ([], []))[1][:] = [True] * down


NOTES: dict[str, tuple[list[str], list[bool]]] = {}
KEYS: list[bytes] = []


@pytest.fixture
def noted(tmp_path: Path) -> Noted:
    return Noted(str(tmp_path), KeyFile(master_keys(tmp_path, os.urandom(32)).removeprefix("file://")))


def test_each_vault_unwraps_what_it_wrapped_for_its_context_and_nothing_else(uri: str) -> None:
    vault, key = vault_at(uri), bytes(range(32))
    wrapped = vault.wrap(key, "orders")
    assert len(wrapped) <= 255
    assert wrapped.isprintable()
    assert key.hex() not in wrapped.encode().hex()
    assert pickle.loads(pickle.dumps(vault)).unwrap(wrapped, "orders") == key
    assert vault_at(uri) == vault
    for other, context in [
        (wrapped, "payments"),
        (wrapped[:-8], "orders"),
        ("AAAA", "orders"),
        ("vault:v1:", "orders"),
    ]:
        assert vault.unwrap(other, context) is None
    for made_up in ("vault:v9:AAAA", "no:base64", "é"):
        assert vault.unwrap(made_up, "orders") is None


def test_whoever_has_the_vault_reads_what_another_process_wrote(uri: str) -> None:
    def keys(kind: Any = AesKey) -> EnvelopeKeys:
        return EnvelopeKeys(uri, "orders", kind=kind)

    (value,) = Chain([Encryption(keys())]).emit(produced(value=b"10 EUR"))
    (header,) = Chain([HeaderEncryption(["iban"], keys())]).emit(produced(headers=[("iban", b"DE02")]))
    (signed,) = Chain([Signing(keys(HmacKey))]).emit(produced())
    stored = encrypted_serde(Serdes.json(), keys()).serialize({"total": 7})
    assert b"EUR" not in value.value
    another_process()
    assert Chain([Encryption(keys())]).ingest(arrived(value))[0].value == b"10 EUR"
    assert open_header(header.headers, "iban", keys()) == b"DE02"
    assert encrypted_serde(Serdes.json(), keys()).deserialize(stored) == {"total": 7}
    assert Chain([Signing(keys(HmacKey))]).ingest(arrived(signed))[0].value == signed.value
    with pytest.raises(SignatureRefusedError):
        Chain([Signing(keys(HmacKey))]).ingest(arrived(signed.copy(value=b"20 EUR")))
    with pytest.raises(UnknownKeyIdError, match="have the vault unwrap it"):
        Chain([Encryption(EnvelopeKeys(uri, "payments"))]).ingest(arrived(value))


def test_the_first_release_with_envelopes_is_read_by_its_master_key_alone(tmp_path: Path) -> None:
    uri = master_keys(tmp_path, bytes.fromhex(GOLDEN["master_key"]))
    ring = EnvelopeKeys(uri, GOLDEN["context"])
    assert encrypted_serde(Serdes.bytes(), ring).deserialize(bytes.fromhex(GOLDEN["stored"])) == b"value"
    signer = Signing(EnvelopeKeys(uri, GOLDEN["context"], kind=HmacKey))
    frame = bytes.fromhex(GOLDEN["signature"])
    (read,) = Chain([signer]).ingest(arrived(produced(headers=[("statestore-signature", frame)])))
    assert list(read.headers) == []


def of_orders(uri: str) -> Serde[str]:
    return encrypted_serde(Serdes.string(), EnvelopeKeys(uri, "orders"))


def test_the_page_goes_with_vault(transit: Transit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASTER_KEY", "vault-transit://transit/orders")
    page = run_page(ROOT / "docs" / "middleware" / "encryption.md", with_spark=False)
    written = page.sealed.serialize({"total": 7})
    keys = EnvelopeKeys("vault-transit://transit/orders", "orders")
    assert encrypted_serde(Serdes.json(), keys, context="totals").deserialize(written) == {"total": 7}


def test_old_data_outlives_the_rotation_of_the_master_key(transit: Transit, tmp_path: Path) -> None:
    old, new = os.urandom(32), os.urandom(32)
    for uri, rotate, take_away in [
        (
            "vault-transit://transit/orders",
            transit.rotate,
            lambda: setattr(transit, "least_version", 2),
        ),
        (
            master_keys(tmp_path, old),
            lambda: master_keys(tmp_path, new, old),
            lambda: master_keys(tmp_path, new),
        ),
    ]:
        before = of_orders(uri).serialize("before")
        rotate()
        another_process()
        after = of_orders(uri).serialize("after")
        assert of_orders(uri).deserialize(before) == "before"
        take_away()
        another_process()
        assert of_orders(uri).deserialize(after) == "after"
        with pytest.raises(DeserializationError, match="have the vault unwrap it"):
            of_orders(uri).deserialize(before)


def test_a_process_asks_once_a_period_and_again_for_each_key_of_others(noted: Noted, clock: Clock) -> None:
    def sent() -> Any:
        chain = pickle.loads(pickle.dumps(Chain([Encryption(EnvelopeKeys(noted, "orders"))])))
        return [chain.emit(produced(value=b"%d" % number))[0] for number in range(3)]

    def read(*records: Any) -> None:
        for record in records:
            Chain([Encryption(EnvelopeKeys(noted, "orders"))]).ingest(arrived(record))

    first = [*sent(), *sent()]
    assert noted.asked == ["wrap"]
    clock.now += DAY_S - 1
    first += sent()
    assert noted.asked == []
    clock.now += 1
    second = sent()
    assert noted.asked == ["wrap"]
    read(*first, *second)
    assert noted.asked == ["unwrap"], "that of the first period was forgotten, that of the second one is known"
    another_process()
    read(*first, *second)
    assert noted.asked == ["unwrap", "unwrap"]
    clock.now += DAY_S
    read(*first)
    assert noted.asked == ["unwrap"], "keys of others are forgotten, too"


def test_while_the_vault_is_down_the_period_goes_on_and_then_nothing_is_written(noted: Noted, clock: Clock) -> None:
    serde = encrypted_serde(Serdes.string(), EnvelopeKeys(noted, "orders"))
    with ChainClient([Encryption(EnvelopeKeys(noted, "orders"))]) as client:
        before = client.emit(produced())[0], serde.serialize("a")
        noted.go_down()
        clock.now += DAY_S - 1
        client.finish_batch()
        assert client.ingest(arrived(client.emit(produced())[0]))
        clock.now += 1
        for write in (lambda: client.emit(produced()), lambda: serde.serialize("b")):
            with pytest.raises(
                ServiceUnavailableError, match=r"can't be asked: ConnectionError\. Nothing was committed"
            ):
                write()
        for read in (lambda: client.ingest(arrived(before[0])), lambda: serde.deserialize(before[1])):
            with pytest.raises(ServiceUnavailableError, match="no record was refused"):
                read()
        noted.go_down(False)
        assert client.ingest(arrived(before[0]))[0].value == b"v"
        assert serde.deserialize(before[1]) == "a"
        assert client.emit(produced())[0].value != b"v"


def test_a_batch_that_the_vault_stopped_is_not_committed_and_runs_again(noted: Noted, clock: Clock) -> None:
    kept = encrypted_serde(Serdes.bytes(), EnvelopeKeys(noted, "kept"))
    with TopologyTestDriver(keeping(kept)) as driver:
        orders = driver.create_input_topic("orders", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
        ends = driver.create_output_topic("kept-orders", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())

        def stored() -> bytes:
            found: bytes = driver.get_timestamped_key_value_store_with_headers("kept").get(b"k").value
            return found

        orders.pipe_input(b"k", b"1 EUR")
        noted.go_down()
        clock.now += DAY_S
        with pytest.raises(ServiceUnavailableError):
            orders.pipe_input(b"k", b"2 EUR")
        noted.go_down(False)
        assert (stored(), ends.read_values_to_list()) == (b"1 EUR", [b"1 EUR"])
        driver.restart()
        orders.pipe_input(b"k", b"2 EUR")
        assert (stored(), ends.read_values_to_list()) == (b"2 EUR", [b"2 EUR"])


def test_keys_show_nowhere(noted: Noted, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ring = EnvelopeKeys(noted, "orders")
    chain = Chain([Encryption(ring)])
    KEYS.clear()
    chain.emit(produced())
    noted.go_down()
    clock.now += DAY_S
    with pytest.raises(ServiceUnavailableError) as raised:
        ring.active  # noqa: B018
    assert raised.value.__context__ is raised.value.__cause__ is None, "the vault's error may have the key"
    data_keys = [key for key in KEYS if key]
    assert len(data_keys) == 2
    places = [shown(raised.value), caplog.text, repr(ring), repr(chain), str(held(ring))]
    for key in data_keys:
        assert key not in pickle.dumps(ring)
        assert key not in pickle.dumps(raised.value)
        assert [place for place in places if repr(key)[2:-1] in place or key.hex() in place] == []


def held(ring: EnvelopeKeys) -> Any:
    """The ids of the keys that the process holds."""
    return ring._data_keys._known._entries


def test_made_up_ids_are_refused_and_push_no_key_out(noted: Noted, clock: Clock) -> None:
    ring = EnvelopeKeys(noted, "orders")
    active = ring.active
    for number in range(1100):
        assert f"made up {number}" not in ring
    assert len(noted.asked) == 1101
    assert (ring[active], noted.asked) == (ring[ring.active], [])
    assert "made up 1099" not in ring
    assert noted.asked == []
    clock.now += 60
    assert "made up 1099" not in ring
    assert noted.asked == ["unwrap"]


def test_a_process_keeps_a_thousand_keys(noted: Noted) -> None:
    wrapped = [noted.master.wrap(os.urandom(32), "orders") for _ in range(1001)]
    ring = EnvelopeKeys(noted, "orders")
    for key_id in wrapped:
        assert isinstance(ring[key_id], AesKey)
    assert len(held(ring)) == 1000


def test_keys_from_before_and_of_a_vault_that_is_left_go_on(noted: Noted, clock: Clock, tmp_path: Path) -> None:
    by_hand = Keyring({"2025": AesKey(b"k" * 32)}, "2025")
    left = EnvelopeKeys(noted, "orders", also=by_hand)
    (tmp_path / "new").mkdir()
    ring = pickle.loads(pickle.dumps(EnvelopeKeys(master_keys(tmp_path / "new", os.urandom(32)), "orders", also=left)))
    for writer in (by_hand, left, ring):
        assert through(Encryption(writer), produced(value=b"v"), Encryption(ring)).value == b"v"
    assert (sorted(ring), len(ring)) == (["2025"], 1)
    assert ring.active not in left
    (of_left,) = Chain([Encryption(left)]).emit(produced())
    (of_another,) = Chain([Encryption(ring)]).emit(produced())
    noted.go_down()
    clock.now += 61
    # What the new vault has, the old one is not asked for; nor the new one for a key that is known.
    assert through(Encryption(ring), produced(value=b"v"), Encryption(ring)).value == b"v"
    (tmp_path / "new" / "keys").rename(tmp_path / "away")
    assert Chain([Encryption(ring)]).ingest(arrived(of_left))[0].value == b"v"
    (tmp_path / "away").rename(tmp_path / "new" / "keys")
    another_process()
    ring = pickle.loads(pickle.dumps(ring))
    assert Chain([Encryption(ring)]).ingest(arrived(of_another))[0].value == b"v"
    with pytest.raises(ServiceUnavailableError):
        Chain([Encryption(ring)]).ingest(arrived(of_left))
    noted.go_down(False)
    another_process()
    ring = pickle.loads(pickle.dumps(ring))
    (tmp_path / "new" / "keys").unlink()
    assert Chain([Encryption(ring)]).ingest(arrived(of_left))[0].value == b"v"
    with pytest.raises(ServiceUnavailableError, match="new"):
        Chain([Encryption(ring)]).ingest(arrived(of_another))


def test_a_key_is_forgotten_after_its_period_and_refused_like_any_other(
    noted: Noted, clock: Clock, tmp_path: Path
) -> None:
    ring = EnvelopeKeys(noted, "orders")
    before = ring.active
    clock.now += DAY_S
    assert ring.active != before
    assert list(held(ring)) == [ring.active], "no old key lies in memory"
    clock.now += DAY_S
    master_keys(tmp_path, os.urandom(32))
    assert (noted.asked, list(held(ring))) == (["wrap", "wrap"], [ring._data_keys._active])
    for _ in range(3):
        assert before not in ring
        assert ring._data_keys._active not in ring
    assert noted.asked == ["unwrap", "unwrap"], "each once a minute"


@pytest.mark.parametrize("answer", ["x" * 256, "", "a\nb", None, 7])
def test_what_can_be_no_key_id_is_not_taken(noted: Noted, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyFile, "wrap", lambda *_: answer)
    with pytest.raises(KeyUnusableError, match="printable text of at most 255 bytes"):
        Chain([Encryption(EnvelopeKeys(noted, "orders"))]).emit(produced())


@pytest.mark.parametrize("found", [b"", b"k" * 16, b"k" * 33, "k" * 32])
def test_what_is_no_data_key_is_not_taken(noted: Noted, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyFile, "unwrap", lambda *_: found)
    assert "x" not in EnvelopeKeys(noted, "orders")


def seal(transit: Transit) -> None:
    transit.sealed = True


def damage(transit: Transit) -> None:
    transit.damage = "cipher: message authentication failed"


def end_token(transit: Transit) -> None:
    transit.token = "another"


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (seal, "VaultDown: Vault is sealed"),
        (end_token, "Forbidden: permission denied"),
        (damage, "InternalServerError: cipher: message authentication failed"),
    ],
)
def test_why_vault_is_no_help_is_said(transit: Transit, break_it: Callable[[Transit], None], words: str) -> None:
    ring = EnvelopeKeys("vault-transit://transit/orders", "orders")
    wrapped = vault_at("vault-transit://transit/orders").wrap(b"k" * 32, "orders")
    break_it(transit)
    for ask in (lambda: ring.active, lambda: ring[wrapped]):
        with pytest.raises(ServiceUnavailableError, match=words) as raised:
            ask()
        assert TOKEN not in shown(raised.value)
    transit.sealed, transit.token, transit.damage = False, TOKEN, ""
    assert ring[wrapped] == AesKey(b"k" * 32)


def test_a_token_that_is_renewed_is_found(transit: Transit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VAULT_TOKEN")
    monkeypatch.setenv("HOME", str(tmp_path))
    vault = vault_at("vault-transit://transit/orders")
    for transit.token in ("first", "second"):
        (tmp_path / ".vault-token").write_text(transit.token)
        assert vault.unwrap(vault.wrap(b"k", "c"), "c") == b"k"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("vault-transit://transit/none", "InvalidRequest: encryption key not found"),
        ("aws-kms://alias/none", "NotFoundException"),
        ("file:///no/such/file", "FileNotFoundError: No such file or directory"),
    ],
)
def test_a_master_key_that_is_not_there_refuses_no_record(
    uri: str, words: str, transit: Transit, kms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", kms)
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    for ask in (
        lambda: vault_at(uri).wrap(b"k", "c"),
        lambda: vault_at(uri).unwrap(b64encode(b"k" * 60).decode(), "c"),
    ):
        with pytest.raises(VaultError, match=words) as raised:
            ask()
        assert raised.value.__cause__ is None


def test_servers_that_do_not_answer_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", "http://127.0.0.1:1")
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    for uri, words in [
        ("vault-transit://transit/orders", "ConnectionError"),
        ("aws-kms://arn:aws:kms:eu-west-1:1:key/2", "Could not connect to the endpoint"),
    ]:
        with pytest.raises(VaultError, match=words) as raised:
            vault_at(uri).wrap(b"secret", "c")
        assert raised.value.__context__ is None, "its request has the key"


@pytest.mark.parametrize("lines", [b"", b"\n", b"c2hvcnQ=", b"no base64", b"!" + b64encode(b"k" * 32)])
def test_a_file_without_keys_is_not_taken(lines: bytes, tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(lines)
    with pytest.raises(VaultError, match="keys of 16, 24 or 32 bytes in base64") as raised:
        KeyFile(str(tmp_path / "keys")).wrap(b"k", "c")
    assert "c2hvcnQ" not in shown(raised.value)


@pytest.mark.parametrize("uri", ["orders", "s3://orders", "aws-kms://", "file:///", "", "vault-transit:transit/orders"])
def test_what_makes_no_sense_is_refused_at_once(uri: str) -> None:
    with pytest.raises(ValueError, match="a vault is aws-kms"):
        EnvelopeKeys(uri, "orders")
    for wrong in ({"context": ""}, {"period_ms": 999}, {"kind": Keyring}):
        with pytest.raises(ValueError, match=r"context|data keys"):
            EnvelopeKeys("file:///keys", **{"context": "c", **wrong})  # type: ignore[arg-type]


def test_equal_rings_are_equal() -> None:
    ring = EnvelopeKeys("file:///keys", "orders")
    assert ring == pickle.loads(pickle.dumps(ring)) == EnvelopeKeys(KeyFile("/keys"), "orders")
    assert hash(ring) == hash(pickle.loads(pickle.dumps(ring)))
    others = [EnvelopeKeys("file:///keys", "o"), EnvelopeKeys("file:///keys", "orders", kind=HmacKey), Keyring({})]
    assert [other for other in others if ring == other] == []
    assert Keyring(dict(BEFORE), "1") == BEFORE
    assert [other for other in (Keyring({"1": NEW}, "1"), Keyring(BEFORE), AFTER) if other == BEFORE] == []
    assert repr(ring) == "EnvelopeKeys(key file /keys, 'orders')"
