"""How it stands with Codex, for `toolrelay check`: which binary it is, which models it knows, and who is signed in."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.backends.base import HealthReport
from toolrelay.backends.codex.binary import Binary, survey
from toolrelay.backends.codex.home import CodexLocation, Home, location_for
from toolrelay.backends.codex.json_access import object_of, text_of
from toolrelay.backends.codex.pool import Pool
from toolrelay.backends.codex.process import CodexError
from toolrelay.backends.codex.settings import CodexSettings
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment

SIGN_IN = "not signed in; sign in with `codex login`, or name an api_key or a base_url"


class Status(Struct, frozen=True, kw_only=True):
    """`models` are those that the binary's own catalog offers; `account` says who pays; `problem`, why it would not work."""

    binary: str
    version: str = ""
    models: tuple[str, ...] = ()
    account: str = ""
    problem: str = ""


async def inspect(settings: CodexSettings, environment: Environment) -> HealthReport:
    found = await status(settings, environment)
    summary = f"Codex {found.version}, {found.account}" if found.account else f"Codex {found.version}"
    models = (f"Codex {found.version} knows {', '.join(found.models)}",) if found.models else ()
    return HealthReport(summary=summary, problem=found.problem, notes=models)


async def status(settings: CodexSettings, environment: Environment) -> Status:
    """Starts the binary as a turn would, but asks no model anything. Raises ConfigurationError if there is no binary."""
    place = location_for(settings, environment)
    try:
        binary = await _surveyed(place)
    except ConfigurationError as error:
        return Status(binary=place.binary, problem=error.message)
    known = Status(binary=place.binary, version=".".join(map(str, binary.version)), models=_offered(binary))
    if place.base_url:
        return replace(known, account=f"the provider at {place.base_url}")
    if place.api_key:
        return replace(known, account="OpenAI, with the key of api_key")
    pool = Pool(place, size=1)
    try:
        async with pool.lease() as lease:
            found = await lease.call("account/read", {"refreshToken": False})
    except CodexError as error:
        return replace(known, problem=error.message)
    finally:
        await pool.close()
    account = _account(found)
    if not account and found.get("requiresOpenaiAuth") is not False:
        return replace(known, problem=SIGN_IN)
    unknown = place.model not in {entry.get("slug") for entry in binary.catalog}
    problem = f"the model {place.model!r} is not one that this Codex knows: {', '.join(known.models)}" if unknown else ""
    return replace(known, account=account or "nobody in particular", problem=problem)


async def _surveyed(place: CodexLocation) -> Binary:
    home = Home(place.folder)
    try:
        return await survey(place.binary, home.environ(place))
    finally:
        home.remove()


def _offered(binary: Binary) -> tuple[str, ...]:
    return tuple(text_of(entry, "slug") for entry in binary.catalog if entry.get("visibility") == "list")


def _account(found: JsonObject) -> str:
    account = object_of(found.get("account"))
    match account.get("type"):
        case "chatgpt":
            return f"signed in with ChatGPT (plan: {text_of(account, 'planType') or 'unknown'})"
        case "apiKey":
            return "signed in with an API key"
        case str(kind):
            return f"signed in with {kind}"
        case _:
            return ""
