"""Cost of vLLM's tool parsers on texts from standard input, one JSON object per line, without a GPU.

The parsers are plain Python. Other modules of vLLM that they import are replaced by modules of empty classes.
"""

import importlib
import importlib.abc
import importlib.machinery
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def _do_nothing(*_args: object, **_kwargs: object) -> None:
    return None


class _EmptyMeta(type):
    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _do_nothing


def _init(self: object, *_args: object, **kwargs: object) -> None:
    vars(self).update(kwargs)


def _attribute(_self: object, name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return _do_nothing


class _EmptyModule(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        kind = _EmptyMeta(name, (), {"__init__": _init, "__getattr__": _attribute})
        setattr(self, name, kind)
        return kind


class _EmptyFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "vllm" or name.startswith("vllm.tool_parsers"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _prepare() -> None:
    root = next(Path(place) for place in sys.path if (Path(place) / "vllm" / "tool_parsers").is_dir())
    sys.modules["regex"] = re
    sys.meta_path.insert(0, _EmptyFinder())
    importlib.import_module("vllm")
    parsers = ModuleType("vllm.tool_parsers")
    parsers.__path__ = [str(root / "vllm" / "tool_parsers")]
    sys.modules[parsers.__name__] = parsers


def _cost(parser: Any, text: str) -> float:  # noqa: ANN401 -- theirs
    deltas = [text[at : at + 4] for at in range(0, len(text), 4)]
    text_so_far = ""
    began = time.process_time_ns()
    for delta in deltas:
        before, text_so_far = text_so_far, text_so_far + delta
        parser.extract_tool_calls_streaming(before, text_so_far, delta, (), (), (), None)
    return (time.process_time_ns() - began) / len(deltas)


def main() -> None:
    _prepare()
    for line in sys.stdin:
        job = json.loads(line)
        module = importlib.import_module(f"vllm.tool_parsers.{job['module']}")
        tokenizer = SimpleNamespace(tokenizer=True, get_vocab=dict)  # which they take for a Mistral tokenizer
        print(_cost(getattr(module, job["class"])(tokenizer), job["text"]), flush=True)


if __name__ == "__main__":
    main()
