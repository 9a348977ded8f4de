"""The line on a terminal that says how far a command has come."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from warehouse.cli import waiting
from warehouse.cli.common import say
from warehouse.cli.waiting import progress_line, working


class Terminal(io.StringIO):
    """A terminal that records what is written."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def patched(monkeypatch: pytest.MonkeyPatch, delay_seconds: float) -> Terminal:
    """Return the terminal that stderr is from now on: pytest replaces it after fixtures."""
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(waiting, "DELAY_SECONDS", delay_seconds)
    monkeypatch.setattr(waiting, "INTERVAL_SECONDS", 0.0)
    return stderr


def test_the_line_is_replaced_and_goes_even_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = patched(monkeypatch, 0.0)
    with pytest.raises(ValueError, match="faulty"), progress_line("layouts") as show:
        assert show is not None
        show(61_440, 925_728)
        show(5, 6)
        raise ValueError("faulty")
    shown = "61,440 of 925,728 layouts"
    wanted = ["", shown, "5 of 6 layouts".ljust(len(shown)), " " * len(shown), ""]
    assert terminal.getvalue().split("\r") == wanted


def test_a_command_that_is_done_at_once_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = patched(monkeypatch, 60.0)
    with progress_line("layouts") as show:
        assert show is not None
        show(1, 2)
    assert terminal.getvalue() == ""


def test_work_without_steps_shows_its_seconds_and_makes_room_for_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = patched(monkeypatch, 0.0)
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.001)
    number = threading.active_count()
    with pytest.raises(ValueError, match="faulty"), working("writing the file"):
        assert threading.active_count() == number + 1
        while "writing the file: 0 s" not in terminal.getvalue():
            time.sleep(0.001)
        raise ValueError("faulty")
    assert threading.active_count() == number
    assert terminal.getvalue().endswith("\r")
    before = terminal.getvalue()
    say("done")
    assert terminal.getvalue() == f"{before}done\n"  # no line is left to take away
    with progress_line("layouts") as show:
        assert show is not None
        show(1, 2)
        say("a word")
    shown = "1 of 2 layouts"
    assert terminal.getvalue().endswith(f"\r{shown}\r{' ' * len(shown)}\ra word\n")


def test_a_file_gets_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "DELAY_SECONDS", 0.0)
    number = threading.active_count()
    with progress_line("layouts") as show:
        assert show is None
    with working("writing the file"):
        assert threading.active_count() == number  # none that would write later
    assert capsys.readouterr().err == ""
