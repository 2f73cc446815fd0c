"""The health report of a Codex model for `toolrelay check`: binary, models and sign-in."""

from __future__ import annotations

from toolrelay.backends.base import HealthReport
from toolrelay.backends.codex.binary import CodexBinary
from toolrelay.backends.codex.errors import CodexError
from toolrelay.backends.codex.home import probe_location
from toolrelay.backends.codex.pool import ProcessPool
from toolrelay.backends.codex.rpc import object_of, text_of
from toolrelay.backends.codex.settings import CodexLocation, CodexSettings, location_for
from toolrelay.core.json import JsonObject
from toolrelay.settings import Environment

NOT_SIGNED_IN = "not signed in; sign in with `toolrelay codex login`, or name an api_key or a base_url"


async def inspect(settings: CodexSettings, environment: Environment) -> HealthReport:
    """Start the binary as a turn would, but send no request to a model. Raise ConfigurationError for an unusable binary."""
    location = location_for(settings, environment)
    binary = await probe_location(location)
    name = f"Codex {'.'.join(map(str, binary.version))}"
    models = [text_of(entry, "slug") for entry in binary.catalog if entry.get("visibility") == "list"]
    account, problem = await _check_account(location, binary, ", ".join(models))
    return HealthReport(
        summary=f"{name}, {account}" if account else name,
        problem=problem,
        notes=(f"{name} knows {', '.join(models)}",) if models else (),
    )


async def _check_account(location: CodexLocation, binary: CodexBinary, models: str) -> tuple[str, str]:
    """Return who pays for the model, and why it would not work, if so."""
    if location.base_url:
        return f"the provider at {location.base_url}", ""
    if location.api_key:
        return "OpenAI, with the key of api_key", ""
    pool = ProcessPool(location, size=1)
    try:
        async with pool.lease() as lease:
            reply = await lease.call("account/read", {"refreshToken": False})
    except CodexError as error:
        return "", error.message
    finally:
        await pool.close()
    account = _describe_account(object_of(reply.get("account")))
    if not account and reply.get("requiresOpenaiAuth") is not False:
        return "", NOT_SIGNED_IN
    is_known = location.model in {entry.get("slug") for entry in binary.catalog}
    problem = "" if is_known else f"the model {location.model!r} is not one that this Codex knows: {models}"
    return account or "nobody in particular", problem


def _describe_account(account: JsonObject) -> str:
    match account.get("type"):
        case "chatgpt":
            return f"signed in with ChatGPT (plan: {text_of(account, 'planType') or 'unknown'})"
        case "apiKey":
            return "signed in with an API key"
        case str(kind):
            return f"signed in with {kind}"
        case _:
            return ""
