"""Write the tables of docs/ from the code and the lock files: `make docs`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from toolrelay.backends.codex.request import UNSUPPORTED
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    GatewayCallFinished,
    GatewayCallStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.messages import Call
from toolrelay.core.profiles import Profile
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.dialects.families import FAMILIES
from toolrelay.errors import InternalError, ToolrelayError
from toolrelay.wires.base import Envelope, Wire, discover_provider_wires
from toolrelay.wires.base import discover as discover_wires

BEGIN, END = "<!-- tables -->\n", "<!-- /tables -->"
EXAMPLE = Call(id="call_1", name="get_weather", arguments='{"city": "Paris"}')


def wires() -> str:
    out = ""
    for name, wire in sorted(discover_provider_wires().items()):
        out += f"\n## Not supported by a model on `{name}`\n\n| what | result |\n|---|---|\n{_unsupported_rows(wire.unsupported)}"
    return f"{out}\n"


def _unsupported_rows(unsupported: Mapping[str, str]) -> str:
    return "".join(f"| {name} | {result} |\n" for name, result in unsupported.items())


def codex() -> str:
    return f"\n| not supported by Codex | result |\n|---|---|\n{_unsupported_rows(UNSUPPORTED)}\n"


def dialects() -> str:
    """List the dialects. `auto` picks one by the patterns of dialects/families."""
    patterns: dict[str, list[str]] = {}
    for family in FAMILIES:
        patterns.setdefault(family.dialect, []).append(_code(family.pattern))
    rows = "".join(
        f"| `{name}` | {_code(dialect.render_calls([EXAMPLE]))} | {', '.join(patterns.get(name, [])) or '–'} |\n"
        for name, dialect in sorted(discover_dialects().items())
    )
    return f"\n| dialect | a call of get_weather | `auto` picks it for names like |\n|---|---|---|\n{rows}\n"


def providers() -> str:
    rows = ""
    for name, preset in PROVIDERS.items():
        base_url, wire = (f"`{value}`" if value else "–" for value in (preset.base_url, preset.wire))
        rows += f"| `{name}` | {base_url} | {wire} |\n"
    return f"\n| provider | default `base_url` | default `wire` |\n|---|---|---|\n{rows}\n"


def quirks() -> str:
    """List what differs from OpenAI's API, by provider, with the page that says so."""
    rows = ""
    for name, preset in PROVIDERS.items():
        for quirk in preset.quirks:
            values = ", ".join(
                _quirk_value(value) for value in (quirk.value if isinstance(quirk.value, tuple) else (quirk.value,))
            )
            rows += f"| `{name}` | `{quirk.field}`: {values} | {quirk.meaning} | [source]({quirk.source}) |\n"
    return f"\n| provider | quirk | meaning | |\n|---|---|---|---|\n{rows}\n"


def _quirk_value(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case (str(name), str(its_own)):
            return f"`{name}` → `{its_own}`"
        case _:
            return f"`{value}`"


CLIENTS = {
    "openai": ("OpenAI's Python SDK, with its stream helpers", "tests/oracles/test_openai_python.py"),
    "openai (npm)": ("OpenAI's JavaScript SDK, in Node", "tests/oracles/test_openai_node.py"),
    "@anthropic-ai/sdk (npm)": (
        "Anthropic's JavaScript SDK, in Node, with its stream helper and tool runner",
        "tests/oracles/test_anthropic_node.py",
    ),
    "anthropic": ("Anthropic's Python SDK, with its stream helpers and tool runner", "tests/oracles/test_anthropic_python.py"),
    "openai-agents": ("OpenAI's agents library", "tests/oracles/test_openai_agents.py"),
    "langchain-openai": ("LangChain in Python", "tests/oracles/test_langchain.py"),
    "@langchain/openai (npm)": ("LangChain in JavaScript, as Obsidian Copilot uses it from 3.2", "tests/oracles/test_copilot.py"),
    "@ai-sdk/openai (npm)": ("The AI SDK with its default OpenAI model", "tests/oracles/test_node_state.py"),
    "openai-codex-cli-bin": ("Codex CLI, with the file of its page", "tests/test_docs_clients.py"),
    "opencode-linux-x64-baseline (npm)": ("opencode, with the file of its page", "tests/test_docs_clients.py"),
    "@anthropic-ai/claude-code-linux-x64 (npm)": ("Claude Code, headless", "tests/oracles/test_claude_code.py"),
    "pydantic-ai-slim": ("pydantic-ai", "tests/oracles/test_tool_loops.py"),
    "smolagents": ("smolagents, its agent that calls tools", "tests/oracles/test_tool_loops.py"),
    "llm": ("llm, by its command", "tests/oracles/test_tool_loops.py"),
}
MODELS = {
    "google-genai": (
        "a scripted Gemini server that checks requests with the types of Google's SDK",
        "tests/test_gemini_server.py",
    ),
    "openai-codex-cli-bin": ("the Codex app-server, behind it a scripted provider", "tests/backends/codex/test_backend.py"),
    "xllamacpp": ("llama.cpp's server with SmolLM2-135M-Instruct", "tests/oracles/test_real_model.py"),
}


# A value for every field of a request, by front door. tests/test_api_fields.py compares the names with the vendors' SDKs.
_FUNCTION = {"name": "f", "parameters": {"type": "object"}}
_CHAT_TOOL = {"type": "function", "function": _FUNCTION}
_SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
REQUEST_FIELDS: dict[str, dict[str, object]] = {
    "openai_chat": {
        "messages": [{"role": "user", "content": "Hello"}],
        "model": "other",
        "audio": {"voice": "alloy", "format": "wav"},
        "frequency_penalty": 0.5,
        "function_call": "auto",
        "functions": [_FUNCTION],
        "logit_bias": {"1": 1},
        "logprobs": True,
        "max_completion_tokens": 7,
        "max_tokens": 7,
        "metadata": {"a": "b"},
        "modalities": ["text", "audio"],
        "moderation": {"model": "omni-moderation-latest"},
        "n": 2,
        "parallel_tool_calls": False,
        "prediction": {"type": "content", "content": "x"},
        "presence_penalty": 0.5,
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "implicit"},
        "prompt_cache_retention": "24h",
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA}},
        "safety_identifier": "s",
        "seed": 7,
        "service_tier": "flex",
        "stop": ["x"],
        "store": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "tool_choice": "none",
        "tools": [_CHAT_TOOL],
        "top_logprobs": 2,
        "top_p": 0.5,
        "user": "u",
        "verbosity": "low",
        "web_search_options": {"search_context_size": "low"},
    },
    "openai_responses": {
        "input": "Hello",
        "model": "other",
        "access_programs": {"cyber": "standard"},
        "background": True,
        "context_management": [{"type": "compaction", "compact_threshold": 9000}],
        "conversation": "conv_1",
        "image": {"context_compression": "disabled"},
        "include": ["file_search_call.results"],
        "instructions": "Be brief.",
        "max_output_tokens": 7,
        "max_tool_calls": 7,
        "metadata": {"a": "b"},
        "moderation": {"model": "omni-moderation-latest"},
        "parallel_tool_calls": False,
        "previous_response_id": "resp_1",
        "prompt": {"id": "pmpt_1"},
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "implicit"},
        "prompt_cache_retention": "24h",
        "reasoning": {"effort": "low"},
        "safety_identifier": "s",
        "service_tier": "flex",
        "store": False,
        "stream": True,
        "stream_options": {"include_obfuscation": False},
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", "name": "a", "schema": _SCHEMA}},
        "tool_choice": "none",
        "tools": [{"type": "function", **_FUNCTION}],
        "top_logprobs": 2,
        "top_p": 0.5,
        "truncation": "auto",
        "user": "u",
    },
    "anthropic_messages": {
        "messages": [{"role": "user", "content": "Hello"}],
        "model": "other",
        "max_tokens": 7,
        "cache_control": {"type": "ephemeral"},
        "container": "container_1",
        "diagnostics": {"previous_message_id": "msg_1"},
        "inference_geo": "us",
        "metadata": {"user_id": "u"},
        "output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}},
        "service_tier": "standard_only",
        "speed": "fast",
        "stop_sequences": ["x"],
        "stream": True,
        "system": "Be brief.",
        "temperature": 0.5,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "tool_choice": {"type": "none"},
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "top_k": 7,
        "top_p": 0.5,
        "user_profile_id": "u",
        "workspace_id": "w",
    },
}
_LEAST: dict[str, dict[str, object]] = {
    "openai_chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "openai_responses": {"model": "m", "input": "Hi"},
    "anthropic_messages": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
}
# Members of a message over a WebSocket, beside those of POST /responses.
WEBSOCKET_FIELDS = {
    "type": "`response.create`; `response.steer` is refused with `response.steer.failed`",
    "stream_id": "works: up to 32 lanes, each in order, 16 responses at a time",
    "generate": "works: with `false` the request is checked and kept, and the model is not asked",
}
# What the gateway does with a field that changes nothing in the request to the model's server.
_IN_GATEWAY = "in the gateway"
_SAME = {"stop_sequences": "stop"}  # names in the table of what a wire does not support


def _outcome(door: Wire, server: Wire, name: str) -> str:
    """Send a field through the door to a server, and see what becomes of it."""
    least = _LEAST[door.name]
    profile = Profile()
    plain = server.encode_request(door.decode_request(json.dumps(least).encode()), profile)
    tools = REQUEST_FIELDS[door.name]["tools"] if name in ("tool_choice", "parallel_tool_calls") else None
    tools = REQUEST_FIELDS[door.name]["functions"] if name == "function_call" else tools
    beside = {"functions" if name == "function_call" else "tools": tools} if tools is not None else {}
    if tools is not None:
        plain = server.encode_request(door.decode_request(json.dumps({**least, **beside}).encode()), profile)
    try:
        request = door.decode_request(json.dumps({**least, **beside, name: REQUEST_FIELDS[door.name][name]}).encode())
        sent = server.encode_request(request, profile)
    except ToolrelayError:
        return "emulated" if server.unsupported.get(_SAME.get(name, name)) == "emulated" else "**refused**"
    if set(sent.dropped) - set(plain.dropped):
        return "dropped" if sent.body == plain.body else "works in part"
    if sent.body == plain.body:
        return _IN_GATEWAY
    return "passed on" if name in (request.extra or {}) else "works"


def request_fields() -> str:
    """List what becomes of every field of a request, by front door and by the API of the model's server."""
    wires = discover_wires()
    out = ""
    for name, fields in REQUEST_FIELDS.items():
        door = wires[name]
        out += (
            f"\n### Fields of POST /v1{door.path}\n\n| field | {' | '.join(f'server on `{each}`' for each in REQUEST_FIELDS)} |\n"
        )
        out += f"|---|{'---|' * len(REQUEST_FIELDS)}\n"
        for field in fields:
            outcomes = [_outcome(door, wires[server], field) for server in REQUEST_FIELDS]
            out += f"| `{field}` | {' | '.join(outcomes)} |\n"
    rows = "".join(f"| `{field}` | {meaning} |\n" for field, meaning in WEBSOCKET_FIELDS.items())
    return f"{out}\n### Further members over a WebSocket\n\n| member | |\n|---|---|\n{rows}"


_ALL_EVENTS: list[StreamEvent] = [
    AnswerStarted(),
    ReasoningStarted(),
    ReasoningDelta("a", "text", 0),
    ReasoningDelta("b", "summary", 0),
    ReasoningFinished(encrypted="x"),
    TextDelta("Hi"),
    AnnotationAdded({"type": "url_citation"}),
    RefusalDelta("No"),
    CallStarted(0, "f", "call_1", "function", 0, None, None),
    ArgumentsDelta(0, "{}"),
    CallFinished(0),
    CallStarted(1, "g", "call_2", "custom", 0, None, None),
    ArgumentsDelta(1, "text"),
    CallFinished(1),
    *[GatewayCallStarted(id=f"call_{number}", name="t", arguments="{}", toolset="s") for number in (3, 4)],
    GatewayCallFinished(id="call_3", output="done", failed=False),
    GatewayCallFinished(id="call_4", output="no", failed=True),
]
# Events of the SDKs' types that no answer of the gateway has, by the beginning of their names, and why.
_WHOLE = "a provider's own tool: its items come whole, in `response.output_item.added` and `.done`"
NOT_SENT = {
    "response.audio.": "spoken answers are not relayed",
    "response.queued": "a background response begins with `response.created`",
    "response.steer.": "responses cannot be steered; over a WebSocket the answer is `response.steer.failed`",
    "response.compaction.": "the item comes whole",
    "response.code_interpreter_call": _WHOLE,
    "response.file_search_call.": _WHOLE,
    "response.image_generation_call.": _WHOLE,
    "response.mcp_list_tools.": _WHOLE,
    "response.shell_call": _WHOLE,
    "response.web_search_call.": _WHOLE,
}


def sent_events(door: str) -> set[str]:
    """Return the types of the events that a door can send, found by encoding every event of an answer in each of its ends."""
    wire = discover_wires()[door]
    types: set[str] = set()
    for finish in ("stop", "length", None):
        request = wire.decode_request(json.dumps({**_LEAST[door], "stream": True}).encode())
        encoder = wire.encoder(Envelope(token="0" * 20, created=0, model="m", request=request))
        last = AnswerFailed(InternalError("no")) if finish is None else AnswerFinished(finish=finish)
        frames = encoder.encode([*_ALL_EVENTS, last] if finish != "length" else [TextDelta("Hi"), last])
        types |= {
            found.decode() for found in re.findall(rb'^data: \{"type": ?"([^"]+)"', frames + encoder.keep_alive(), re.MULTILINE)
        }
    return types


def response_events() -> str:
    """List the events of the APIs that have several."""
    responses, messages = (", ".join(f"`{name}`" for name in sorted(sent_events(door))) for door in _EVENT_DOORS)
    rows = "".join(f"| `{name}…` | {why} |\n" for name, why in NOT_SENT.items())
    return (
        f"\n### Events of Responses\n\nSent: {responses}.\n\n| not sent | why |\n|---|---|\n{rows}\n### Events of Messages\n\n"
        f"Sent: {messages}. Chat Completions has one kind of event, `chat.completion.chunk`.\n"
    )


_EVENT_DOORS = ("openai_responses", "anthropic_messages")


def compatibility() -> str:
    """List the tested packages with their versions in the lock files, then fields and events of the APIs."""
    root = Path(__file__).parent.parent
    lines = (root / "requirements/dev.txt").read_text().splitlines()
    locked = dict(line.split(" ")[0].split("==") for line in lines if "==" in line)
    packages = json.loads((root / "tests/node/package-lock.json").read_text())["packages"]
    out = ""
    for title, rows in (("Clients", CLIENTS), ("Models and servers", MODELS)):
        out += f"\n## {title}\n\n| what | package | version | tests |\n|---|---|---|---|\n"
        for package, (what, tests) in rows.items():
            name, npm, _ = package.partition(" (npm)")
            version = packages[f"node_modules/{name}"]["version"] if npm else locked[name]
            out += f"| {what} | {package} | {version} | [{tests}](../{tests}) |\n"
    return f"{out}\n## Fields and events of the APIs\n{_LEGEND}{request_fields()}{response_events()}\n"


_LEGEND = """
What becomes of a field, by the API that the model's server speaks, tried by `make docs` with the code itself:

- *works*: the gateway understands it, and it reaches the server, in the server's own form.
- *works in part*: the server's API has no place for a part of it, which is dropped.
- *passed on*: the gateway does not know it; the server gets it as it is.
- *in the gateway*: the gateway does what it says; the server does not get it.
- *emulated*: the server's API has no such field, and the gateway does the same itself.
- *dropped*: left out, with the warning `field_dropped` in the log. **refused**: an error that names it.
"""
_ESCAPES = str.maketrans({"\n": "⏎", "|": "&#124;", "<": "&lt;", "`": "&#96;", "]": "&#93;"})


def _code(text: str) -> str:
    """Return inline code for a table's cell; ⏎ is a line break."""
    return f"<code>{text.strip().translate(_ESCAPES)}</code>"


PAGES: dict[Path, Callable[[], str]] = {
    Path(__file__).parent / "configuration.md": providers,
    Path(__file__).parent / "providers.md": quirks,
    Path(__file__).parent / "wires.md": wires,
    Path(__file__).parent / "codex.md": codex,
    Path(__file__).parent / "dialects.md": dialects,
    Path(__file__).parent / "compatibility.md": compatibility,
}


def page(text: str, tables: str) -> str:
    """Return the page with its tables replaced."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{tables}{END}{tail}"


if __name__ == "__main__":
    for path, tables in PAGES.items():
        path.write_text(page(path.read_text(), tables()))
