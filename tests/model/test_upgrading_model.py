"""A store in the middle of an upgrade does what a dict does, whatever moves when."""

from collections.abc import Iterator
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.bytestore.test_upgrading import SCRATCH, Upgrade

KEYS = st.binary(max_size=2).map(lambda key: bytes(byte % 4 for byte in key))  # few, so that they collide
VALUES = st.binary(max_size=2)


class UpgradeModel(RuleBasedStateMachine):
    """A store in the middle of an upgrade against a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory(dir=SCRATCH)
        self.model: dict[bytes, bytes] = {}
        self.scans: list[tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = []

    @initialize(legacy=st.dictionaries(KEYS, VALUES))
    def begin(self, legacy: dict[bytes, bytes]) -> None:
        self.upgrade = Upgrade(self.directory.name, legacy)
        self.model = {key: b"converted " + value for key, value in legacy.items()}

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.upgrade.store.get(key) == self.model.get(key)
        assert key not in self.upgrade.legacy()

    @rule(key=KEYS, value=st.none() | VALUES)
    def put(self, key: bytes, value: bytes | None) -> None:
        self.upgrade.store.put(key, value)
        self.model.pop(key, None)
        if value is not None:
            self.model[key] = value
        assert key not in self.upgrade.legacy()

    @rule(end=KEYS)
    def delete_below(self, end: bytes) -> None:
        self.upgrade.store.delete_below(end)
        self.model = {key: value for key, value in self.model.items() if key >= end}

    def wanted(self, start: bytes | None, end: bytes | None, reverse: bool) -> list[tuple[bytes, bytes]]:
        found = ((key, value) for key, value in self.model.items() if (start or b"") <= key)
        return sorted((pair for pair in found if end is None or pair[0] <= end), reverse=reverse)

    @rule(start=st.none() | KEYS, end=st.none() | KEYS, reverse=st.booleans())
    def range(self, start: bytes | None, end: bytes | None, reverse: bool) -> None:
        assert list(self.upgrade.store.range(start, end, reverse=reverse)) == self.wanted(start, end, reverse)

    @rule(start=st.none() | KEYS, reverse=st.booleans())
    def begin_scan(self, start: bytes | None, reverse: bool) -> None:
        scan = self.upgrade.store.range(start, None, reverse=reverse)
        self.scans.append((scan, self.wanted(start, None, reverse)))

    @rule()
    def finish_scans(self) -> None:
        for scan, wanted in self.scans:
            assert list(scan) == wanted
        self.scans.clear()

    @rule()
    def finish_upgrade(self) -> None:
        assert self.upgrade.store.finish_upgrade(budget_ms=0).is_finished
        assert self.upgrade.legacy() == {}

    @rule()
    def reopen(self) -> None:
        self.scans.clear()
        self.upgrade.reopen()

    @invariant()
    def everything_is_there(self) -> None:
        if hasattr(self, "upgrade"):
            assert self.upgrade.content() == self.model
            assert self.upgrade.store.upgrade_progress().is_finished == (not self.upgrade.legacy())

    def teardown(self) -> None:
        if hasattr(self, "upgrade"):
            self.scans.clear()
            self.upgrade.database.close()
        self.directory.cleanup()


TestUpgradeModel = UpgradeModel.TestCase
TestUpgradeModel.settings = settings(max_examples=40, stateful_step_count=25)
