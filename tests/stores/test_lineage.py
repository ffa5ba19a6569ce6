"""A builder that was made and thrown away is told of, and no other."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from statestore import StoreBuilder
from statestore.testing import TopologyTestDriver
from tests.support.driver_topologies import KINDS, chain, forward


def made() -> StoreBuilder[Any]:
    return KINDS["headers-kv"].persistent("s")


def told(builder: StoreBuilder[Any]) -> list[str]:
    """Return what a topology that is made with the builder, and run, warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        topology = chain(forward, builder)
        TopologyTestDriver(topology).close()
        TopologyTestDriver(topology).close()
    return [str(warning.message) for warning in caught]


def one(builder: StoreBuilder[Any]) -> None:
    builder.with_caching_enabled()


def two(builder: StoreBuilder[Any]) -> None:
    builder.with_metrics_enabled().with_ttl(5)


def one_of_a_copy(builder: StoreBuilder[Any]) -> None:
    copied = copy.copy(builder).with_metrics_enabled()
    copied.with_caching_enabled()


def unused(builder: StoreBuilder[Any]) -> None:
    forgotten = builder.with_caching_enabled()
    del forgotten


@pytest.mark.parametrize(
    ("throw_away", "method"),
    [(one, "with_caching_enabled"), (two, "with_metrics_enabled"), (unused, "with_caching_enabled")],
)
def test_what_was_thrown_away_is_told_once(throw_away: Callable[[Any], None], method: str) -> None:
    builder = made()
    throw_away(builder)
    (message,) = told(builder)
    assert message.startswith(f"store 's': what {method}() returned was thrown away")
    assert f"write builder = builder.{method}(...)" in message
    assert told(builder) == []


def test_what_is_thrown_away_after_the_store_was_added_is_told_when_the_topology_starts() -> None:
    builder = made()
    topology = chain(forward, builder)
    builder.with_caching_enabled()
    with pytest.warns(UserWarning, match=r"with_caching_enabled\(\) returned was thrown away"):
        TopologyTestDriver(topology).close()


def test_the_warning_names_the_line_that_adds_the_store() -> None:
    builder = made()
    builder.with_caching_enabled()
    with pytest.warns(UserWarning, match="thrown away") as caught:
        chain(forward, builder)
    assert caught[0].filename.endswith("driver_topologies.py")


KEPT: list[Any] = []


@pytest.mark.parametrize(
    "use",
    [
        lambda builder: builder.with_caching_enabled(),
        lambda builder: builder.with_caching_enabled().with_metrics_enabled().with_logging_disabled(),
        lambda builder: (KEPT.append(builder.with_caching_enabled()), builder)[1],
        lambda builder: (builder.with_ttl(5).spec, builder)[1],
        lambda builder: (told(builder.with_caching_enabled()), builder)[1],
        lambda builder: (builder.with_caching_disabled(), builder)[1],
        lambda builder: pickle.loads(pickle.dumps(builder.supplier)) and builder,
        lambda builder: copy.deepcopy(copy.copy(builder)),
        lambda builder: (one_of_a_copy(builder), builder)[1],
    ],
)
def test_what_was_used_or_changes_nothing_is_not_told(use: Callable[[Any], Any]) -> None:
    assert told(use(made())) == []
    assert told(made()) == []


@pytest.mark.parametrize(
    "look",
    [
        lambda builder: builder.with_metrics_enabled().metrics_enabled,
        lambda builder: builder.with_metrics_enabled() == builder,
        lambda builder: repr(builder.with_metrics_enabled().with_ttl(5)),
    ],
)
def test_what_was_only_looked_at_has_no_effect_either(look: Callable[[Any], Any]) -> None:
    builder = made()
    look(builder)
    (message,) = told(builder)
    assert message.startswith("store 's': what with_metrics_enabled() returned was thrown away")


def test_a_topology_that_is_gone_has_used_its_builders() -> None:
    builder = made()
    chain(forward, builder.with_caching_enabled().with_metrics_enabled())
    assert told(builder) == []


def test_a_change_to_the_same_is_the_builder_itself() -> None:
    builder = made()
    assert builder.with_metrics_disabled() is builder


def test_a_refused_change_leaves_nothing() -> None:
    builder = made()
    with pytest.raises(ValueError, match="max_bytes"):
        builder.with_caching_enabled(-1)
    assert told(builder) == []
