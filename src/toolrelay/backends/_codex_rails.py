"""Rails: which of Codex's own tools a model may use after all, and how far.

    apply_patch        Codex writes files, below `rails_dir` only. Its sandbox stays read-only, so that it has to ask before each
                       patch; the gateway allows those whose every path, links resolved, lies in the directory. (Codex's own
                       "workspace-write" would let it write to /tmp as well, unasked.)
    web_search         the provider's search, which nothing on this machine runs
    web_search_asked   the same, only when the assistant's last words called a tool of the client's for a web search

Commands stay impossible: no shell tool is offered, and a call of one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from toolrelay.backends._codex_words import object_of, text_of
from toolrelay.config import ModelSettings
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, Message, plain_text
from toolrelay.errors import ConfigurationError

NAMES = ("apply_patch", "web_search", "web_search_asked")

_SEARCH = re.compile(r"(web|internet)[^a-z]?search", re.IGNORECASE)
_PRINTED_SEARCH = re.compile(r"<name>\s*(web|internet)[^a-z]?search\s*</name>", re.IGNORECASE)


class Rails(Struct, frozen=True, kw_only=True):
    """`patch_dir` is where patches may write; empty: nowhere."""

    patch_dir: str = ""
    searches: bool = False
    searches_when_asked: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        """The items that are not a breach."""
        kinds = {"fileChange"} if self.patch_dir else set()
        if self.searches or self.searches_when_asked:
            kinds.add("webSearch")
        return frozenset(kinds)

    def thread(self, items: Sequence[Item]) -> JsonObject:
        """Members of thread/start."""
        members: JsonObject = {}
        if self.patch_dir:
            members |= {"cwd": self.patch_dir, "environments": None, "approvalPolicy": "on-request", "sandbox": "read-only"}
        if self.searches or (self.searches_when_asked and asks_for_search(items)):
            members["config"] = {"web_search": "live"}
        return members

    def allows(self, change: JsonObject) -> bool:
        """Whether all that a fileChange item would touch lies in the directory."""
        changes = change.get("changes")
        if not self.patch_dir or not isinstance(changes, list) or not changes:
            return False
        paths = [path for each in changes for path in _paths(object_of(each))]
        return all(self._holds(path) for path in paths)

    def _holds(self, path: str) -> bool:
        if not path or "\0" in path:
            return False
        root = Path(self.patch_dir).resolve()
        found = Path(root, path).resolve()
        return found != root and found.is_relative_to(root)


NO_RAILS = Rails()


def rails_of(settings: ModelSettings) -> Rails:
    """What the configuration says, or a clear refusal of it."""
    place, rails = f"models.{settings.name}.rails", settings.rails
    for name in rails:
        if name not in NAMES:
            raise ConfigurationError(f"{place}: expected {', '.join(NAMES)}, found {name!r}")
    patches = "apply_patch" in rails
    if patches and not (settings.rails_dir and Path(settings.rails_dir).expanduser().is_dir()):
        raise ConfigurationError(f"{place}_dir: expected the directory that apply_patch may write to")
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
