"""Answers to questions: which question is meant, what is allowed, and arguments from an editor."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from toolrelay.cli._gateway import RefusedError
from toolrelay.cli._output import MISUSED, CommandError
from toolrelay.cli._text import compact_json, escape_controls, shorten
from toolrelay.cli.approvals.client import Client, Question, Rule
from toolrelay.cli.approvals.display import describe_end, files_argument, files_of

ONLY_ONE = "-"  # instead of an id
EDITORS = ("sensible-editor", "nano", "vi")
MAX_CANDIDATES = 10
MAX_ARGUMENTS = 200  # characters in a line about an answer
_ID = re.compile(r"[a-z]+_[0-9A-Za-z]+")  # of a question that is too old to be listed
JsonObject: TypeAlias = dict[str, Any]


class Remember(NamedTuple):
    """For how long an answer counts, and whether only for the same arguments."""

    scope: str = "once"
    same_arguments: bool = False

    def members(self) -> JsonObject:
        if self.scope == "once":
            return {}
        return {"remember": self.scope, "remember_arguments": "same" if self.same_arguments else "any"}


class Editor(NamedTuple):
    """The person's editor, and how to speak with the person between its runs.

    `command` may be empty. `confirm` asks a question. `pause` shows a problem and returns whether to edit again.
    """

    command: str
    confirm: Callable[[str], bool]
    pause: Callable[[str], bool]


# Which question


def find_question(client: Client, wanted: str | None) -> Question:
    """Return the question with an id or a unique part of it. Without an id: the only one that is open."""
    open_questions = client.list_questions()
    if wanted is None or wanted == ONLY_ONE:
        if not open_questions:
            raise CommandError("No question is open.")
        if len(open_questions) > 1:
            raise _ambiguous("Several questions are open. Name one of them", open_questions)
        return client.retrieve(open_questions[0]["id"])
    exact = [question for question in open_questions if question["id"] == wanted]
    found = exact or _with_prefix(open_questions, wanted)
    if not found:
        found = _with_prefix(client.list_questions(None), wanted)
    if len(found) > 1:
        raise _ambiguous(f"Several questions begin or end with {escape_controls(wanted)}", found)
    if not found and not _ID.fullmatch(wanted):
        raise CommandError(f"There is no question {escape_controls(wanted)}.")
    return client.retrieve(found[0]["id"] if found else wanted)


def _with_prefix(questions: Sequence[Question], prefix: str) -> list[Question]:
    """Return the questions whose ids begin or end with this. Ids that are made one after the other begin alike."""
    exact = [question for question in questions if question["id"] == prefix]
    return exact or [
        question
        for question in questions
        if prefix and (question["id"].endswith(prefix) or question["id"].startswith((prefix, f"appr_{prefix}", f"shar_{prefix}")))
    ]


def _ambiguous(problem: str, questions: Sequence[Question]) -> CommandError:
    lines = [f"  {escape_controls(question['id'])}  {summarize(question)}" for question in questions[:MAX_CANDIDATES]]
    if len(questions) > MAX_CANDIDATES:
        lines.append(f"  … {len(questions) - MAX_CANDIDATES} more: toolrelay approvals list --all")
    return CommandError("\n".join([f"{problem}:", *lines]), MISUSED)


def summarize(question: Question, arguments: Any = None) -> str:  # noqa: ANN401 -- JSON
    """Return tool and arguments in one line."""
    shown = question["arguments"] if arguments is None else arguments
    return f"{escape_controls(question['tool'])} {shorten(compact_json(shown), MAX_ARGUMENTS)}"


# Which rule


def find_rule(client: Client, wanted: str) -> Rule:
    """Return the rule with an id or a unique beginning of it."""
    found = _with_prefix(client.list_rules(), wanted)
    if not found:
        raise CommandError(f"There is no rule {escape_controls(wanted)}. See toolrelay approvals rules.")
    if len(found) > 1:
        lines = [f"  {escape_controls(rule['id'])}  {summarize_rule(rule)}" for rule in found[:MAX_CANDIDATES]]
        raise CommandError("\n".join([f"Several rules begin with {escape_controls(wanted)}:", *lines]), MISUSED)
    return found[0]


def summarize_rule(rule: Rule) -> str:
    return f"{rule['verdict']} {escape_controls(rule['tool'])} for the key {escape_controls(rule['key'])}"


# What is answered


def allow(client: Client, question: Question, arguments: JsonObject | None, remember: Remember, reason: str | None) -> Question:
    members = {} if arguments is None else {"arguments": arguments}
    return _answer(client, question, {"verdict": "allow", **members}, remember, reason)


def deny(client: Client, question: Question, remember: Remember, reason: str | None) -> Question:
    return _answer(client, question, {"verdict": "deny"}, remember, reason)


def _answer(client: Client, question: Question, decision: JsonObject, remember: Remember, reason: str | None) -> Question:
    if remember.scope == "conversation" and question["conversation"] is None:
        raise CommandError("The question belongs to no recorded conversation: its answer counts once, or always.", MISUSED)
    members = remember.members() | ({"reason": reason} if reason else {})
    return client.answer(question["id"], decision | members)


def describe_answer(answered: Question, remember: Remember) -> str:
    """Say in one or two lines what was answered."""
    status = answered["status"]
    reason = f" Reason: {escape_controls(answered['reason'])}" if answered["reason"] else ""
    match status:
        case "allowed":
            text = f"Allowed: {summarize(answered)}.{reason}"
        case "edited":
            text = f"Allowed with other arguments: {summarize(answered, answered['ran_with'])}.{reason}"
        case "denied":
            text = f"Denied: {summarize(answered)}.{reason}"
        case _:
            text = f"The question is {describe_end(answered)}."
    if remember.scope == "once":
        return text
    span = "for this conversation" if remember.scope == "conversation" else "for always"
    which = "the same arguments" if remember.same_arguments else "any arguments"
    return f"{text}\nRemembered {span}, with {which}: toolrelay approvals rules"


def decode_arguments(text: str) -> JsonObject:
    """Return the arguments that a person wrote. Raise ValueError with the problem."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise ValueError("this is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object, such as {…}")  # noqa: TRY004 -- one kind of error for a text
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def pick_files(question: Question, paths: Sequence[str]) -> JsonObject:
    """Return the arguments with only these files, in the question's order."""
    argument = files_argument(question)
    if argument is None:
        raise CommandError("The question is not about files: leave out --files.", MISUSED)
    offered = {_normalize(file.path): file.path for file in files_of(question)}
    unknown = [path for path in paths if _normalize(path) not in offered]
    if unknown:
        listed = "\n".join(f"  {escape_controls(path)}" for path in offered.values())
        raise CommandError(f"The question has no file {escape_controls(unknown[0])}. Its files:\n{listed}", MISUSED)
    wanted = {offered[_normalize(path)] for path in paths}
    arguments: JsonObject = question["arguments"]
    return arguments | {argument: [path for path in offered.values() if path in wanted]}


def _normalize(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def is_same(one: Any, other: Any) -> bool:  # noqa: ANN401 -- JSON
    """Compare as JSON: Python holds 1, 1.0 and True for the same."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# The editor


def edit(client: Client, question: Question, remember: Remember, reason: str | None, editor: Editor) -> Question | None:
    """Let a person edit the arguments, and allow the call with them. None: nothing was answered.

    Arguments that are refused are edited again. A text that is still the same after that ends it.
    """
    asked = question["arguments"]
    command = _find_editor(editor.command)
    with tempfile.TemporaryDirectory(prefix="toolrelay-") as folder:  # 0700, for the editor's own copies too
        file = Path(folder) / "arguments.json"
        text = json.dumps(asked, ensure_ascii=False, indent=2) + "\n"
        _write_private(file, text)
        refused: str | None = None
        while True:
            _run_editor(command, file)
            text = _read_edited(file)
            if not text.strip():
                return None
            if text == refused:
                raise CommandError("The arguments were not corrected. Nothing was answered.")
            try:
                arguments = decode_arguments(text)
                if is_same(arguments, asked):
                    unchanged = editor.confirm("The arguments are unchanged. Allow the call as it is?")
                    return allow(client, question, None, remember, reason) if unchanged else None
                return allow(client, question, arguments, remember, reason)
            except ValueError as error:
                problem = f"The arguments cannot be used: {escape_controls(str(error))}."
            except RefusedError as error:
                if error.status not in (400, 413, 422):
                    raise
                problem = error.message
            refused = text
            if not editor.pause(problem):
                return None


def _write_private(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as out:
        out.write(text)


def _read_edited(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise CommandError("The file is not UTF-8. Nothing was answered.") from None


def _run_editor(command: list[str], file: Path) -> None:
    try:
        code = subprocess.run([*command, str(file)], check=False).returncode  # noqa: S603 -- the user's own editor
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"The editor {command[0]} cannot be started: {reason}. Set VISUAL or EDITOR.") from None
    if code != 0:
        raise CommandError(f"The editor {command[0]} ended with exit code {code}. Nothing was answered.")


def _find_editor(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        raise CommandError("The editor's command has a quote that does not end.", MISUSED) from None
    found = words or [editor for editor in EDITORS if shutil.which(editor)][:1]
    if not found:
        raise CommandError("No editor was found. Set VISUAL or EDITOR.", MISUSED)
    return found
