"""The chat's files in the data directory: its conversations, and the lines that were typed."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

MAX_CONVERSATIONS = 500
MAX_INPUTS = 1000
MAX_INPUT_CHARACTERS = 20_000  # longer ones are not kept
MAX_TITLE = 60


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """A conversation. `owner` says whose: that of the key that made it. `running` is a response that may still run."""

    id: str
    owner: str
    title: str = "New chat"
    model: str = ""
    used: float = 0.0
    running: str | None = None


class ChatHistory:
    """Files that all chats of a data directory share.

    What is damaged is forgotten, and what cannot be written is left out: it costs the list, not the conversations.
    """

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        self._conversations = folder / "conversations.json"
        self._inputs = folder / "inputs.jsonl"

    def list_entries(self) -> list[HistoryEntry]:
        """Return the conversations of this owner, the last used first."""
        return [entry for entry in self._read() if entry.owner == self._owner]

    def find(self, conversation: str) -> HistoryEntry | None:
        return next((entry for entry in self.list_entries() if entry.id == conversation), None)

    def save(self, conversation: str, **members: str | None) -> None:
        """Change members of an entry, or add it."""
        with suppress(OSError), self._locked():
            entries = {entry.id: entry for entry in self._read()}
            entry = entries.get(conversation, HistoryEntry(id=conversation, owner=self._owner))
            entries[conversation] = replace(entry, **members, used=time.time())
            kept = sorted(entries.values(), key=lambda each: each.used, reverse=True)[:MAX_CONVERSATIONS]
            self._replace(self._conversations, msgspec.json.encode(kept))

    def load_inputs(self) -> list[str]:
        """Return what was typed, the oldest first."""
        try:
            lines = self._inputs.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        found: list[str] = []
        for line in lines[-MAX_INPUTS:]:
            with suppress(ValueError):
                value = json.loads(line)
                found += [value] if isinstance(value, str) else []
        return found

    def add_input(self, text: str) -> None:
        if len(text) > MAX_INPUT_CHARACTERS:
            return
        with suppress(OSError), self._locked():
            inputs = [*self.load_inputs(), text]
            if len(inputs) > MAX_INPUTS:
                inputs = inputs[-MAX_INPUTS // 2 :]
                self._replace(self._inputs, "".join(f"{json.dumps(each)}\n" for each in inputs).encode())
            else:
                descriptor = os.open(self._inputs, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(f"{json.dumps(text)}\n")

    def _read(self) -> list[HistoryEntry]:
        try:
            return msgspec.json.decode(self._conversations.read_bytes(), type=list[HistoryEntry])
        except (OSError, msgspec.MsgspecError):
            return []

    def _replace(self, path: Path, content: bytes) -> None:
        descriptor, name = tempfile.mkstemp(dir=self._folder)  # 0600
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).replace(path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other chats from writing."""
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def title_of(text: str) -> str:
    line = text.strip().splitlines()[0].strip() if text.strip() else "New chat"
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"
