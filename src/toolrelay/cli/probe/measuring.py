"""Measures how well a model follows each way of calling tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from toolrelay.app import open_models
from toolrelay.backends.providers import PROVIDERS
from toolrelay.cli.probe.tasks import TASKS, ProbeTask
from toolrelay.cli.trials import one_line, play_turn
from toolrelay.dialects.base import discover
from toolrelay.dialects.families import family_of
from toolrelay.runtime.models import Model
from toolrelay.settings import ModelSettings, Settings

NATIVE = "native"
AUTO = "auto"  # a way of its own where it is neither native nor a dialect
# After the model's own: the safest form, then those that most models have seen.
_COMMON = ("sealed", "hermes", "llama3_json", "qwen3_coder")
MAX_FAILED_WAYS = 2  # without any answer, before the model is given up


class TaskOutcome(Struct, frozen=True, kw_only=True):
    """`problem` is empty if the task was passed. `failed`: there was no answer."""

    task: str
    problem: str = ""
    seconds: float = 0.0
    failed: bool = False


class WayOutcome(Struct, frozen=True, kw_only=True):
    """The outcomes of the tasks with one value of `tool_calling`. After a task without an answer the rest are not tried."""

    tool_calling: str
    outcomes: tuple[TaskOutcome, ...] = ()

    @property
    def passed(self) -> int:
        return sum(not outcome.problem for outcome in self.outcomes)

    @property
    def seconds(self) -> float:
        return sum(outcome.seconds for outcome in self.outcomes)

    @property
    def calls(self) -> bool:
        """Return whether the model made the plainest call."""
        return any(outcome.task == TASKS[0].name and not outcome.problem for outcome in self.outcomes)

    @property
    def failed(self) -> bool:
        """Return whether the model gave no answer at all."""
        return bool(self.outcomes) and all(outcome.failed for outcome in self.outcomes)


def choose_ways(settings: ModelSettings, *, everything: bool = False) -> tuple[str, ...]:
    """Return the values of `tool_calling` to try, the preferred ones first: of equals the first is the best."""
    dialects = discover()
    family = family_of(settings.model or settings.name)
    own = [settings.tool_calling, *([] if family is None else [family.dialect])]
    choice = [AUTO] if family is None and PROVIDERS[settings.provider].profile.offers_choice else []
    chosen = [*choice, NATIVE, *(name for name in own if name in dialects), *_COMMON, *(sorted(dialects) if everything else ())]
    return tuple(dict.fromkeys(chosen))


def may_cost(settings: ModelSettings) -> bool:
    """Return whether somebody may be paid for answers."""
    return not (PROVIDERS[settings.provider].is_local or settings.provider == "demo")


def find_best(ways: Sequence[WayOutcome]) -> WayOutcome | None:
    """Return the way with which the model passed the most tasks, if it made a call with any."""
    able = [way for way in ways if way.calls]
    return max(able, key=lambda way: way.passed) if able else None


class Measurement:
    """The ways that were measured so far, which an interruption leaves as they are."""

    def __init__(self, settings: Settings, name: str, ways: Sequence[str], seconds: float) -> None:
        self._settings = settings
        self._name = name
        self._ways = ways
        self._seconds = seconds
        self._outcomes: dict[str, list[TaskOutcome]] = {}

    @property
    def ways(self) -> tuple[WayOutcome, ...]:
        return tuple(WayOutcome(tool_calling=way, outcomes=tuple(made)) for way, made in self._outcomes.items() if made)

    @property
    def requests(self) -> int:
        """Return how many requests are made, unless the model refuses or corrects some."""
        return len(self._ways) * len(TASKS)

    @property
    def is_given_up(self) -> bool:
        """Return whether the model answered nothing."""
        return len(self.ways) >= min(MAX_FAILED_WAYS, len(self._ways)) and all(way.failed for way in self.ways)

    async def run(self, advance: Callable[[int, str], None]) -> None:
        """Measure all ways. `advance` gets the number of tasks that are done, and the way."""
        backend = None
        opened: list[Model] = []
        try:
            for way in self._ways:
                model = self._open(way)
                opened.append(model)
                backend = backend or model.backend
                await self._measure(way, structs.replace(model, backend=backend), advance)
                if self.is_given_up:
                    return
        finally:
            for model in opened:
                await model.backend.close()

    def _open(self, way: str) -> Model:
        """Open the model with this way. Its bad calls are not asked for again, and no other model helps out."""
        model = structs.replace(
            self._settings.models[self._name], tool_calling=way, on_bad_call="text", printed_calls="text", fallbacks=()
        )
        return open_models(structs.replace(self._settings, models={self._name: model}))[self._name]

    async def _measure(self, way: str, model: Model, advance: Callable[[int, str], None]) -> None:
        made = self._outcomes.setdefault(way, [])
        for number, task in enumerate(TASKS):
            outcome = await self._play(task, model)
            made.append(outcome)
            if outcome.failed and number == 0:
                advance(len(TASKS), way)
                return
            advance(1, way)

    async def _play(self, task: ProbeTask, model: Model) -> TaskOutcome:
        turn = await play_turn(model, task.items, task.tools, self._seconds)
        if turn.error is not None:
            return TaskOutcome(task=task.name, problem=one_line(turn.error.message), seconds=turn.seconds, failed=True)
        return TaskOutcome(task=task.name, problem=one_line(task.judge(turn)), seconds=turn.seconds)
