"""Cost of SGLang's detectors on texts from standard input, one JSON object per line, without a GPU.

The detectors are plain Python. Other modules that they import, only for types, are replaced by empty ones.
"""

import importlib
import json
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Protocol

_PACKAGES = ("", ".srt", ".srt.entrypoints", ".srt.entrypoints.openai", ".srt.function_call", ".srt.utils")


def _empty(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__getattr__ = lambda attribute: type(attribute, (), {})  # type: ignore[method-assign] # modules may have __getattr__
    sys.modules[name] = module
    return module


def _prepare() -> None:
    root = next(Path(place) for place in sys.path if (Path(place) / "sglang").is_dir())
    for package in _PACKAGES:
        module = ModuleType(f"sglang{package}")
        module.__path__ = [str(root.joinpath(*f"sglang{package}".split(".")))]
        sys.modules[module.__name__] = module
    _empty("sglang.srt.entrypoints.openai.protocol")
    setting = SimpleNamespace(get=lambda: False)
    settings = type("Settings", (), {"__getattr__": lambda _self, _name: setting})
    _empty("sglang.srt.environ").__dict__["envs"] = settings()


class Detector(Protocol):
    def parse_streaming_increment(self, new_text: str, tools: list[SimpleNamespace]) -> object: ...


def _cost(detector: Detector, tool: SimpleNamespace, text: str) -> float:
    deltas = [text[at : at + 4] for at in range(0, len(text), 4)]
    began = time.process_time_ns()
    for delta in deltas:
        detector.parse_streaming_increment(delta, [tool])
    return (time.process_time_ns() - began) / len(deltas)


def main() -> None:
    _prepare()
    for line in sys.stdin:
        job = json.loads(line)
        module = importlib.import_module(f"sglang.srt.function_call.{job['module']}")
        function = SimpleNamespace(name=job["tool"], parameters=job["parameters"], strict=False)
        tool = SimpleNamespace(type="function", function=function)
        print(_cost(getattr(module, job["class"])(), tool, job["text"]), flush=True)


if __name__ == "__main__":
    main()
