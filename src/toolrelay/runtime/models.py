"""The models of the configuration: settings, backend and tool-calling options of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.backends.base import Backend
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool
from toolrelay.core.validation import validate
from toolrelay.dialects.base import discover
from toolrelay.dialects.families import ModelFamily, family_of
from toolrelay.errors import ClientError
from toolrelay.parsing.triggers import ScanOptions
from toolrelay.settings import ModelSettings
from toolrelay.toolcalls.options import ActiveOptions, ToolCallOptions, passes_no_tool

MAX_SHOWN_NAME = 100


class Model(Struct, frozen=True, kw_only=True):
    settings: ModelSettings
    backend: Backend
    mode: ActiveOptions


def find_model(models: Mapping[str, Model], name: str, may_use: Callable[[str], bool]) -> Model:
    """Return the model, or raise a 404 that names the nearest ones. To a client, a model that it may not use does not exist."""
    model = models.get(name)
    if model is not None and may_use(name):
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
    options = ToolCallOptions(
        dialect=dialects[name],
        native=native,
        scans_text=native and chosen == "auto" and family is not None,
        enforces_tool_choice=profile.enforces_tool_choice,
        accepts_any_name=profile.tool_names == "any",
        scan=_scan_options(family),
        cutoff=settings.cutoff,
        on_bad_call=settings.on_bad_call or ("pass" if native else "retry"),
        constrains_output=profile.constrains_output,
        whole_calls=native and profile.whole_calls,
        emulates_stop=not profile.takes_stop_sequences,
        secret=secret,
        validate=validate,
        passes_tool=passes_tool or passes_no_tool,
        on_unsupported_tool=settings.on_unsupported_tool,
    )
    if not (native and chosen == "auto"):
        return ActiveOptions(options)
    on_bad_call = settings.on_bad_call or "retry"
    return ActiveOptions(options, replace(options, native=False, scans_text=False, whole_calls=False, on_bad_call=on_bad_call))


def _scan_options(family: ModelFamily | None) -> ScanOptions:
    if family is None:
        return ScanOptions()
    return ScanOptions(
        reasoning=family.reasoning,
        begins_in_reasoning=family.begins_in_reasoning,
        calls_in_reasoning=family.calls_in_reasoning,
        calls_in_fences=family.calls_in_fences,
    )
