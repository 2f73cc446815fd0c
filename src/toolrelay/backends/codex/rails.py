"""Rails: which of Codex's own tools a model may use after all, and how far.

    apply_patch        Codex writes files, below `rails_dir` only. Its sandbox stays read-only, so that it has to ask before each
                       patch; the gateway allows those whose every path, links resolved, lies in the directory and is not one
                       that other programs obey. (Codex's own "workspace-write" would let it write to /tmp as well, unasked.)
    web_search         the provider's search, which nothing on this machine runs
    web_search_asked   the same, only when the assistant's last words called a tool of the client's for a web search

Commands stay impossible: no shell tool is offered, and a call of one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from toolrelay.backends.codex.json_access import object_of, text_of
from toolrelay.backends.codex.settings import CodexSettings
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, Message, plain_text
from toolrelay.errors import ConfigurationError

# Items that are Codex at work of its own accord. That one begins means that the doors which should be closed are not.
OWN_WORK = frozenset(
    {
        "commandExecution", "fileChange", "mcpToolCall", "collabAgentToolCall", "subAgentActivity", "webSearch", "imageView",
        "imageGeneration", "sleep",
    }
)  # fmt: skip

# What other programs obey: a hook in .git is run by whoever commits next. Codex's own sandbox keeps these read-only, too.
_OBEYED = frozenset({".git", ".codex", ".agents"})
_NAMES_A_FILE = ("*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: ")

_SEARCH = re.compile(r"(web|internet)[^a-z]?search", re.IGNORECASE)
_PRINTED_SEARCH = re.compile(r"<name>\s*(web|internet)[^a-z]?search\s*</name>", re.IGNORECASE)


class Rails(Struct, frozen=True, kw_only=True):
    """`patch_dir` is where patches may write; empty: nowhere."""

    patch_dir: str = ""
    searches: bool = False
    searches_when_asked: bool = False

    def kinds(self, items: Sequence[Item]) -> frozenset[str]:
        """The items of Codex's that are no breach in the turn which follows these."""
        kinds = {"fileChange"} if self.patch_dir else set()
        if self.searches or (self.searches_when_asked and asks_for_search(items)):
            kinds.add("webSearch")
        return frozenset(kinds)

    def thread(self, items: Sequence[Item]) -> JsonObject:
        """Members of thread/start."""
        members: JsonObject = {}
        if self.patch_dir:
            members |= {"cwd": self.patch_dir, "environments": None, "approvalPolicy": "on-request", "sandbox": "read-only"}
        if "webSearch" in self.kinds(items):
            members["config"] = {"web_search": "live"}
        return members

    def stray(self, patch: str) -> str | None:
        """The first path in the text of a patch that may not be written to. What is read as one here, Codex may take for text."""
        for line in map(str.strip, patch.split("\n")):
            for start in _NAMES_A_FILE:
                if line.startswith(start) and not self._holds(line.removeprefix(start)):
                    return line.removeprefix(start)
        return None

    def admits(self, change: JsonObject) -> bool:
        """Whether a fileChange item may be made; if so, there are the directories for it, which Codex cannot make."""
        changes = change.get("changes")
        if not self.patch_dir or not isinstance(changes, list) or not changes:
            return False
        paths = [path for each in changes for path in _paths(object_of(each))]
        if not all(map(self._holds, paths)):
            return False
        files = [Path(self.patch_dir, path) for path in paths]
        try:
            if any(file.exists() and file.stat().st_nlink > 1 for file in files):  # it has a name elsewhere as well, perhaps
                return False
            for file in files:
                file.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return False
        return True

    def _holds(self, path: str) -> bool:
        try:
            root = Path(self.patch_dir).resolve()
            found = Path(root, path).resolve()
        except (OSError, RuntimeError, ValueError):  # no path, or one that leads in a circle
            return False
        return found.is_relative_to(root) and found != root and _OBEYED.isdisjoint(map(str.lower, found.relative_to(root).parts))


NO_RAILS = Rails()


def rails_of(settings: CodexSettings) -> Rails:
    """Read the rails from the settings. Raises ConfigurationError if the directory for patches does not exist."""
    rails = settings.rails
    patches = "apply_patch" in rails
    if patches and not (settings.rails_dir and Path(settings.rails_dir).expanduser().is_dir()):
        raise ConfigurationError(f"models.{settings.name}.rails_dir: expected the directory that apply_patch may write to")
    return Rails(
        patch_dir=str(Path(settings.rails_dir).expanduser().resolve()) if patches else "",
        searches="web_search" in rails,
        searches_when_asked="web_search_asked" in rails,
    )


def asks_for_search(items: Sequence[Item]) -> bool:
    """Whether the assistant's last words called for a web search. Clients that speak XML have the call in its text."""
    called = False
    for item in reversed(items):
        match item:
            case Call():
                if _SEARCH.fullmatch(item.name):
                    return True
                called = True
            case Message(role="assistant"):
                return _PRINTED_SEARCH.search(plain_text(item.content)) is not None
            case Message() if called:
                return False
    return False


def _paths(change: JsonObject) -> list[str]:
    moved = text_of(object_of(change.get("kind")), "move_path")
    return [text_of(change, "path"), *([moved] if moved else [])]
