"""A model that answers as the last message says, for the chat in the terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.asking import AskingGateway, asking
from tests.cli.screen import Screen
from tests.model_server import delta, end, error, frame
from tests.upstream import LAST_CHUNK, Gate, ReceivedRequest, Script, Step, chunk, stream_head

SOURCE = Path(__file__).resolve().parents[2] / "src"
MARKDOWN = "# Title\n\nSome **bold** text.\n\n- one\n- two\n\n```python\ndef greet():\n    return 1\n```\n\nThe end.\n"
EVIL = "plain \x1b[2J\x1b]0;owned\x07\x9b31m &#x202e;entity `\x1b[1m` [link](http://x/\u202e) \u202egnp"
BIG = "".join(f"Paragraph {number}: {'word ' * 180}\n\n" for number in range(1100))


class ChatModel:
    """Answers by the last message of the user.

    A JSON list of calls is called, and the results are repeated. `wait NAME` sends a word, waits for the gate of that name, and
    sends the rest. Everything else is looked up in `texts`, or repeated.
    """

    def __init__(self) -> None:
        self.gates: dict[str, Gate] = {}
        self.texts = {"markdown": MARKDOWN, "evil": EVIL, "big": BIG}
        self.seen: list[list[Any]] = []

    def gate(self, name: str) -> Gate:
        return self.gates.setdefault(name, Gate())

    def respond(self, received: ReceivedRequest) -> Script:
        body = json.loads(received.body)
        messages = [{**message, "content": _text(message["content"])} for message in body["messages"]]
        self.seen.append(messages)
        last = max(place for place, message in enumerate(messages) if message["role"] == "user")
        asked, results = str(messages[last]["content"]), [each for each in messages[last:] if each["role"] == "tool"]
        if asked == "fail":
            return [error(400, "The model \x1b[1mrefuses\x07.")]
        if asked.startswith("["):
            return self._call(json.loads(asked)) if not results else _say(*[f"{each['content']}\n\n" for each in results])
        if asked.startswith("wait "):
            return [*_say("Begun\n\nand ")[:-1], self.gate(asked[5:]), chunk(delta("done.") + end()) + LAST_CHUNK]
        if asked == "reason":
            thought = chunk(frame({"role": "assistant", "reasoning_content": "First I think.\nThen I think again."}))
            return [stream_head(), thought, *_say("Thought.")[1:]]
        text = self.texts.get(asked, f"You said: {asked}")
        return _say(*[text[start : start + 4096] for start in range(0, len(text), 4096)])

    def _call(self, calls: list[Any]) -> Script:
        made = [
            {"index": index, "id": f"up_{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for index, (name, given) in enumerate(calls)
        ]
        return [stream_head(), chunk(frame({"tool_calls": made}) + end("tool_calls")) + LAST_CHUNK]


def _text(content: Any) -> Any:
    """Return the content of a message as text, also if it has parts."""
    return "".join(part["text"] for part in content) if isinstance(content, list) else content


def _say(*pieces: str) -> list[Step]:
    return [stream_head(), *[chunk(delta(piece)) for piece in pieces], chunk(end()) + LAST_CHUNK]


class ChatGateway:
    """A running gateway, its model, and terminals."""

    def __init__(self, asked: AskingGateway, model: ChatModel) -> None:
        self.asked = asked
        self.model = model

    @property
    def options(self) -> tuple[str, ...]:
        return ("--config", str(self.asked.gateway.data_dir.parent / "toolrelay.toml"), *self.asked.options)

    def chat(self, *arguments: str, **options: Any) -> Screen:
        options["environ"] = self.environ | options.get("environ", {})
        return Screen("chat", *self.options, *arguments, **options)

    @property
    def environ(self) -> dict[str, str]:
        """Variables with which the configuration can be read: it has a toolset of the test's own."""
        return {"PYTHONPATH": os.pathsep.join([str(SOURCE), str(self.asked.gateway.data_dir.parent)])}


@contextmanager
def chatting(folder: Path, *, config: str = "", port: int = 0) -> Iterator[ChatGateway]:
    model = ChatModel()
    with asking(folder, config=config, port=port, script=model.respond) as asked:
        try:
            yield ChatGateway(asked, model)
        finally:
            for gate in model.gates.values():
                gate.open()
