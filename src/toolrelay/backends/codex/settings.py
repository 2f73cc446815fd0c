"""The settings of a Codex model."""

from __future__ import annotations

from typing import Literal

from toolrelay.setting_types import BaseUrl, Secret
from toolrelay.settings import ModelSettings


class CodexSettings(ModelSettings, frozen=True, kw_only=True):
    """`rails` are the tools of Codex's own that the model may use; apply_patch may write below `rails_dir`."""

    base_url: BaseUrl = ""
    api_key: Secret = ""
    rails: tuple[Literal["apply_patch", "web_search", "web_search_asked"], ...] = ()
    rails_dir: str = ""
