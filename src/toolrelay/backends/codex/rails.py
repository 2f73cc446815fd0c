"""Rails: the built-in tools of Codex that a model may use, and their limits.

    apply_patch        Codex writes files below `rails_dir` only. Its sandbox stays read-only, so that it has to ask before each
                       patch; the gateway allows a patch if each of its paths, links resolved, is in the directory and is not
                       executed by other programs. (Codex's own "workspace-write" would also allow /tmp, without asking.)
    web_search         the provider's search; nothing runs on this machine
    web_search_asked   the same, only if the last assistant turn called a client's tool for a web search

Commands stay impossible: no shell tool is offered, and a call of one is refused.

Patches of one turn:

    event                                              reaction
    ------------------------------------------------   ---------------------------------------------------------------------
    a patch names a forbidden path                     the turn fails, before Codex requests approval
    more than MAX_PATCH_RESPONSES responses patch      the turn fails, because Codex would never end its loop
    a request for approval within a response           waits for the end of the response
    the same, and the response calls a client's tool   declined: the call ends the turn, which would interrupt the patch
    any other request for approval                     accepted if the rails allow the change

Codex reads the files that a patch names before it requests approval, and tells the model whether its lines were found. A model
could guess the content of any file that way. Codex starts reading when the gateway receives the patch, which nothing can prevent;
but the turn fails at that moment, so the result is not returned to the client.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from toolrelay.backends.codex.rpc import ServerRequest, object_of, text_of
from toolrelay.backends.codex.settings import CodexSettings
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, Message, plain_text
from toolrelay.errors import ConfigurationError, ModelError

PATCH_APPROVAL = "item/fileChange/requestApproval"
MAX_PATCH_RESPONSES = 10  # responses of one turn that contain patches, allowed or not

# Items that Codex emits when it runs a built-in tool. If one starts that is not allowed, the restriction did not work.
BUILTIN_ITEMS = frozenset(
    {
        "commandExecution", "fileChange", "mcpToolCall", "collabAgentToolCall", "subAgentActivity", "webSearch", "imageView",
        "imageGeneration", "sleep",
    }
)  # fmt: skip

# Other programs execute their content: git runs hooks in .git. Codex's own sandbox keeps these read-only, too.
_PROTECTED_NAMES = frozenset({".git", ".codex", ".agents"})
_PATCH_FILE = re.compile(r"\*\*\* (?:Add File|Delete File|Update File|Move to): ")

_SEARCH_TOOL = re.compile(r"(web|internet)[^a-z]?search", re.IGNORECASE)
_PRINTED_SEARCH = re.compile(r"<name>\s*(web|internet)[^a-z]?search\s*</name>", re.IGNORECASE)


class Rails(Struct, frozen=True, kw_only=True):
    """Patches may write below `patch_dir`, or nowhere if it is empty."""

    patch_dir: str = ""
    allows_search: bool = False
    allows_requested_search: bool = False

    def allowed_items(self, history: Sequence[Item]) -> frozenset[str]:
        """Return the built-in items that are allowed in the turn after this history."""
        kinds = {"fileChange"} if self.patch_dir else set()
        if self.allows_search or (self.allows_requested_search and requests_search(history)):
            kinds.add("webSearch")
        return frozenset(kinds)

    def thread_params(self, history: Sequence[Item]) -> JsonObject:
        """Return the members of thread/start that enable the allowed tools."""
        params: JsonObject = {}
        if self.patch_dir:
            params |= {"cwd": self.patch_dir, "environments": None, "approvalPolicy": "on-request", "sandbox": "read-only"}
        if "webSearch" in self.allowed_items(history):
            params["config"] = {"web_search": "live"}
        return params

    def find_forbidden_path(self, patch: str) -> str | None:
        """Return the first forbidden path in a patch. It may be one that Codex would read as text."""
        for line in map(str.strip, patch.split("\n")):
            found = _PATCH_FILE.match(line)
            if found is not None and not self._allows_path(line[found.end() :]):
                return line[found.end() :]
        return None

    def allows_change(self, item: JsonObject) -> bool:
        """Check a fileChange item. If it is allowed, create its directories, which Codex cannot do."""
        changes = item.get("changes")
        if not self.patch_dir or not isinstance(changes, list) or not changes:
            return False
        paths = [path for change in changes for path in _changed_paths(object_of(change))]
        if not all(map(self._allows_path, paths)):
            return False
        files = [Path(self.patch_dir, path) for path in paths]
        try:
            if any(file.exists() and file.stat().st_nlink > 1 for file in files):  # a hard link may be outside of the directory
                return False
            for file in files:
                file.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return False
        return True

    def _allows_path(self, path: str) -> bool:
        try:
            root = Path(self.patch_dir).resolve()
            found = Path(root, path).resolve()
        except (OSError, RuntimeError, ValueError):  # an invalid path, or a loop of links
            return False
        if found == root or not found.is_relative_to(root):
            return False
        return _PROTECTED_NAMES.isdisjoint(map(str.lower, found.relative_to(root).parts))


NO_RAILS = Rails()


def rails_from(settings: CodexSettings) -> Rails:
    """Raise ConfigurationError if the directory for patches does not exist."""
    allows_patches = "apply_patch" in settings.rails
    if allows_patches and not (settings.rails_dir and Path(settings.rails_dir).expanduser().is_dir()):
        raise ConfigurationError(f"models.{settings.name}.rails_dir: expected the directory that apply_patch may write to")
    return Rails(
        patch_dir=str(Path(settings.rails_dir).expanduser().resolve()) if allows_patches else "",
        allows_search="web_search" in settings.rails,
        allows_requested_search="web_search_asked" in settings.rails,
    )


def requests_search(history: Sequence[Item]) -> bool:
    """Check whether the last assistant turn called for a web search. Clients with XML tools have the call in the text."""
    has_calls = False
    for item in reversed(history):
        match item:
            case Call():
                if _SEARCH_TOOL.fullmatch(item.name):
                    return True
                has_calls = True
            case Message(role="assistant"):
                return _PRINTED_SEARCH.search(plain_text(item.content)) is not None
            case Message() if has_calls:
                return False
    return False


def _changed_paths(change: JsonObject) -> list[str]:
    moved_to = text_of(object_of(change.get("kind")), "move_path")
    return [text_of(change, "path"), *([moved_to] if moved_to else [])]


class PatchApprovals:
    """`in_response`: the current response contains a patch and has not ended. `requests` wait for its end."""

    def __init__(self, rails: Rails) -> None:
        self.in_response = False
        self.requests: list[ServerRequest] = []
        self._rails = rails
        self._changes: dict[str, JsonObject] = {}
        self._responses = 0

    def add_patch(self, patch: str) -> ModelError | None:
        """Check a patch as the model wrote it. Return the error that ends the turn, if any."""
        self.in_response = True
        if self._responses >= MAX_PATCH_RESPONSES:
            return ModelError("The model went on and on patching files, and was stopped.", code="too_many_rounds")
        path = self._rails.find_forbidden_path(patch)
        if path is None:
            return None
        message = f"The model tried to patch {path[:200]!r}, where it may not write, and was stopped."
        return ModelError(message, code="patch_off_rails")

    def add_change(self, item: JsonObject) -> None:
        """Keep a fileChange item until its approval is requested."""
        self._changes[text_of(item, "id")] = item

    def decide(self, *, accept: bool) -> list[tuple[ServerRequest, bool]]:
        """Return the waiting requests and whether each is allowed; none is unless `accept`."""
        requests, self.requests = self.requests, []
        changes = [self._changes.get(text_of(request.params, "itemId"), {}) for request in requests]
        return [
            (request, accept and self._rails.allows_change(change)) for request, change in zip(requests, changes, strict=True)
        ]

    def end_response(self) -> None:
        self._responses += self.in_response
        self.in_response = False
