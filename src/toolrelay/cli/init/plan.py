"""The answers to `toolrelay init`, and the configuration file that is made of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from toolrelay.backends.providers import PROVIDERS
from toolrelay.settings import is_loopback

# What a person reads about a provider in the list of choices. Others are listed by their name alone.
DESCRIPTIONS = {
    "demo": "built in, to try things out: no account, no download",
    "local": "a small model on this machine, with llama.cpp: `toolrelay pull smollm2` gets it",
    "openai": "OpenAI, with an API key",
    "anthropic": "Anthropic, with an API key",
    "gemini": "Gemini, with an API key of Google",
    "openrouter": "OpenRouter, with an API key",
    "ollama": "Ollama on this machine",
    "lmstudio": "LM Studio on this machine",
    "vllm": "vLLM",
    "llamacpp": "the server of llama.cpp",
    "groq": "Groq, with an API key",
    "mistral": "Mistral, with an API key",
    "deepseek": "DeepSeek, with an API key",
    "together": "Together AI, with an API key",
    "xai": "xAI, with an API key",
    "azure": "Azure OpenAI, with an API key",
    "codex": "Codex, with the account that `toolrelay codex login` signed in",
    "compatible": "another server with the OpenAI API",
}
LOCAL_MODEL = "smollm2"
KEY_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "together": "TOGETHER_API_KEY",
    "xai": "XAI_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def list_providers() -> list[str]:
    """Return the providers of this version, those with a description first."""
    return [*DESCRIPTIONS, *(name for name in PROVIDERS if name not in DESCRIPTIONS)]


class Plan(NamedTuple):
    """The answers. Empty: nothing was chosen, or it is not needed."""

    provider: str
    model: str = ""
    base_url: str = ""
    key_variable: str = ""
    vault: str = ""
    key_hash: str = ""  # others may connect with this key

    @property
    def name(self) -> str:
        """The name of the model's table, by which clients ask for it."""
        model = self.model.rpartition("/")[2].removesuffix(".gguf") if self.provider == "local" else self.model
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", model).strip("-.") or self.provider

    @property
    def is_local(self) -> bool:
        """Return whether the model runs on this machine."""
        preset = PROVIDERS[self.provider]
        host = urlsplit(self.base_url or preset.base_url).hostname
        return preset.is_local or (self.provider != "demo" and host is not None and is_loopback(host))

    def render(self) -> str:
        """Return the file."""
        sections = [self._server(), self._key(), self._model(), self._vault()]
        head = "# Written by `toolrelay init`. toolrelay.example.toml has all settings; `toolrelay check` checks this file.\n"
        return "\n".join([head, *filter(None, sections)])

    def _server(self) -> str:
        if not self.key_hash:
            return '[server]\nhost = "127.0.0.1"   # only this machine\nport = 8787\n'
        return '[server]\nhost = "0.0.0.0"     # also other machines, with the key below; traffic is not encrypted\nport = 8787\n'

    def _key(self) -> str:
        if not self.key_hash:
            return ""
        toolsets = 'toolsets = ["vault"]   # tools that it may use\n' if self.vault else ""
        return (
            "# The key itself is not in this file. `toolrelay keys new NAME` makes another one.\n"
            f'[[keys]]\nname = "default"\nsha256 = {_quote(self.key_hash)}\n'
            f"approve = true         # may answer questions about tools\n{toolsets}"
        )

    def _model(self) -> str:
        lines = [f"# Clients ask for this model by the name {self.name}.", f"[models.{_table(self.name)}]"]
        lines.append(f"provider = {_quote(self.provider)}")
        if self.model and self.provider != "demo":
            lines.append(f"model = {_quote(self.model)}")
        if self.base_url:
            lines.append(f"base_url = {_quote(self.base_url)}")
        if self.key_variable:
            lines.append(f"api_key = {_quote(f'env:{self.key_variable}')}   # read from this environment variable")
        if self.is_local:
            lines.append("local = true   # what it sees stays on this machine: it may see private notes")
        if self.vault:
            lines.append('toolsets = ["vault"]')
        return "\n".join(lines) + "\n"

    def _vault(self) -> str:
        if not self.vault:
            return ""
        return (
            "# Search and read the notes of an Obsidian vault; nothing is ever written there.\n"
            f'[toolsets.vault]\nkind = "vault"\npath = {_quote(self.vault)}\n'
            'approval = "always"   # ask before each search and read; "never": do not ask\n'
            '#private = ["tag:private", "Journal/**"]   # notes that only models with local = true see\n'
        )


def check_model(text: str) -> str | None:
    """Return what is wrong with the name of a model, or None."""
    if not text or not text.isprintable():
        return "Expected the name of a model."
    return None


def check_base_url(text: str) -> str | None:
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    return None if is_url and text.isprintable() and " " not in text else "Expected a URL such as http://127.0.0.1:1234/v1."


def check_variable(text: str) -> str | None:
    """A key is not a name of a variable: most have a hyphen."""
    if _VARIABLE.fullmatch(text):
        return None
    return "Expected the name of an environment variable, such as OPENAI_API_KEY, and not the key itself."


def check_vault(text: str) -> str | None:
    try:
        path = Path(text).expanduser()
        if not path.is_dir():
            return f"There is no folder {text}." if text.isprintable() else "There is no such folder."
        next(path.iterdir(), None)
    except (OSError, RuntimeError, ValueError) as error:
        return f"{text} cannot be read: {getattr(error, 'strerror', None) or error}."
    return None if text.isprintable() else "The path has characters that cannot be written into the file."


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _table(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quote(name)
