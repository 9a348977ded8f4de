"""A program of others: what it is given, where it runs, what it answers.

Each has an environment of its own, a folder of the cache with the packages that it needs. Its
source is a release of the package index or a checkout; none of it is part of the project. One
process answers all rows; `driver.py` runs in it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from benchmarks.rivals.rows import Row
from warehouse import settings

DRIVER = Path(__file__).with_name("driver.py")

Config = Mapping[str, Any]
"""What a program reads, as `driver.py` hands it on; it becomes JSON."""


class RefusedError(Exception):
    """A row that a program has no input for; the text is the reason."""


class AbsentError(Exception):
    """A program that is not there; the text is the reason."""


@dataclass(frozen=True)
class Rival:
    """A program of others.

    Attributes
    ----------
    name, title
        As on the command line and in `driver.py`; as people know it.
    source, commit
        Its repository, and the version of it that its adapter was written for.
    packages
        What its checkout needs from the package index.
    configure
        From a row to what the program reads. Raise `RefusedError` where it has no input for it.
    settings
        Which of its own defaults are used, for the page.
    reasons
        Pattern of an error of the program -> the reason in our words.
    release
        Packages that have the program itself, for a run without a checkout.
    """

    name: str
    title: str
    source: str
    commit: str
    packages: tuple[str, ...]
    configure: Callable[[Row], Config]
    settings: str
    reasons: Mapping[str, str]
    release: tuple[str, ...] = ()

    def version(self, checkout: Path | None) -> str:
        """Return the commit of a checkout, or the release."""
        if checkout is None:
            return ", ".join(self.release)
        found = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
        commit = found.stdout.strip()
        return f"@{commit[:8]}" if found.returncode == 0 else "unknown commit"

    def answers(self, rows: Sequence[Row], checkout: Path | None) -> list[float | str]:
        """Return the seconds of every row, or the reason why there are none.

        Raise `AbsentError` if the program is not there.
        """
        found: list[float | str] = []
        configs: list[Config] = []
        for row in rows:
            try:
                configs.append(self.configure(row))
                found.append(0.0)
            except RefusedError as error:
                found.append(str(error))
        answered = iter(self._run(configs, checkout))
        return [self._reason(next(answered)) if answer == 0.0 else answer for answer in found]

    def _reason(self, answer: float | str) -> float | str:
        if not isinstance(answer, str):
            return answer
        known = (words for text, words in self.reasons.items() if re.search(text, answer))
        return next(known, re.sub(r"\d[\d.]*", "N", answer))

    def _run(self, configs: Sequence[Config], checkout: Path | None) -> list[float | str]:
        python = self._environment(checkout)
        with tempfile.TemporaryDirectory() as folder:
            asked, told = Path(folder) / "asked.json", Path(folder) / "told.json"
            asked.write_text(json.dumps(configs), encoding="utf-8")
            # isolated: no module of this project may stand for one of the program
            command = [str(python), "-I", str(DRIVER), self.name, str(asked), str(told)]
            done = subprocess.run(
                command if checkout is None else [*command, str(checkout.resolve())],
                cwd=folder,  # programs leave files behind
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise AbsentError(f"did not run: {_last_line(done.stderr)}")
            answers: list[float | str] = json.loads(told.read_text(encoding="utf-8"))
            return answers

    def _environment(self, checkout: Path | None) -> Path:
        """Return the interpreter of the program's environment, which is made if it is not there."""
        packages = self.release if checkout is None else self.packages
        if checkout is None and not packages:
            raise AbsentError(f"is not here; name a checkout of it with --{self.name} PATH")
        if checkout is not None and not checkout.is_dir():
            raise AbsentError(f"has no checkout at {checkout}")
        if not packages:
            return Path(sys.executable)
        cache = settings.cache()
        if cache is None:
            raise AbsentError("has no place for an environment; set `cache`")
        key = blake2b(" ".join((*packages, sys.version)).encode(), digest_size=6).hexdigest()
        folder = cache / "rivals" / f"{self.name}-{key}"
        python = folder / "bin" / "python"
        is_complete = folder / "complete"
        if not is_complete.exists():
            _called([sys.executable, "-m", "venv", "--clear", str(folder)])
            _called([str(python), "-m", "pip", "install", "--quiet", *packages])
            is_complete.touch()
        return python


def _called(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AbsentError(f"cannot be installed: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1]


def refuse(**reasons: bool) -> None:
    """Raise `RefusedError` for the first reason that holds, underscores read as spaces."""
    for reason, holds in reasons.items():
        if holds:
            raise RefusedError(reason.replace("_", " "))


def equal_width(row: Row) -> int:
    """Return the width of an ungated feed-forward layer with the products of the row's.

    A gated layer has three matrices, an ungated one two: LLaMA (arXiv 2302.13971) made its gated
    layers two thirds as wide for this reason.
    """
    width: int = row.inputs["ffn_hidden_size"]
    return width * 3 // 2 if row.inputs["uses_glu"] else width


def is_plain(row: Row) -> bool:
    """Return whether a layer is attention and one dense feed-forward layer, without extras."""
    given = row.inputs
    return not (
        given["kv_lora_rank"]
        or given["attention_window"]
        or given["num_mtp_layers"]
        or given["num_dense_layers"]
        or given["num_shared_experts"]
    )
