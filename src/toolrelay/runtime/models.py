"""The models of the configuration: settings, backend and tool-calling options of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from toolrelay.backends.base import Backend
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, ReasoningOptions, Request
from toolrelay.core.validation import validate
from toolrelay.dialects.base import discover
from toolrelay.dialects.families import THINK_TAGS, ModelFamily, family_of
from toolrelay.errors import ClientError
from toolrelay.parsing.triggers import ScanOptions
from toolrelay.runtime.routing import FallbackRoute, RoutedBackend
from toolrelay.setting_types import ParameterDefaults
from toolrelay.settings import ModelSettings
from toolrelay.toolcalls.constraint import CHOICE
from toolrelay.toolcalls.options import ActiveOptions, ToolCallOptions, passes_no_tool
from toolrelay.toolcalls.targets import Target

MAX_SHOWN_NAME = 100


class Model(Struct, frozen=True, kw_only=True):
    settings: ModelSettings
    backend: Backend
    mode: ActiveOptions
    route: FallbackRoute | None = None

    @property
    def own_backend(self) -> Backend:
        """The backend without fallbacks, for what only this model can do: vectors of another would not fit."""
        return self.backend.primary if isinstance(self.backend, RoutedBackend) else self.backend


def add_routes(models: dict[str, Model]) -> None:
    """Connect the models that have fallbacks with them. A fallback's own fallbacks do not count."""
    plain = dict(models)
    for name, model in plain.items():
        names = model.settings.fallbacks
        if names:
            targets = [Target(name=each, mode=plain[each].mode) for each in (name, *names)]
            backend = RoutedBackend(model.backend, {each: plain[each].backend for each in names})
            route = FallbackRoute(targets, model.settings.fallback_cooldown_seconds)
            models[name] = replace(model, backend=backend, route=route)


def apply_defaults(request: Request, settings: ModelSettings) -> Request:
    """Add the model's default parameters that the request does not set."""
    if not settings.defaults:
        return request
    given = convert(settings.defaults, ParameterDefaults)
    values = asdict(given)
    effort, values["max_output_tokens"] = values.pop("reasoning_effort"), values.pop("max_tokens")
    missing = {name: value for name, value in values.items() if value is not None and getattr(request.sampling, name) is None}
    reasoning = request.reasoning or ReasoningOptions()
    if effort is not None and reasoning.effort is None:
        request = replace(request, reasoning=replace(reasoning, effort=effort))
    return replace(request, sampling=replace(request.sampling, **missing)) if missing else request


def find_model(models: Mapping[str, Model], name: str, may_use: Callable[[str], bool]) -> Model:
    """Return the model of a name or an alias, or raise a 404 that names the nearest ones.

    To a client, a model that it may not use does not exist. An alias gives no rights: the model's own name counts.
    """
    model = models.get(name) or next((each for each in models.values() if name in each.settings.aliases), None)
    if model is not None and may_use(model.settings.name):
        return model
    shown = name[:MAX_SHOWN_NAME]
    visible = {each.casefold(): each for each in models if may_use(each)}
    nearest = [visible[key] for key in get_close_matches(shown.casefold(), visible, n=3)]
    hint = f" Did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""
    message = f"The model {shown!r} does not exist here, or not for your key.{hint} GET /v1/models lists those that do."
    raise ClientError(message, status=404, code="model_not_found", param="model")


def tool_calling_mode(
    settings: ModelSettings,
    profile: Profile,
    secret: Callable[[], bytes],
    passes_tool: Callable[[OpaqueTool], bool] | None = None,
) -> ActiveOptions:
    """Derive a model's tool-calling options from its provider's profile, its family and its configuration."""
    chosen = settings.tool_calling
    dialects = discover()
    family = family_of(settings.model or settings.name)
    native = profile.takes_tools if chosen == "auto" else chosen in ("native", "off")
    name = chosen if chosen in dialects else family.dialect if family is not None else "sealed"
    prints_calls = profile.prints_calls or (chosen == "auto" and family is not None)
    scan = _scan_options(settings, profile, family)
    chooses = profile.offers_choice and chosen == "auto" and family is None
    options = ToolCallOptions(
        dialect=CHOICE if chooses else dialects[name],
        native=native,
        scans_text=native and (settings.printed_calls or ("catch" if prints_calls else "text")) == "catch",
        enforces_tool_choice=profile.enforces_tool_choice,
        accepts_any_name=profile.tool_names == "any",
        scan=scan,
        scans_reasoning=bool(settings.thinking) or (chosen == "auto" and scan.begins_in_reasoning),
        cutoff=settings.cutoff,
        on_bad_call=settings.on_bad_call or ("pass" if native else "retry"),
        constrains_output=profile.constrains_output,
        whole_calls=native and profile.whole_calls,
        emulates_stop=not profile.takes_stop_sequences,
        secret=secret,
        validate=validate,
        takes_custom_tools=profile.takes_custom_tools,
        passes_tool=passes_tool or passes_no_tool,
        on_unsupported_tool=settings.on_unsupported_tool,
    )
    if not (native and chosen == "auto"):
        return ActiveOptions(options)
    on_bad_call = settings.on_bad_call or "retry"
    return ActiveOptions(options, replace(options, native=False, scans_text=False, whole_calls=False, on_bad_call=on_bad_call))


def _scan_options(settings: ModelSettings, profile: Profile, family: ModelFamily | None) -> ScanOptions:
    reasoning = THINK_TAGS if settings.thinking else None
    if family is None:
        return ScanOptions(reasoning=reasoning, begins_in_reasoning=settings.thinking == "begun")
    begins = family.begins_in_reasoning and not profile.separates_reasoning
    return ScanOptions(
        reasoning=family.reasoning or reasoning,
        begins_in_reasoning=settings.thinking == "begun" if settings.thinking else begins,
        calls_in_reasoning=family.calls_in_reasoning,
        calls_in_fences=family.calls_in_fences,
    )
