"""A bug report of a turn, as Markdown without content. Pure."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from toolrelay.core.json import Json, JsonObject
from toolrelay.runtime.traces.redaction import Redactor
from toolrelay.runtime.traces.timeline import TraceEntry, make_timeline, total_usage
from toolrelay.stores.turn_lists import TurnRecord

MAX_ENTRIES = 500


class ReportContext(Struct, frozen=True, kw_only=True):
    """What a report says besides the turn. `parameters` are the names of parameters of the gateway's tools.

    `provider` and `tool_calling` are None if the model is no longer configured.
    """

    versions: str
    provider: str | None
    tool_calling: str | None
    tools: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()


def make_report(record: TurnRecord, context: ReportContext) -> str:
    entries = make_timeline(record)
    redactor = Redactor({*context.tools, *context.parameters, *_declared(entries)}, entries)
    usage, row = total_usage(record.steps), record.row
    shown = [redactor.redact_entry(entry) for entry in entries[:MAX_ENTRIES]]
    lines = [
        "## Toolrelay: report of a turn",
        "",
        "Content is left out: texts are given by their lengths, values by their types.",
        "",
        f"- Versions: {context.versions}",
        f"- Turn: `{row.id}`, {row.wire}, {row.status}" + (", in the background" if row.background else ""),
        f"- Model: `{row.model}`, provider {context.provider or 'unknown (no longer configured)'}",
        f"- Tool calling: {context.tool_calling or 'unknown'}",
        f"- Tokens: {'unknown' if usage is None else f'{usage.input} in, {usage.output} out'}",
        f"- Entries: {len(entries)}" + (f", the first {MAX_ENTRIES} shown" if len(entries) > MAX_ENTRIES else ""),
        "",
        "| at ms | took ms | what | status |",
        "|---:|---:|---|---|",
        *[_table_row(entry) for entry in shown],
        "",
        "```json",
        msgspec.json.format(msgspec.json.encode(shown), indent=1).decode(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _table_row(entry: JsonObject) -> str:
    ms = entry["ms"]
    tool = entry.get("tool")
    what = str(entry["kind"]) + (f" `{tool}`" if tool else "")
    return f"| {entry['started_ms']} | {'–' if ms is None else ms} | {what} | {entry['status']} |"


def _declared(entries: list[TraceEntry]) -> set[str]:
    """Return the names of the tools that the client declared, and of their parameters."""
    names: set[str] = set()
    for entry in entries:
        tools = entry.detail["request"].get("tools", []) if entry.kind == "accepted" else []
        for tool in tools:
            names |= {str(tool.get("name", "")), *parameter_names(tool.get("parameters"))}
    return names


def parameter_names(schema: Json, depth: int = 0) -> set[str]:
    """Return the names of the properties in a schema."""
    if depth > 20:
        return set()
    names: set[str] = set()
    if isinstance(schema, list):
        for each in schema:
            names |= parameter_names(each, depth + 1)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        names |= set(properties) if isinstance(properties, dict) else set()
        for each in schema.values():
            names |= parameter_names(each, depth + 1)
    return names
