"""The toolset interface: a toolset describes tools and runs them."""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Item, Part
from toolrelay.settings import Environment, ToolsetSettings

PlainOutput: TypeAlias = str | Json | tuple[Part, ...]
"""Text as it is, parts as they are; any other value becomes JSON text."""


class PrivateOutput(Struct, frozen=True):
    """Output that only models with `local = true` may see, also later in the conversation."""

    value: PlainOutput


ToolOutput: TypeAlias = PlainOutput | PrivateOutput


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """`parameters` is a JSON schema that allows no further members. `timeout_seconds` None: the toolset's own applies.

    `idempotent`: running the tool twice does no more than running it once, so that it may be repeated. `hints` are further
    facts for people, such as an MCP server's annotations. `title` is the tool's name for people.

    `files_argument` names an argument that is a list of files: a person picks some of them, and an empty list is a denial.
    `asks_to_share`: the output is a list of entries with a `path`, and a person picks those that the model gets.
    """

    name: str
    title: str = ""
    description: str = ""
    parameters: JsonObject
    idempotent: bool = False
    timeout_seconds: float | None = None
    hints: JsonObject | None = None
    files_argument: str | None = None
    asks_to_share: bool = False


class FilePreview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a call would read. `error` says why it cannot be read; `private` is set only for local models."""

    path: str
    name: str
    size: int = 0
    modified_at: float | None = None
    first_line: str = ""
    private: bool | None = None
    error: str | None = None


class Preview(Struct, frozen=True, kw_only=True):
    """What a person sees of a call before it is run, beside its arguments."""

    files: tuple[FilePreview, ...] = ()


class Progress(Struct, frozen=True, kw_only=True):
    done: float
    total: float | None = None
    message: str | None = None


Report: TypeAlias = Callable[[Progress], None]


class ToolContext:
    """What a tool may know about its run.

    call_id           the id of the call
    idempotency_key   the same for every repeat of this call, also after a crash
    key               the caller's key (its name, or its id if it is in the store), or None: no key was needed
    model             the name of the model in the configuration
    local             whether what the model sees stays on this machine (`local = true`)
    items             the conversation so far
    """

    __slots__ = ("_cancelled", "_report", "call_id", "items", "key", "local", "model")

    def __init__(
        self,
        *,
        call_id: str,
        key: str | None = None,
        model: str = "",
        local: bool = False,
        items: tuple[Item, ...] = (),
        report: Report | None = None,
    ) -> None:
        self.call_id = call_id
        self.key = key
        self.model = model
        self.local = local
        self.items = items
        self._report = report
        self._cancelled = threading.Event()

    @property
    def idempotency_key(self) -> str:
        return self.call_id

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted: the run took too long, or the client has gone. Any thread may ask."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        self._cancelled.set()

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress. Any thread may do so. After cancellation it has no effect."""
        if self._report is not None and not self.cancelled:
            whole = None if total is None else float(total)
            self._report(Progress(done=float(done), total=whole, message=None if message is None else str(message)))

    def renew(self, wrap: Callable[[Report], Report]) -> ToolContext:
        """Return the context of another try, which is not cancelled. `wrap` changes how progress is reported."""
        report = None if self._report is None else wrap(self._report)
        return ToolContext(
            call_id=self.call_id, key=self.key, model=self.model, local=self.local, items=self.items, report=report
        )


class Toolset(Protocol):
    @property
    def tools(self) -> Sequence[ToolDefinition]:
        """The tools, under their own names. They are known once the toolset is open."""
        ...

    async def open(self) -> None:
        """Connect. Raise ConfigurationError for what the operator can correct."""
        ...

    async def preview(self, name: str, arguments: JsonObject, context: ToolContext) -> Preview:
        """Return what a person who is asked about the call should see, without running it. The arguments match its schema."""
        ...

    async def run(self, name: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """Run a tool. The arguments match its schema.

        Raise ToolError for an error that a repeat would not change. On cancellation return when the run has really ended:
        until then it counts against `max_concurrent`.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class FilePreviewer(Protocol):
    """A toolset that can show a person a file before a call reads it."""

    async def read_file(self, name: str, path: str, context: ToolContext, *, limit: int) -> str:
        """Return the beginning of a file, as the tool would read it for this model.

        Raise ToolError with what the tool would say instead of its content. The text has about `limit` characters at most.
        """
        ...


S = TypeVar("S", bound=ToolsetSettings)


class ToolsetKind(Struct, Generic[S], frozen=True, kw_only=True):
    """A kind of toolset.

    name       the value of `kind` in a [toolsets.NAME] table
    settings   the keys of such a table: the common ones, and the kind's own
    open       creates a toolset, not yet connected; raises ConfigurationError with one line for each problem
    sample     the keys of a table that works without any set-up; used if nothing is configured
    forget     deletes what a toolset that was removed has left in the data directory; the second argument are those that stay
    """

    name: str
    settings: type[S]
    open: Callable[[S, Environment], Toolset]
    sample: Mapping[str, str] = {}
    forget: Callable[[S, Sequence[S], Environment], None] = lambda _gone, _kept, _environment: None


def discover() -> dict[str, ToolsetKind[Any]]:
    """Return the kinds by name: each module beside this one has one, its `KIND`."""
    import toolrelay.toolsets as package  # noqa: PLC0415 -- a circular import

    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names if name != "base" and name[0] != "_"]
    return {module.KIND.name: module.KIND for module in modules}
