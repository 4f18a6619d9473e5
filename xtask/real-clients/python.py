"""Uses everything a client can use through the official Python SDK, line 1 or 2, over both transports and in both eras.

Arguments: the program, its home, the era of its plugins. Prints one JSON array: a report for each combination, with what
each feature brought to light. Judging it is the caller's part.
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from importlib.metadata import version

from mcp import StdioServerParameters

LINE = int(version("mcp").split(".")[0])
TEXT = "grüße, 世界"
PATIENCE_SECONDS = 20
LONG_SECONDS = 20
PERSON = {"username": "ada", "email": "ada@example.test"}

if LINE == 1:
    import httpx
    from mcp import ClientSession, McpError as ProtocolError
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.types import CompleteRequest, ElicitResult, PromptReference
else:
    import httpx2 as httpx
    from mcp import Client, MCPError as ProtocolError
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import ElicitResult, PromptReference


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Notices:
    """What is said unasked about the list of tools."""

    def __init__(self):
        self.event = asyncio.Event()

    async def look(self, message):
        if "tools/list_changed" in str(getattr(getattr(message, "root", message), "method", "")):
            self.event.set()

    async def next(self):
        await asyncio.wait_for(self.event.wait(), PATIENCE_SECONDS)
        self.event.clear()


async def answer(_context, _params):
    return ElicitResult(action="accept", content=PERSON)


class Host:
    """The program with its face over HTTP."""

    def __init__(self, program, home):
        self.process = subprocess.Popen(
            [program, "serve", "--http", "127.0.0.1:0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.url = None
        for line in self.process.stderr:
            if match := re.search(r"MCP on (http://\S+/mcp)", line):
                self.url = match[1]
                break
        if self.url is None:
            raise RuntimeError("the program ended before it said where it is")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        with open(os.path.join(home, "run/mcp-token"), encoding="ascii") as file:
            self.headers = {"Authorization": f"Bearer {file.read().strip()}"}

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)


@contextlib.asynccontextmanager
async def connected(host, stdio, transport, era, notices):
    """A session with what is known about it, or a client, by line."""
    async with contextlib.AsyncExitStack() as stack:
        if transport == "http":
            http = await stack.enter_async_context(httpx.AsyncClient(headers=host.headers, timeout=60))
            pipe = streamable_http_client(host.url, http_client=http)
        elif LINE == 1:
            pipe = stdio_client(stdio)
        else:
            pipe = stdio
        if LINE == 1:
            reader, writer = (await stack.enter_async_context(pipe))[:2]
            session = ClientSession(reader, writer, elicitation_callback=answer, message_handler=notices.look)
            session = await stack.enter_async_context(session)
            opened = await session.initialize()
            yield session, str(opened.protocolVersion), opened.instructions or ""
        else:
            # Told a revision it would ask for nothing first, and know neither instructions nor capabilities.
            mode = "auto" if era == "stateless" else "legacy"
            client = Client(pipe, mode=mode, elicitation_callback=answer, message_handler=notices.look)
            client = await stack.enter_async_context(client)
            yield client, client.protocol_version, client.instructions or ""


class Features:
    """Each method is a feature; what it returns is what came to light."""

    def __init__(self, client, era, notices):
        self.client, self.era, self.notices = client, era, notices

    async def tool(self, name, arguments=None, **options):
        return plain(await self.client.call_tool(name, arguments or {}, **options))

    async def pages(self, list_page, key):
        found, cursor = [], None
        while True:
            page = plain(await (list_page(cursor) if LINE == 1 else list_page(cursor=cursor)))
            found.extend(page[key])
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    async def names(self):
        return [tool["name"] for tool in await self.pages(self.client.list_tools, "tools")]

    async def ping(self):
        await self.client.send_ping()
        return True

    async def tools(self):
        return await self.names()

    async def call(self):
        return (await self.tool("calls_echo", {"text": TEXT}))["content"][0]["text"]

    async def structured(self):
        return (await self.tool("calls_echo", {"text": TEXT}))["structuredContent"]

    async def tool_error(self):
        return (await self.tool("offers_test_error_handling"))["isError"]

    async def unknown_tool(self):
        try:
            return {"result": await self.tool("calls_no_such_tool")}
        except ProtocolError as error:
            return {"code": error.error.code}

    async def contents(self):
        return [block["type"] for block in (await self.tool("offers_test_multiple_content_types"))["content"]]

    async def real_server(self):
        return (await self.tool("server-everything_echo", {"message": TEXT}))["content"][0]["text"]

    async def progress(self):
        seen = []

        async def note(progress, *_):
            seen.append(progress)

        await self.tool("offers_test_tool_with_progress", progress_callback=note)
        return seen

    async def cancel(self):
        begun = asyncio.Event()

        async def note(*_):
            begun.set()

        long = asyncio.create_task(self.tool("calls_sleep", {"seconds": LONG_SECONDS}, progress_callback=note))
        # The first note shows that the plugin is at it.
        await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
        long.cancel()
        try:
            await long
            ended = "answered"
        except asyncio.CancelledError:
            ended = "cancelled"
        return [ended, await self.call()]

    async def prompts(self):
        name = "offers_test_prompt_with_arguments"
        listed = [prompt["name"] for prompt in await self.pages(self.client.list_prompts, "prompts")]
        got = plain(await self.client.get_prompt(name, {"arg1": "one", "arg2": TEXT}))
        return [name in listed, got["messages"][0]["content"]["text"]]

    async def resources(self):
        uri = "test://static-text"
        listed = [resource["uri"] for resource in await self.pages(self.client.list_resources, "resources")]
        return [uri in listed, plain(await self.client.read_resource(uri))["contents"][0]["text"]]

    async def templates(self):
        listed = await self.pages(self.client.list_resource_templates, "resourceTemplates")
        read = plain(await self.client.read_resource("test://template/seven/data"))
        found = any(template["uriTemplate"] == "test://template/{id}/data" for template in listed)
        return [found, read["contents"][0]["text"]]

    async def completion(self):
        reference = PromptReference(type="ref/prompt", name="offers_test_prompt_with_arguments")
        completed = await self.client.complete(reference, {"name": "arg1", "value": "t"})
        return plain(completed)["completion"]["values"]

    async def changes(self):
        async with contextlib.AsyncExitStack() as stack:
            wait = self.notices.next
            if self.era == "stateless":
                stream = await stack.enter_async_context(self.client.listen(tools_list_changed=True))
                wait = stream.__anext__
            before = "offers_test_changing" in await self.names()
            await self.tool("offers_test_trigger_tool_change")
            await asyncio.wait_for(wait(), PATIENCE_SECONDS)
            return before != ("offers_test_changing" in await self.names())

    async def questions(self):
        asked = await self.tool("offers_test_elicitation", {"message": "Who are you?"})
        return json.loads(asked["content"][0]["text"])["content"]


FEATURES = {
    "ping": Features.ping,
    "tools": Features.tools,
    "call": Features.call,
    "structured": Features.structured,
    "tool error": Features.tool_error,
    "unknown tool": Features.unknown_tool,
    "contents": Features.contents,
    "real server": Features.real_server,
    "progress": Features.progress,
    "cancel": Features.cancel,
    "prompts": Features.prompts,
    "resources": Features.resources,
    "templates": Features.templates,
    "completion": Features.completion,
    "changes": Features.changes,
    "questions": Features.questions,
}


async def report(host, stdio, transport, era, behind):
    notices = Notices()
    found = {}
    async with connected(host, stdio, transport, era, notices) as (client, revision, instructions):
        features = Features(client, era, notices)
        for name, look in FEATURES.items():
            # Not in this revision; line 1 takes back no call that its caller gave up; plugins with a handshake are not
            # let ask.
            if (name == "ping" and era == "stateless") or (name == "cancel" and LINE == 1):
                continue
            if name == "questions" and behind == "handshake":
                continue
            try:
                found[name] = await look(features)
            except Exception as error:  # whatever it is, it is what came to light
                found[name] = {"error": f"{type(error).__name__}: {error}"}
    return {
        "client": f"Python SDK {LINE}",
        "transport": transport,
        "era": era,
        "revision": revision,
        "instructions": instructions,
        "found": found,
    }


async def main(program, home, behind):
    host = Host(program, home)
    try:
        # The SDK passes only a few variables on by itself; the home of the check is not among them.
        stdio = StdioServerParameters(command=program, args=["serve", "--stdio"], env=dict(os.environ))
        eras = ["handshake"] if LINE == 1 else ["handshake", "stateless"]
        return [await report(host, stdio, transport, era, behind) for era in eras for transport in ("stdio", "http")]
    finally:
        host.stop()


print(json.dumps(asyncio.run(main(*sys.argv[1:4]))))
