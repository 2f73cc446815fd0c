"""What the contract suite calls in the example of each kind of toolset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """A tool, its arguments, and what it returns or, for one that fails, says."""

    tool: str
    arguments: dict[str, Any]
    expected: Any = None


@dataclass(frozen=True)
class Example:
    """The tools of an example. `wait` None: no tool waits until it is cancelled."""

    tools: tuple[str, ...] = ("echo", "fail", "wait")
    echo: Call = Call("echo", {"text": "Grüß Gott"}, "Grüß Gott")
    fail: Call = Call("fail", {}, "as planned")
    wait: Call | None = Call("wait", {})
