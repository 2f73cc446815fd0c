"""Text models: what a scripted one prints, and the calls and results that it reads in its conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from msgspec.structs import replace

from tests.stories.scripts import Called, Entry, ModelAnswer, ProviderRequest, Returned, Said

_TAG = re.compile(r"<(tool_call(?::[0-9a-f]{12})?)>")
_CALL = re.compile(r"<(tool_call(?::[0-9a-f]{12})?)>\n(.*?)\n</\1>", re.DOTALL)
_RESULT = re.compile(r"<(tool_response(?::[0-9a-f]{12})?)>\n(.*?)\n</\1>", re.DOTALL)
_WRITTEN_ON = "\nAnd then the tool will surely say"


def print_calls(answer: ModelAnswer, received: ProviderRequest) -> ModelAnswer:
    """Return the answer with its calls as text, in the form that the request asks for; the model writes on after them."""
    calls = [json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in answer.calls]
    if not calls:
        return answer
    if received.schema is not None:
        (text,) = calls
        return ModelAnswer(text=text)
    tag = _TAG.search(received.system)
    assert tag is not None, f"the model was told of no calls: {received.system}"
    printed = "\n".join(f"<{tag[1]}>\n{call}\n</{tag[1]}>" for call in calls)
    return ModelAnswer(text=f"{answer.text}{printed}{_WRITTEN_ON}")


def read_printed(received: ProviderRequest) -> ProviderRequest:
    """Return the request with the calls and results that are text in it. They are numbered instead of having ids."""
    return replace(received, entries=list(_read(received.entries)))


def _read(entries: list[Entry]) -> Iterator[Entry]:
    made = returned = 0
    for entry in entries:
        assert isinstance(entry, Said), "a text model is sent text only"
        rest = entry.text
        if entry.role == "assistant":
            for call in _CALL.finditer(entry.text):
                rest = rest.replace(call[0], "")
            if rest.strip():
                yield Said("assistant", rest.strip())
            for call in _CALL.finditer(entry.text):
                value = json.loads(call[2])
                yield Called(str(made), value["name"], value["arguments"])
                made += 1
            continue
        for result in _RESULT.finditer(entry.text):
            rest = rest.replace(result[0], "")
            yield Returned(str(returned), result[2])
            returned += 1
        if rest.strip():
            yield Said(entry.role, rest.strip())
