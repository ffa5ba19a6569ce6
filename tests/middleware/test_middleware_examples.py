"""The demos of middleware do what they say."""

import pytest

import middleware_tracing


def test_b12_the_demo_of_tracing_shows_a_trace_through_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert middleware_tracing.main() == 0
    shown = capsys.readouterr().out
    assert "          billing: send reminders\n" in shown
    assert "          billing: send paid  links to: process payments\n" in shown
