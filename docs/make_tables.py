"""Write the tables of docs/ from the code and the lock files: `make docs`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from toolrelay.backends.codex.request import UNSUPPORTED
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.messages import Call
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.dialects.families import FAMILIES
from toolrelay.wires.base import discover_provider_wires

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
        rows += f"| `{name}` | {base_url} | {wire} |\n" if preset.available else f"| `{name}` | **Not yet** | – |\n"
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


def compatibility() -> str:
    """List the tested packages with their versions in the lock files."""
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
    return f"{out}\n"


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
