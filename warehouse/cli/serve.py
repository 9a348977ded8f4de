"""`warehouse serve --mcp`: the questions as tools of a language model's agent, over stdio.

A tool is a command in a new process, with limits of time and size: no question can end the server.
Its arguments are the options of the command, but those that name files; its answer is the JSON.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from warehouse.cli.database import bring_up_to_date
from warehouse.cli.options import DEFAULT_DATABASE, DatabasePath
from warehouse.errors import LONGEST_MESSAGE, InputError, UsageError, WarehouseError, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from anyio.abc import ByteReceiveStream

    Given = Mapping[str, Any]

TOOLS = ("plan", "compare", "why", "rank", "sql", "schema")
_COMPARED = ("accelerator", "num_gpus", "tokens")
"""`compare` is `plan` with several values of these, a row each; the others are commands."""

_LEFT_OUT = {
    *("named", "as_json", "wide", "columns", "ids_as_text", "wait", "yes", "details", "show_sql"),
    *("dry_run", "timeout", "memory"),
}
"""Options of formats, of limits, and for people. Those that name files go by their type."""

SECONDS, MOST_BYTES, AT_ONCE = 600.0, 1_000_000, 2
"""Most time of a call, size of an answer, and calls; a query has the limits of `warehouse sql`."""
_LONGEST, _LONGEST_QUERY, _MOST_VALUES, _STOPPED = 1_000, 100_000, 100, 130

INSTRUCTIONS = """\
Plans training runs of transformers: the fastest layouts on given GPUs, with days, dollars, energy
and ranges. Start with `plan`, or `compare` for several machines. `why` says where a layout loses
time; `rank` and `sql` read stored layouts; `schema` lists what there is to query. Units: seconds,
bytes, dollars, watts. Say the range (likely_training_seconds) and past errors (track_record)."""


def serve(
    *,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Speak the Model Context Protocol on stdin and stdout.")
    ] = False,
    db: DatabasePath = DEFAULT_DATABASE,
) -> None:
    """Answer the questions of an agent (Model Context Protocol).

    An agent starts this command and speaks to it on stdin and stdout. Its tools are plan, compare,
    why, rank, sql and schema, with the options of these commands, and the same JSON. No tool reads
    or writes a file but the database, in which plan and compare store the layouts that they
    evaluate; sql runs one SELECT in the sandbox of `warehouse sql`. Needs the extra `mcp`.
    """
    if not mcp:
        raise UsageError("`serve` needs a protocol", "give --mcp")
    if find_spec("mcp") is None:
        hint = "install it with `pip install 'training-warehouse[mcp]'`"
        raise InputError("the server needs the package mcp", hint)
    import anyio

    if not db.exists():
        bring_up_to_date(db)
    try:
        anyio.run(_serve, db.resolve())
    except KeyboardInterrupt:  # a thread that waits for stdin would keep the process
        os._exit(_STOPPED)


async def _serve(db: Path) -> None:
    import anyio
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    from warehouse import __version__
    from warehouse.database.stamp import reference_in_words

    tools = {name: Tool(name) for name in TOOLS}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        found = [
            types.Tool(name=name, description=tool.description, input_schema=tool.schema)
            for name, tool in tools.items()
        ]
        return types.ListToolsResult(tools=found)

    async def call(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if asked.name not in tools:
                raise UsageError(f"{asked.name[:100]!r} is no tool", f"use {', '.join(TOOLS)}")
            async with limiter:
                texts = await _answered(tools[asked.name], asked.arguments or {}, db)
            is_error = False
        except (WarehouseError, ValueError) as error:  # a text that no program takes
            texts, is_error = [f"error: {shortened(str(error), LONGEST_MESSAGE)}"], True
        content = [types.TextContent(type="text", text=text) for text in texts if text]
        return types.CallToolResult(content=[*content], is_error=is_error)

    server: Server[Any] = Server(
        "training-warehouse",
        version=f"{__version__}, {reference_in_words()}",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class Tool:
    """A tool: its command, and the schema of its arguments. `options` has argument -> option."""

    def __init__(self, name: str) -> None:
        from warehouse.cli.commands import COMMANDS
        from warehouse.cli.lazy import LazyCommand

        self.command, self.usual, how = name, {}, ""
        if name == "compare":
            self.command, self.usual = "plan", {"accelerator": "all"}
            how = "Compare machines (by default all), GPU counts or lengths of runs. "
        [listing] = [entry for entry in COMMANDS if entry.name == self.command]
        loaded = LazyCommand(listing).loaded()
        self.options: dict[str, str] = {}
        properties, required = {}, []
        for parameter in loaded.params:
            annotation = loaded.annotations.get(parameter.name or "")
            kind, *marks = get_args(annotation) or (annotation,)
            kinds = {kind, *get_args(kind)}
            if kinds & {None, Path} or parameter.name in _LEFT_OUT:
                continue
            is_option = parameter.param_type_name == "option"
            self.options[parameter.name] = parameter.opts[0] if is_option else ""
            is_list = parameter.multiple or parameter.nargs == -1
            longest = _LONGEST_QUERY if parameter.name == "query" else _LONGEST
            schema = {"type": "boolean"} if bool in kinds else _schema(marks, longest)
            if is_list and (name != "plan" or parameter.name not in _COMPARED):
                several = {"type": "array", "items": schema, "maxItems": _MOST_VALUES}
                schema = {"anyOf": [schema, several]} if is_option else several
            properties[parameter.name] = {"description": getattr(parameter, "help", ""), **schema}
            required += [parameter.name] if parameter.required else []
        if self.command in ("plan", "why"):
            told = "The model: its name, or the content of its config.json."
            either = [_schema((), _LONGEST), {"type": "object"}]
            properties["model"] = {"description": told, "anyOf": either}
        closed = {"required": required, "additionalProperties": False}
        self.schema = {"type": "object", "properties": properties, **closed}
        self.description = how + " ".join((listing.function().__doc__ or "").split())

    def words(self, given: Given) -> Iterator[str]:
        """Yield the words of the command line; no text of an argument can become an option."""
        following: list[str] = []
        for name, value in {**self.usual, **given}.items():
            values = value if isinstance(value, list) else [value]
            if not self.options[name]:  # a query comes on stdin
                following += ["-"] if name == "query" else values
            elif isinstance(value, bool):
                yield from [self.options[name]] if value else []
            else:
                yield from (f"{self.options[name]}={each}" for each in values)
        yield from ("--", *following)


def _schema(marks: Sequence[Any], longest: int) -> dict[str, Any]:
    """Return the schema of a value of an option; a text may be a number, such as 15T."""
    text = {"type": "string", "maxLength": longest}
    number = next((mark.parser for mark in marks if getattr(mark, "parser", None)), None)
    if number is None:
        return text
    most = {"minimum": -number.most, "maximum": number.most}
    return {"anyOf": [{"type": "integer" if number.whole else "number", **most}, text]}


async def _answered(tool: Tool, given: Given, db: Path) -> list[str]:
    """Return the texts of an answer: its JSON, and what the command says next to it."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    from warehouse.studies.hugging_face import is_model_file

    fault = best_match(Draft202012Validator(tool.schema).iter_errors(given))
    if fault is not None:
        value, known = repr(fault.instance), ", ".join(tool.options)
        reason = fault.message.replace(value, shortened(value, 60))
        raise InputError(f"{fault.json_path[:100]}: {reason}", f"arguments: {known}")
    for text in (given.get("model"), *given.get("pairs", ())):
        if isinstance(text, str) and any(map(is_model_file, (text, text.partition("=")[2]))):
            hint = "give the content of the config.json as an object"
            raise InputError(f"`model` {text[:100]}: tools read no files", hint)
    with TemporaryDirectory() as folder:
        if isinstance(given.get("model"), dict):
            file = Path(folder, "own_model.json")
            file.write_text(json.dumps(given["model"]), encoding="utf-8")
            given = {**given, "model": str(file)}
        words = [tool.command, "--json", "--db", str(db), *tool.words(given)]
        code, out, err = await _run(words, str(given.get("query", "")).encode())
    said = err.replace(f"{folder}/", "")
    if not code:
        return [out, said]
    raise InputError(said.removeprefix("error: ").strip() or f"it ended with {code}")


async def _run(words: Sequence[str], text: bytes) -> tuple[int, str, str]:
    """Run a command with a text on stdin; return its exit code and its output."""
    import anyio

    # -P: a folder `warehouse` of the working directory is not this package
    process = await anyio.open_process([sys.executable, "-P", "-m", "warehouse", *words])
    out, err = bytearray(), bytearray()

    async def read(stream: ByteReceiveStream, into: bytearray) -> None:
        async for chunk in stream:
            into += chunk
            if len(into) > MOST_BYTES:
                process.kill()
                return

    try:
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                assert process.stdin and process.stdout and process.stderr
                tasks.start_soon(read, process.stdout, out)
                tasks.start_soon(read, process.stderr, err)
                with suppress(anyio.BrokenResourceError):  # it reads no stdin
                    await process.stdin.send(text)
                    await process.stdin.aclose()
            code = await process.wait()
    except TimeoutError:
        raise InputError(f"the call took more than {SECONDS:g} seconds", "ask for less") from None
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                process.kill()
            await process.aclose()
    if max(len(out), len(err)) > MOST_BYTES:
        hint = "ask for fewer rows (limit, top) or columns"
        raise InputError(f"the answer has more than {MOST_BYTES / 1e6:g} MB", hint)
    return code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
