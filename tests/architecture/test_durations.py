"""What a test costs: processor time of its process and of all below, each counted once."""

from __future__ import annotations

from tests.support.durations import Cost, Process, by, spent_s

BEFORE = {"1": Process("0", 5.0, 1.0), "2": Process("1", 3.0, 0.5), "3": Process("2", 2.0, 0.0)}


def test_what_lives_and_what_is_new_is_added() -> None:
    now = {"1": Process("0", 6.0, 1.0), "2": Process("1", 3.5, 0.5), "3": BEFORE["3"], "4": Process("2", 0.25, 0.0)}
    assert spent_s(BEFORE, now) == 1.75


def test_what_ended_is_counted_by_what_its_parent_waited_for_and_once() -> None:
    now = {"1": BEFORE["1"], "2": Process("1", 3.0, 0.5 + 2.5)}
    assert spent_s(BEFORE, now) == 0.5, "2.0 of it were seen before"
    assert spent_s(BEFORE, {"1": BEFORE["1"], "2": BEFORE["2"]}) == 0.0, "nobody waited for it"
    assert spent_s(BEFORE, {"1": Process("0", 5.0, 1.0 + 3.5 + 2.0 + 1.0)}) == 1.0, "with what had ended below it"


def test_costs_are_summed_by_what_names_have_in_common() -> None:
    costs = {"a/x.py::1": Cost(1.0, 0.5, 1), "a/x.py::2": Cost(2.0, 0.25), "b/y.py::1": Cost(4.0, 3.0)}
    summed = by(costs, lambda name: name.partition("::")[0])
    assert summed == {"a/x.py": Cost(3.0, 0.75, 1, 2), "b/y.py": Cost(4.0, 3.0)}
