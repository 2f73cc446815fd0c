"""The settings of a Codex model, and the location that its processes are started from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolrelay.backends.codex.binary import find_binary
from toolrelay.setting_types import BaseUrl, Secret
from toolrelay.settings import Environment, ModelSettings


class CodexSettings(ModelSettings, frozen=True, kw_only=True):
    """`rails` are the built-in tools of Codex that the model may use; apply_patch may write below `rails_dir`."""

    base_url: BaseUrl = ""
    api_key: Secret = ""
    rails: tuple[Literal["apply_patch", "web_search", "web_search_asked"], ...] = ()
    rails_dir: str = ""


class CodexLocation(Struct, frozen=True, kw_only=True):
    """Everything that the processes of one model need.

    folder             parent directory of the generated homes
    binary             path of the Codex binary
    base_url, api_key  a base_url names a custom provider; an api_key alone uses OpenAI; neither uses the signed-in account
    auth_file          auth.json in the user's own Codex home
    allows_patches     the model is offered apply_patch, on threads that have an environment
    environ            the gateway's environment, of which processes get only home.PASSED_VARIABLES
    """

    folder: str
    binary: str
    model: str
    base_url: str = ""
    api_key: str = ""
    auth_file: str = ""
    max_result_bytes: int = 262144
    allows_patches: bool = False
    environ: Mapping[str, str] = {}

    @property
    def is_account(self) -> bool:
        return not (self.base_url or self.api_key)

    def __repr__(self) -> str:
        return f"CodexLocation(folder={self.folder!r}, binary={self.binary!r}, model={self.model!r}, base_url={self.base_url!r})"


def location_for(settings: CodexSettings, environment: Environment) -> CodexLocation:
    """Return the location of one model. All models share the folder, and with it the copy of the sign-in."""
    environ = environment.environ
    user_home = Path(environ.get("CODEX_HOME") or "~/.codex").expanduser()
    return CodexLocation(
        folder=str(environment.data_dir / "codex"),
        binary=find_binary(environ.get("TOOLRELAY_CODEX", ""), environ.get("PATH")),
        model=settings.model or settings.name,
        base_url=settings.base_url,
        api_key=settings.api_key,
        auth_file=str(user_home / "auth.json"),
        max_result_bytes=settings.max_tool_result_bytes,
        allows_patches="apply_patch" in settings.rails,
        environ=environ,
    )
