"""`warehouse serve --mcp`, asked by the client of the SDK over stdio, and by a hostile one."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent

from tests.cli.planning import QUESTION
from tests.cli.test_json_schemas import faults
from tests.shared import Command, Quickstart, digest
from warehouse.cli.serve import TOOLS, Tool
from warehouse.processes import is_alive

SERVE = """
import sys
from warehouse.cli import serve
from warehouse.cli.main import main
serve.SECONDS = float(sys.argv.pop(1))
main()
"""

Ask = Callable[..., Awaitable[tuple[bool, list[str]]]]
"""Calls a tool; returns whether it answers, and its texts."""


@asynccontextmanager
async def connected(
    database: Path, seconds: float = 300
) -> AsyncIterator[tuple[ClientSession, Ask]]:
    """Start a server in an empty folder, and yield a client of it."""
    arguments = ["-c", SERVE, str(seconds), "serve", "--mcp", "--db", str(database)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    place = database.parent / "empty"
    place.mkdir(exist_ok=True)
    parameters = StdioServerParameters(
        command=sys.executable, args=arguments, env=environment, cwd=place
    )
    with Path(os.devnull).open("w") as silent:
        async with (
            stdio_client(parameters, errlog=silent) as (read, write),
            ClientSession(read, write) as session,
        ):

            async def ask(tool: str, **arguments: Any) -> tuple[bool, list[str]]:
                result = await session.call_tool(tool, arguments)
                texts = [each.text for each in result.content if isinstance(each, TextContent)]
                return not result.is_error, texts

            await session.initialize()
            yield session, ask
    assert [*place.iterdir()] == []


def asked(database: Path, *calls: tuple[str, dict[str, Any]]) -> list[tuple[bool, list[str]]]:
    """Return the answers to some calls of one server."""

    async def run() -> list[tuple[bool, list[str]]]:
        async with connected(database) as (_, ask):
            return [await ask(tool, **arguments) for tool, arguments in calls]

    return anyio.run(run)


@pytest.fixture
def copy(planned_database: Path, tmp_path: Path) -> Path:
    """A database with a plan, in an empty folder."""
    (tmp_path / "served").mkdir()
    return Path(shutil.move(planned_database, tmp_path / "served" / "warehouse.duckdb"))


@contextmanager
def raw_server(
    database: Path, *lines: str
) -> Iterator[tuple[subprocess.Popen[str], Callable[[Any], None]]]:
    """Start a server, write lines to it and then greet it; yield it, and what sends a message."""
    client = {"name": "raw", "version": "0"}
    given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    with subprocess.Popen(
        [sys.executable, "-m", "warehouse", "serve", "--mcp", "--db", str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        pipe = server.stdin

        def send(message: Any) -> None:
            pipe.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
            pipe.flush()

        for line in lines:
            send(line)
        send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": given})
        answers = map(json.loads, iter(server.stdout.readline, ""))
        found = next(answer for answer in answers if answer.get("id") == 1)
        assert found["result"]["serverInfo"]["name"] == "training-warehouse"
        send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield server, send


# ---- the tools ----

RUN = {"model": QUESTION[1], "accelerator": QUESTION[3], "tokens": QUESTION[5]}
OF_BATCH = {**RUN, "global_batch_size": QUESTION[7], "num_gpus": 8}
LAYOUT = ["num_gpus=8", "dp4", "tp2"]
OF_LAYOUT = {"model": QUESTION[1], "accelerator": QUESTION[3], "pairs": LAYOUT}


@pytest.mark.long
def test_each_tool_answers_with_the_json_of_its_command(warehouse: Command, copy: Path) -> None:
    calls: dict[str, tuple[dict[str, Any], tuple[object, ...]]] = {
        "plan": (OF_BATCH, ("plan", *QUESTION, "--gpus", 8)),
        "compare": (
            {**OF_BATCH, "num_gpus": [8, 4]},
            ("plan", *QUESTION, "--gpus", 8, "--gpus", 4),
        ),
        "why": (OF_LAYOUT, ("why", *QUESTION[:4], *LAYOUT)),
        "rank": ({"top": 2}, ("rank", "--top", 2)),
        "sql": ({"query": "select 1 as a"}, ("sql", "select 1 as a")),
        "schema": ({"name": "model"}, ("schema", "model")),
    }
    assert tuple(calls) == TOOLS
    answers = asked(copy, *((tool, given) for tool, (given, _) in calls.items()))
    for (is_answer, texts), (_, command) in zip(answers, calls.values(), strict=True):
        assert is_answer, texts
        code, out, _ = warehouse(*command, "--json", "--db", copy)
        assert code == 0
        found, expected = json.loads(texts[0]), json.loads(out)
        for each in (found, expected) if command[0] == "plan" else ():
            for answer in each.get("answers", [each]):
                answer.pop("swept")  # the second time nothing is missing
        assert found == expected, command
        assert faults(str(command[0]), json.loads(texts[0])) == []


@pytest.mark.long
def test_tools_say_what_they_take_and_the_server_what_it_is(copy: Path) -> None:
    async def run() -> None:
        async with connected(copy) as (session, _):
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert tuple(tools) == TOOLS
            for tool in tools.values():
                assert tool.description
                assert tool.input_schema["additionalProperties"] is False
            assert tools["sql"].input_schema["required"] == ["query"]
            said = session.server_info
            assert said is not None
            assert "reference data " in said.version

    anyio.run(run)


@pytest.mark.parametrize("name", TOOLS)
def test_no_argument_names_a_file_or_a_limit(name: str) -> None:
    arguments = set(Tool(name).options)
    assert arguments
    unwanted = {
        *("catalog", "launch", "out", "db", "wait", "timeout", "memory", "yes", "named"),
        "columns",
    }
    assert not arguments & unwanted


@pytest.mark.long
def test_a_model_is_given_by_the_content_of_its_file(copy: Path) -> None:
    content = {
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 1000,
        "max_position_embeddings": 128,
    }
    [(is_answer, texts), (is_other, others)] = asked(
        copy,
        ("why", {**OF_LAYOUT, "model": content, "pairs": [*LAYOUT, "global_batch_size=64"]}),
        ("why", {**OF_LAYOUT, "model": {"model_type": "mamba"}}),
    )
    assert is_answer, texts
    assert json.loads(texts[0])["question"]["num_layers"] == 4
    assert not is_other
    assert "mamba" in others[0]
    assert "/" not in others[0].partition("own_model.json")[0]


# ---- a hostile client ----

NOT_SELECT = "the query is not a SELECT"
HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("sql", {"query": "copy (select 1) to 'evil.csv'"}, NOT_SELECT),
    ("sql", {"query": "drop table cell"}, NOT_SELECT),
    ("sql", {"query": "attach 'evil.duckdb'"}, NOT_SELECT),
    ("sql", {"query": "load httpfs"}, NOT_SELECT),
    ("sql", {"query": "set memory_limit = '100GB'"}, NOT_SELECT),
    ("sql", {"query": "select 1; drop table cell"}, "the query has 2 statements"),
    ("sql", {"query": "from read_csv('/etc/passwd')"}, "file system operations are disabled"),
    ("sql", {"query": "from read_text('/etc/passwd')"}, "file system operations are disabled"),
    ("sql", {"query": "from glob('/*')"}, "file system operations are disabled"),
    ("sql", {"query": "from '/etc/passwd'"}, "does not exist"),
    ("sql", {"query": "select getenv('HOME')"}, "does not exist"),
    ("sql", {"query": "from range(1000000000)"}, "the answer has more than 1 MB"),
    ("sql", {"query": "select repeat('x', 10000000)"}, "the answer has more than 1 MB"),
    ("sql", {"query": "select range(1000000000)"}, "more than"),
    ("sql", {"query": "select '\x00'"}, "control character"),
    ("sql", {"query": "x" * 200_000}, "is too long"),
    ("sql", {"query": 5}, "is not of type 'string'"),
    ("sql", {}, "'query' is a required property"),
    ("sql", {"query": "select 1", "out": "evil.json"}, "'out' was unexpected"),
    ("sql", {"query": "select 1", "timeout": 1e9}, "'timeout' was unexpected"),
    ("plan", {**OF_BATCH, "model": __file__.removesuffix("py") + "json"}, "tools read no files"),
    ("plan", {**OF_BATCH, "db": "evil.duckdb"}, "'db' was unexpected"),
    ("plan", {**OF_BATCH, "catalog": "/etc/passwd"}, "'catalog' was unexpected"),
    ("why", {"pairs": [], "launch": "/etc/passwd"}, "'launch' was unexpected"),
    ("plan", {**OF_BATCH, "model": "--out=evil"}, "is not in the `model` table"),
    ("plan", {**OF_BATCH, "model": "a\0b"}, "null byte"),
    ("plan", {**OF_BATCH, "model": "x" * 10_000_000}, "is too long"),
    ("plan", {**OF_BATCH, "tokens": 1e300}, "is greater than the maximum"),
    ("plan", {**OF_BATCH, "tokens": "many"}, "is not a number"),
    ("plan", {**OF_BATCH, "num_gpus": True}, "is not valid"),
    ("plan", {**OF_BATCH, "num_gpus": [8, 16]}, "is not valid"),
    ("plan", {**OF_BATCH, "price": [1.0] * 1000}, "is not valid"),
    ("why", {"pairs": ["--out=evil", "--db=evil.duckdb"]}, "is not an input"),
    ("why", {"pairs": ["--out=evil.json"]}, "tools read no files"),
    ("why", {"pairs": ["model=evil.json", "num_gpus=8"]}, "tools read no files"),
    ("why", {**OF_LAYOUT, "model": {"model_type": "llama"}, "pairs": ["model=a.json"]}, "no files"),
    ("rank", {"by": "step_seconds; drop table cell"}, "is not a numeric column"),
    ("rank", {"top": "-1"}, "must be at least 1"),
    ("schema", {"name": "x'; drop table cell"}, "is no table"),
    ("zzz", {"a": 1}, "is no tool"),
]


@pytest.mark.long
def test_a_hostile_client_gets_errors_that_say_why_and_the_server_lives_on(copy: Path) -> None:
    before = digest(copy)
    last = ("sql", {"query": "select 42 as answer"})
    *answers, (is_answer, texts) = asked(copy, *((t, g) for t, g, _ in HOSTILE), last)
    for (tool, given, reason), (is_other, said) in zip(HOSTILE, answers, strict=True):
        assert not is_other, (tool, str(given)[:200])
        assert said[0].startswith("error: "), said
        assert reason in said[0], said
        assert len(said[0]) < 6000
    assert (is_answer, json.loads(texts[0])) == (True, [{"answer": 42}])
    assert digest(copy) == before


@pytest.mark.long
def test_a_call_without_end_is_stopped_while_others_are_answered(copy: Path) -> None:
    endless = "select count(*) from range(10000000000) a, range(1000000) b"

    async def run() -> None:
        answers: dict[str, tuple[bool, list[str]]] = {}

        async def keep(name: str, query: str) -> None:
            answers[name] = await ask("sql", query=query)

        async with connected(copy, seconds=5) as (session, ask):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keep, "endless", endless)
                await anyio.sleep(0.5)
                await keep("short", "select 1 as a")
                await session.send_ping()
                assert set(answers) == {"short"}
            # a client that gives up: its query ends, too
            with anyio.move_on_after(1):
                await ask("sql", query=endless)
            await keep("last", "select 2 as b")
        assert answers["short"] == (True, ['[\n{"a": 1}\n]\n'])
        assert answers["last"] == (True, ['[\n{"b": 2}\n]\n'])
        is_answer, said = answers["endless"]
        assert not is_answer
        assert said[0] == "error: the call took more than 5 seconds\nhint: ask for less"

    anyio.run(run)


@pytest.mark.long
def test_lines_that_are_no_messages_do_not_end_the_server(copy: Path) -> None:
    lines = ["", "not json", "[]", '{"jsonrpc": "2.0"}', "[" * 10_000, '"\\ud800"']
    with raw_server(copy, *lines) as (server, _):
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait(60) == 0


# ---- its start ----


def test_it_needs_a_protocol_and_the_extra(
    warehouse: Command, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = warehouse("serve", "--db", empty_warehouse)
    assert (code, out, err) == (2, "", "error: `serve` needs a protocol\nhint: give --mcp\n")
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "warehouse.cli.serve.find_spec", lambda name: None if name == "mcp" else found(name)
    )
    code, out, err = warehouse("serve", "--mcp", "--db", empty_warehouse)
    assert (code, out) == (3, "")
    assert "training-warehouse[mcp]" in err


@pytest.mark.long
def test_a_missing_database_is_made_before_the_first_question(tmp_path: Path) -> None:
    database = tmp_path / "new" / "warehouse.duckdb"
    database.parent.mkdir()
    [(is_answer, texts)] = asked(database, ("sql", {"query": "select count(*) as n from cell"}))
    assert (is_answer, json.loads(texts[0])) == (True, [{"n": 0}])


@pytest.mark.long
def test_rows_of_a_sweep_are_ranked(quickstart: Quickstart) -> None:
    [(is_answer, texts)] = asked(quickstart.database, ("rank", {"model": "gpt3 1t", "top": 1}))
    assert is_answer, texts
    assert faults("rank", json.loads(texts[0])) == []
    assert "layouts shown" in texts[1]


@pytest.mark.parametrize("how", ["its input ends", "SIGTERM", "SIGINT"])
@pytest.mark.long
def test_the_server_ends_with_its_client_and_so_do_its_queries(copy: Path, how: str) -> None:
    endless = "select count(*) from range(10000000000) a, range(1000000) b"
    call = {"name": "sql", "arguments": {"query": endless}}
    with raw_server(copy) as (server, send):
        send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        while not (found := children.read_text().split()):
            time.sleep(0.05)
        if how == "its input ends":
            assert server.stdin is not None
            server.stdin.close()
        else:
            server.send_signal(getattr(signal, how))
        assert server.wait(30) == (0 if how == "its input ends" else 130)
        end = time.monotonic() + 60
        while any(is_alive(int(pid)) for pid in found) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(is_alive(int(pid)) for pid in found)
