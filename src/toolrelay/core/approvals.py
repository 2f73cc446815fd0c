"""Approvals: the states of a question to a person, what an answer binds, and what the model is told about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from toolrelay.core.json import Json
from toolrelay.core.messages import Content, Text

QuestionKind: TypeAlias = Literal["run", "share"]
QuestionStatus: TypeAlias = Literal["pending", "allowed", "edited", "denied", "expired", "withdrawn"]
QuestionAnswer: TypeAlias = Literal["allow", "edit", "deny", "expire", "withdraw"]

# A question is answered once: no other transition exists. One that was withdrawn may be asked again.
TRANSITIONS: Mapping[tuple[QuestionStatus, QuestionAnswer], QuestionStatus] = MappingProxyType(
    {
        ("pending", "allow"): "allowed",
        ("pending", "edit"): "edited",
        ("pending", "deny"): "denied",
        ("pending", "expire"): "expired",
        ("pending", "withdraw"): "withdrawn",
    }
)

_GO_ON = "Go on without it, or ask the user what to do instead."
NOT_ANSWERED = f"Nobody answered the request for approval in time. The call was not run. {_GO_ON}"
NOT_ANSWERED_SHARE = f"The tool ran, but nobody approved in time that you see its result. {_GO_ON}"
NOT_SHAREABLE = "Error: the result is too large, so that nobody could be asked about sharing it. Ask for less at once."
CHANGED = "The tool or its arguments changed after a person had approved them. It was not run: call it again if it is needed."
NO_FILES = "No file was selected."
PATHS = "paths"  # the argument of a question about sharing

_PREFIXES: Mapping[QuestionKind, str] = {"run": "appr", "share": "shar"}


def approval_id(call_id: str, kind: QuestionKind = "run") -> str:
    """Return the id of the question about a call."""
    return f"{_PREFIXES[kind]}_{call_id.partition('_')[2]}"


def approval_digest(call_id: str, definition: str, arguments: str) -> str:
    """Return the digest of what a person approves: this call, of the tool as it is defined, with these arguments."""
    text = "\0".join((call_id, definition, canonical_json(arguments)))
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def denial_text(kind: QuestionKind, reason: str | None) -> str:
    """Return what the model is told about a denial."""
    why = f" Reason: {reason}{'' if reason.endswith(('.', '!', '?')) else '.'}" if reason else ""
    if kind == "share":
        return f"The tool ran, but the user did not share its result.{why} {_GO_ON}"
    return f"The user denied this call. It was not run.{why} {_GO_ON}"


def describe_edit(arguments: str, output: Content) -> Content:
    """Return a result that says which arguments the tool ran with, because a person changed the model's."""
    if isinstance(output, str):
        return _encode({"ran_with": decode_text(arguments), "result": decode_text(output)})
    return Text(text=_encode({"ran_with": decode_text(arguments)})), *output


def canonical_json(arguments: str) -> str:
    """Return the arguments without differences that do not matter: spaces and the order of members."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic").decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments


def is_empty_selection(arguments: str, files_argument: str | None) -> bool:
    """Return whether a person unselected every file of a call: that is a denial."""
    value = decode_text(arguments)
    return files_argument is not None and isinstance(value, dict) and value.get(files_argument) == []


# Sharing: the result is a list of entries with a path each


def shared_paths(output: Content) -> list[str] | None:
    """Return the paths of a result. None: it is not a list of entries that all have a path."""
    value = decode_text(output) if isinstance(output, str) else None
    paths = [_path_of(entry) for entry in value] if isinstance(value, list) else [None]
    known = [path for path in paths if path is not None]
    return known if len(known) == len(paths) else None


def keep_paths(output: Content, paths: Sequence[str]) -> str:
    """Return the result with only those entries that have one of the paths."""
    kept = frozenset(paths)
    value = decode_text(output) if isinstance(output, str) else []
    return _encode([entry for entry in value if _path_of(entry) in kept] if isinstance(value, list) else [])


def _path_of(entry: Json) -> str | None:
    path = entry.get("path") if isinstance(entry, dict) else None
    return path if isinstance(path, str) else None


def decode_text(text: str) -> Json:
    """Return the value of a JSON text; any other text as it is."""
    try:
        value: Json = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text
    return value


def _encode(value: Json) -> str:
    return msgspec.json.encode(value).decode()
