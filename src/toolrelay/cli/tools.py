"""`toolrelay tools`."""
# ruff: noqa: PLC0415 -- imports wait until the command runs: see the package

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolrelay.cli._output import ConfigFile, examples

if TYPE_CHECKING:
    from toolrelay.runtime.gateway_tools import GatewayTools, OpenTool
    from toolrelay.runtime.keys import KeyRing
    from toolrelay.settings import Settings

EXAMPLES = examples(
    "toolrelay tools",
    "toolrelay tools --config /etc/toolrelay.toml --json",
)
OFF = "TOOLRELAY_TOOLS=off: all of these tools are turned off."


def tools(
    *,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the tools that the gateway runs.

    Prints the tools of each toolset with description, schema and approval, and which models and keys may use them.
    """
    import json

    from toolrelay.config import from_environment
    from toolrelay.runtime.keys import load_key_ring

    settings = from_environment(config)
    keys = load_key_ring(settings)
    listed = _list_toolsets(settings, keys)
    if as_json:
        typer.echo(json.dumps({"tools_off": settings.tools_off, "toolsets": listed}, ensure_ascii=False, indent=2))
        return
    if settings.tools_off:
        typer.echo(f"{OFF}\n")
    if not listed:
        typer.echo("There are no toolsets. Add a [toolsets.NAME] table to the configuration file: docs/adding-a-toolset.md.")
    typer.echo("\n\n".join(_format_toolset(toolset, has_keys=bool(keys)) for toolset in listed))


def _list_toolsets(settings: Settings, keys: KeyRing) -> list[dict[str, Any]]:
    """Open the toolsets, also if they are turned off, and describe them."""
    import asyncio
    import contextlib
    import sys

    from msgspec.structs import replace

    from toolrelay.runtime.gateway_tools import GatewayTools

    async def describe(opened: GatewayTools) -> list[dict[str, Any]]:
        await opened.open()
        try:
            return [_describe_toolset(name, opened) for name in settings.toolsets]
        finally:
            await opened.close()

    with contextlib.redirect_stdout(sys.stderr):  # a module may print
        return asyncio.run(describe(GatewayTools(replace(settings, tools_off=False), keys)))


def _describe_toolset(name: str, opened: GatewayTools) -> dict[str, Any]:
    tools = [tool for tool in opened.tools.values() if tool.settings.name == name]
    return {
        "name": name,
        "kind": tools[0].settings.kind,
        "models": opened.models_with(name),
        "keys": opened.keys_with(name),
        "tools": [_describe_tool(tool) for tool in tools],
    }


def _describe_tool(tool: OpenTool) -> dict[str, Any]:
    return {
        "name": tool.gateway_tool.tool.name,
        "description": tool.definition.description,
        "approval": "always" if tool.gateway_tool.needs_approval else "never",
        "timeout_seconds": tool.timeout_seconds,
        "idempotent": tool.gateway_tool.idempotent,
        "parallel": tool.gateway_tool.parallel,
        "parameters": tool.definition.parameters,
    }


def _format_toolset(toolset: dict[str, Any], *, has_keys: bool) -> str:
    keys = ", ".join(toolset["keys"]) or "none" if has_keys else "no keys are configured: everyone on this machine"
    lines = [
        f"toolset {toolset['name']} ({toolset['kind']})",
        f"  models: {', '.join(toolset['models']) or 'none'}",
        f"  keys: {keys}",
    ]
    for tool in toolset["tools"]:
        lines += ["", *_format_tool(tool)]
    return "\n".join(lines)


def _format_tool(tool: dict[str, Any]) -> list[str]:
    import json

    facts = [f"approval {tool['approval']}", f"time-out {tool['timeout_seconds']:g} s"]
    facts += [fact for fact in ("idempotent", "parallel") if tool[fact]]
    description = [f"    {line}".rstrip() for line in tool["description"].splitlines()]
    schema = json.dumps(tool["parameters"], ensure_ascii=False, separators=(",", ":"))
    return [f"  {tool['name']} ({', '.join(facts)})", *description, f"    {schema}"]
