"""Lines of a shell whose calls of the program run in this process.

A real shell runs the line, but starts no process of the program, which would take a second. There
`warehouse` is a function: it hands over its arguments and its directory, waits, and prints what the
call said.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

Call = Callable[..., tuple[int, str, str]]
"""Calls a command with these arguments; returns exit code, stdout, stderr."""

FUNCTION = """\
warehouse() {
    local code
    printf '%s\\0' $(($# + 1)) "$PWD" "$@" >&"$ASKING"
    IFS= read -r code <&"$ANSWERED" || return 125
    cat "$SAID/call.out"
    cat "$SAID/call.err" >&2
    return "$code"
}
"""


def in_shell(line: str, call: Call) -> tuple[int, str, str]:
    """Run a line in bash, in the current directory; return exit code, stdout, stderr.

    `call` runs each call of the program. It gets no input, and prints when it is done.
    """
    with TemporaryDirectory() as folder:
        said = Path(folder)
        asked, asking = os.pipe()
        answered, answering = os.pipe()
        names = {"ASKING": str(asking), "ANSWERED": str(answered), "SAID": folder}
        try:
            with (said / "out").open("wb") as out, (said / "err").open("wb") as err:
                shell = subprocess.Popen(
                    ["bash", "-c", FUNCTION + line],
                    env=os.environ | names,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    pass_fds=(asking, answered),
                )
        finally:
            os.close(asking)  # the shell has the last copy: its end ends the loop
            os.close(answered)
        try:
            for directory, *arguments in _requests(asked):
                with chdir(directory):
                    code, *texts = call(*arguments)
                for name, text in zip(("call.out", "call.err"), texts, strict=True):
                    (said / name).write_bytes(text.encode())
                os.write(answering, f"{code}\n".encode())
        finally:
            os.close(asked)
            os.close(answering)  # a shell that waits gets no answer, and ends
            shell.wait()
        printed = (said / "out").read_text("utf-8")
        return shell.returncode, printed, (said / "err").read_text("utf-8")


def _requests(pipe: int) -> Iterator[list[str]]:
    """Yield the directory and the arguments of each call, until no shell holds the pipe."""
    left = b""
    while chunk := os.read(pipe, 1 << 16):
        left += chunk
        while b"\0" in left:
            count, _, rest = left.partition(b"\0")
            *fields, rest = rest.split(b"\0", int(count))
            if len(fields) < int(count):
                break
            left = rest
            yield [os.fsdecode(field) for field in fields]
