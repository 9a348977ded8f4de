"""Start `warehouse serve --mcp` and ask it, as an agent's program does.

Run it with ``python examples/ask_over_mcp.py``; it needs the extra ``mcp``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "warehouse", "serve", "--mcp"],
    env=dict(os.environ),
)


async def asked(session: ClientSession, tool: str, **arguments: Any) -> Any:
    """Return the JSON of an answer; raise ValueError with the text of an error."""
    result = await session.call_tool(tool, arguments)
    first = result.content[0]
    assert isinstance(first, TextContent)
    if result.is_error:
        raise ValueError(first.text)
    return json.loads(first.text)


async def main() -> None:
    """Ask for a plan and for a count, and try to drop a table."""
    async with stdio_client(SERVER) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        print("tools:", ", ".join(tool.name for tool in tools))
        run = {"model": "llama3_8B", "tokens": "1T", "accelerator": "H100", "num_gpus": 256}
        plan = await asked(session, "plan", **run)
        layout = plan["layouts"][0]
        degrees = [
            f"{name} {layout[f'{name}_parallel']}" for name in ("data", "tensor", "pipeline")
        ]
        days, dollars = plan["training_seconds"] / 86_400, plan["cost_usd"]
        print(f"plan: {days:.1f} days, {dollars:,.0f} USD; parallel: {', '.join(degrees)}")
        [line] = await asked(session, "sql", query="select count(*) as models from model")
        print("sql:", line)
        try:
            await asked(session, "sql", query="drop table model")
        except ValueError as error:
            print("sql refused:", str(error).splitlines()[0])


if __name__ == "__main__":
    anyio.run(main)
