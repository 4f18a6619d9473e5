"""Lists and calls tools through the official Python SDK client.

Arguments: the server's command line as a JSON array, the calls as a JSON array of {name, arguments}. Prints one JSON
object; judging it is the caller's part.
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client


async def call(session, name, arguments):
    try:
        result = await session.call_tool(name, arguments)
    except McpError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}
    return {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}


async def main(command, calls):
    # The SDK passes only a few variables on by itself; the home of the check is not among them.
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as session:
        opened = await session.initialize()
        tools = []
        cursor = None
        while True:
            page = await session.list_tools(cursor)
            tools.extend(tool.name for tool in page.tools)
            cursor = page.nextCursor
            if cursor is None:
                break
        results = [await call(session, entry["name"], entry["arguments"]) for entry in calls]
    return {
        "server": opened.serverInfo.model_dump(mode="json", by_alias=True, exclude_none=True),
        "instructions": opened.instructions or "",
        "tools": tools,
        "results": results,
    }


print(json.dumps(asyncio.run(main(json.loads(sys.argv[1]), json.loads(sys.argv[2])))))
