"""The four questions of `toolrelay init`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeAlias

import typer

from toolrelay.backends.providers import PROVIDERS
from toolrelay.cli._output import MISUSED, CommandError
from toolrelay.cli._text import escape_controls
from toolrelay.cli.init.plan import (
    DESCRIPTIONS,
    KEY_VARIABLES,
    LOCAL_MODEL,
    Plan,
    check_base_url,
    check_model,
    check_variable,
    check_vault,
    list_providers,
)
from toolrelay.cli.init.vaults import find_vaults
from toolrelay.config import read_environment
from toolrelay.runtime.keys import make_key_text

Check: TypeAlias = Callable[[str], str | None]

_WITHOUT_KEY = ("ollama", "lmstudio", "vllm", "llamacpp")


class Given(NamedTuple):
    """Answers that were given as options. None: not given. An empty one means none."""

    provider: str | None
    model: str | None
    base_url: str | None
    key_variable: str | None
    vault: str | None
    connect: str | None


class _Interview:
    """Asks for what was not given, or takes defaults."""

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks

    def say(self, text: str) -> None:
        if self._asks:
            typer.echo(text)

    def get(self, option: str, given: str | None, prompt: str, check: Check, default: str | None = None) -> str:
        """Return an answer that passes the check. Without a default one must be given; an empty default means none."""
        if given is not None:
            problem = None if given == default == "" else check(given)
            if problem is not None:
                raise CommandError(f"{option}: {escape_controls(problem)}", MISUSED)
            return given
        if not self._asks:
            if default is None:
                raise CommandError(f"{option} is needed for this provider.", MISUSED)
            return default
        while True:
            typed = input(prompt).strip() or default
            problem = check(typed or "") if typed != "" else None
            if problem is None:
                return typed or ""
            typer.echo(escape_controls(problem))

    def choose(self, option: str, given: str | None, choices: Sequence[str], labels: Sequence[str]) -> str:
        """Return one of the choices, which a person names by number or name. The first is the default."""

        def check(text: str) -> str | None:
            is_number = text.isdecimal() and 1 <= int(text[:6]) <= len(choices)
            return None if is_number or text in choices else f"Expected one of {', '.join(choices)}."

        for number, label in enumerate(labels, 1):
            self.say(f"  {number}  {label}")
        if given is not None and given.isdecimal():
            raise CommandError(f"{option}: Expected one of {', '.join(choices)}.", MISUSED)
        chosen = self.get(option, given, "Number or name (Enter: 1) > ", check, choices[0])
        return choices[int(chosen) - 1] if chosen.isdecimal() else chosen


def ask_plan(given: Given, *, asks: bool) -> tuple[Plan, str]:
    """Return the plan, and the key that was made for others, if one was. Raise EOFError if the person leaves."""
    interview = _Interview(asks=asks)
    interview.say("1. Which model?")
    providers = list_providers()
    labels = [f"{name:<11} {DESCRIPTIONS.get(name, '')}".rstrip() for name in providers]
    provider = interview.choose("--provider", given.provider, providers, labels)
    plan = _ask_model(interview, given, provider)
    plan = plan._replace(vault=_ask_vault(interview, given.vault))
    interview.say("\n4. Who may connect?")
    who = ["only programs on this machine", "other machines too, with a key that is made now"]
    if interview.choose("--connect", given.connect, ["local", "key"], who) == "local":
        return plan, ""
    key = make_key_text()
    return plan._replace(key_hash=sha256(key.encode()).hexdigest()), key


def _ask_model(interview: _Interview, given: Given, provider: str) -> Plan:
    if provider == "demo":
        interview.say("\n2. The demo model needs no key and no server.")
        return Plan(provider)
    interview.say("\n2. Which model there, and how to reach it?")
    base_url = key_variable = ""
    if PROVIDERS[provider].backend == "http":
        preset = PROVIDERS[provider].base_url
        if provider in KEY_VARIABLES and given.base_url is None:
            base_url = preset
        else:
            hint = f"Address of the server (Enter: {preset}) > " if preset else "Address of the server > "
            base_url = interview.get("--base-url", given.base_url, hint, check_base_url, preset or None)
    if PROVIDERS[provider].backend == "local":
        hint = f"Model, or the path of a GGUF file (Enter: {LOCAL_MODEL}) > "
        model = interview.get("--model", given.model, hint, check_model, LOCAL_MODEL)
    else:
        model = interview.get("--model", given.model, "Model > ", check_model)
    if PROVIDERS[provider].backend == "http" and (provider not in _WITHOUT_KEY or given.key_variable is not None):
        default = KEY_VARIABLES.get(provider, "")
        hint = f"Environment variable with the API key (Enter: {default or 'no key'}) > "
        key_variable = interview.get("--key-variable", given.key_variable, hint, check_variable, default)
    is_preset = base_url == PROVIDERS[provider].base_url
    return Plan(provider, model, "" if is_preset else base_url, key_variable)


def _ask_vault(interview: _Interview, given: str | None) -> str:
    interview.say("\n3. An Obsidian vault that the model may search, if you allow it each time?")
    vaults = [] if given is not None else find_vaults(read_environment(), Path.home())
    for number, path in enumerate(vaults, 1):
        interview.say(f"  {number}  {path}")

    def resolve(text: str) -> str:
        return vaults[int(text) - 1] if text.isdecimal() and 1 <= int(text[:6]) <= len(vaults) else text

    which = "Number or folder" if vaults else "Folder"
    chosen = interview.get("--vault", given, f"{which} (Enter: none) > ", lambda text: check_vault(resolve(text)), "")
    return str(Path(resolve(chosen)).expanduser().absolute()) if chosen else ""
