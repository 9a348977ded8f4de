"""Lines of a shell print and return what they would with the program as a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.build.shells import in_shell


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    monkeypatch.chdir(tmp_path)
    return []


def run(line: str, calls: list[tuple[str, ...]]) -> tuple[int, str, str]:
    """Run a line whose program returns its first argument as code, and prints the others."""

    def call(code: str, *words: str) -> tuple[int, str, str]:
        calls.append((Path.cwd().name, *words))
        return int(code), "".join(f"{word}\n" for word in words), f"err of {len(calls)}\n"

    return in_shell(line, call)


def test_arguments_output_and_code_go_through(calls: list[tuple[str, ...]], tmp_path: Path) -> None:
    assert run("warehouse 3 'a\nb' '' \"é  $((1 + 1))\"", calls) == (
        3,
        "a\nb\n\né  2\n",
        "err of 1\n",
    )
    assert calls == [(tmp_path.name, "a\nb", "", "é  2")]


def test_pipes_loops_and_redirections_are_the_shells(calls: list[tuple[str, ...]]) -> None:
    line = (
        "mkdir sub; for w in x y; do warehouse 0 $w 2>&1 | sed 's/^/> /'; done;"
        " (cd sub; warehouse 0 z > file 2>/dev/null); cat sub/file; warehouse 1 || echo failed"
    )
    code, out, err = run(line, calls)
    assert (code, out) == (0, "> x\n> err of 1\n> y\n> err of 2\nz\nfailed\n")
    assert err == "err of 4\n"
    assert [place for place, *_ in calls][2] == "sub"


def test_a_large_output_passes_a_pipe(calls: list[tuple[str, ...]]) -> None:
    words = " ".join(["w" * 100] * 900)
    assert run(f"warehouse 0 {words} | wc -l", calls)[1].strip() == "900"


def test_a_call_that_raises_ends_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: str) -> tuple[int, str, str]:
        raise LookupError

    monkeypatch.chdir(tmp_path)
    with pytest.raises(LookupError):
        in_shell("warehouse a || echo $? > code", fail)
    assert (tmp_path / "code").read_text() == "125\n"
