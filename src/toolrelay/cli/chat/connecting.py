"""Connects the chat with a gateway, which it may start."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from toolrelay.cli._gateway import RefusedError, UnreachableError, approver_token
from toolrelay.cli._output import CommandError
from toolrelay.cli.approvals.feed import Feed
from toolrelay.cli.chat.answering import OpenQuestions
from toolrelay.cli.chat.client import ChatClient
from toolrelay.cli.chat.conversation import ChatConnection
from toolrelay.cli.chat.history import ChatHistory
from toolrelay.cli.chat.launcher import Launcher, check_health, open_folder
from toolrelay.config import from_environment
from toolrelay.settings import Settings, is_loopback
from toolrelay.web.tls import make_own_client_context

TOOLS_SECONDS = 60
TOOLS_OFF = "TOOLRELAY_TOOLS=off: all tools are turned off."
WITHOUT_CHANGES = "This is what the configuration says. This key may not see what was changed in the console."


class GatewayOptions(NamedTuple):
    """Options of the command that say which gateway is meant."""

    url: str | None
    key: str | None
    config: str | None
    data_dir: str | None

    def config_options(self) -> list[str]:
        return ["--config", self.config] if self.config is not None else []

    def serve_options(self) -> list[str]:
        return [*self.config_options(), *(["--data-dir", self.data_dir] if self.data_dir is not None else [])]


@contextmanager
def connected(options: GatewayOptions, say: Callable[[str], None]) -> Iterator[tuple[ChatConnection, ChatHistory]]:
    """Yield a connection to the gateway. Without a URL one is started if none runs, and stopped at the end."""
    settings = from_environment(options.config, data_dir=options.data_dir)
    folder = open_folder(settings)
    launcher: Launcher | None = None
    try:
        if options.url is not None:
            url = options.url
            if check_health(url) == "none":
                raise UnreachableError(f"No gateway answers at {url}.")
        else:
            if settings.keys and options.key is None:
                raise_missing_key(settings)
            launcher = Launcher(settings, options.serve_options(), say)
            url = launcher.ensure()
        credential = options.key if options.key is not None else approver_token(settings, url)
        context = make_own_client_context(settings) if options.url is None else None
        client = ChatClient(url, credential, context)
        connection = ChatConnection(
            client=client,
            questions=_follow_questions(client, say),
            ensure=None if launcher is None else launcher.ensure,
            revive=None if launcher is None else launcher.revive,
            list_tools=lambda model: _list_tools(client, options, model),
        )
        yield connection, ChatHistory(folder, _owner(options))
    finally:
        if launcher is not None:
            launcher.close()


def raise_missing_key(settings: Settings) -> None:
    """Say how to give a key, before a gateway is started in vain."""
    approver_token(settings, "http://127.0.0.1")


def _owner(options: GatewayOptions) -> str:
    """Return a name for whose conversations these are, without the key itself."""
    who = f"{options.url or ''} {options.key or ''}".strip()
    return hashlib.sha256(who.encode("utf-8", "surrogateescape")).hexdigest()[:16] if who else "local"


def _follow_questions(client: ChatClient, say: Callable[[str], None]) -> OpenQuestions | None:
    feed = Feed(client)
    try:
        feed.start()
    except RefusedError as error:
        say(f"Questions about tools cannot be answered here: {error.message}")
        return None
    return OpenQuestions(feed)


def _list_tools(client: ChatClient, options: GatewayOptions, model: str) -> str:
    """Return the tools of a model in words, as the gateway uses them."""
    try:
        settings = client.request("GET", "/api/settings")
    except RefusedError:  # only who may approve sees the settings
        return _list_configured_tools(client, options, model)
    if settings["tools"]["value"] == "off":
        return TOOLS_OFF
    granted: list[str] = next((each["toolsets"]["value"] for each in settings["models"] if each["name"] == model), [])
    return _format_tools(model, [toolset for toolset in settings["toolsets"] if toolset["name"] in granted])


def _list_configured_tools(client: ChatClient, options: GatewayOptions, model: str) -> str:
    """Return the same as `toolrelay tools` lists it, without what was changed in the console."""
    if not is_loopback(client.host):
        return "This key may not see the settings of the gateway, which is on another machine: run toolrelay tools there."
    command = [sys.executable, "-m", "toolrelay", "tools", "--json", *options.config_options()]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TOOLS_SECONDS, check=False)  # noqa: S603 -- this program itself
        listed = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise CommandError("The tools cannot be listed. toolrelay check says more.") from None
    if listed["tools_off"]:
        return TOOLS_OFF
    toolsets = [toolset for toolset in listed["toolsets"] if model in toolset["models"]]
    return f"{_format_tools(model, toolsets)}\n{WITHOUT_CHANGES}"


def _format_tools(model: str, toolsets: list[dict[str, Any]]) -> str:
    lines: list[str] = []
    for toolset in toolsets:
        for tool in toolset["tools"]:
            asks = "asks first" if tool["approval"] == "always" else "runs without asking"
            description = (tool["description"].strip().splitlines() or [""])[0]
            lines.append(f"{tool['name']} ({toolset['name']}, {asks})" + (f": {description}" if description else ""))
    return (
        "\n".join(lines)
        or f"The model {model} has no tools. Give it some with toolsets in its table, or on the console's page of settings."
    )
