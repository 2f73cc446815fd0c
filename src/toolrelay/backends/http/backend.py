"""Models behind an HTTP provider: the client role of a wire over a keep-alive pool, with retries before the first byte only."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Annotated
from urllib.parse import quote, urlsplit

from msgspec import Meta
from msgspec.structs import replace

from toolrelay import __version__, log
from toolrelay.backends.base import BackendKind, Deliver, Wanted, deliver_batch
from toolrelay.backends.http.connection import UpstreamResponse
from toolrelay.backends.http.errors import UpstreamError
from toolrelay.backends.http.origin import Origin
from toolrelay.backends.http.pool import ConnectionPool
from toolrelay.backends.http.proxy import find_proxy
from toolrelay.backends.providers import PROVIDERS
from toolrelay.backends.redaction import redact, redact_failure
from toolrelay.core.events import UPSTREAM_RETRIED, AnswerFailed, AnswerFinished, Noticed, StreamEvent
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, Request
from toolrelay.errors import BackendError, ConfigurationError, ToolrelayError
from toolrelay.setting_types import BaseUrl, Count, Secret
from toolrelay.settings import Environment, ModelSettings
from toolrelay.wires.base import OutgoingRequest, ProviderWire, discover_provider_wires
from toolrelay.wires.outgoing import CUSTOM_TOOLS

BACKOFF = (0.2, 0.6)
MAX_RETRY_AFTER = 5.0
DRAIN_SECONDS = 0.5
MAX_ANSWER = 64 * 1024 * 1024
MAX_ERROR = 1024 * 1024
MAX_WARNINGS = 256

_RETRIED = frozenset({429, 503, 529})  # the request was not processed; after 502 and 504 it may have been
_CANNOT_COUNT = (404, 405, 501)  # servers of other models speak the API without this endpoint
_UNSAFE = re.compile(r"[^\x20-\x7e]")
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_MODEL_KEYS = ("context_length", "keep_alive")  # sent by wires that have them in `model_keys`

_WIRES = {wire.config_name: wire for wire in discover_provider_wires().values()}
WireWord = Annotated[str, Meta(extra={"choices": tuple(sorted(_WIRES))})]
ApiVersion = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]*\Z", description='a version such as "2024-10-21"')]


KeepAlive = Annotated[
    str,
    Meta(
        pattern=r"^(-?\d{1,9}|(\d{1,9}(\.\d{1,9})?(ms|s|m|h)){1,4})?\Z",
        description='a time such as "30m", or seconds such as "90" ("-1": for ever)',
    ),
]


class HttpSettings(ModelSettings, frozen=True, kw_only=True):
    base_url: BaseUrl
    wire: WireWord
    api_key: Secret = ""
    api_version: ApiVersion = ""
    context_length: Count = 0
    keep_alive: KeepAlive = ""


class HttpBackend:
    """`backoff`: seconds before each retry. `pause` waits for one of them. `environ` may name a proxy."""

    def __init__(
        self,
        settings: HttpSettings,
        wire: ProviderWire,
        profile: Profile,
        *,
        context: ssl.SSLContext | None = None,
        environ: Mapping[str, str] | None = None,
        backoff: tuple[float, ...] = BACKOFF,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        origin, self._path = _parse_base_url(settings)
        self._name = settings.name
        self.model = settings.model or settings.name
        self.wire = wire
        self._profile = profile
        proxy = find_proxy(origin, environ or {})
        self._pool = ConnectionPool(origin, read_timeout=settings.timeout_seconds, context=context, proxy=proxy)
        self._backoff = backoff
        self._pause = pause
        self._key = settings.api_key
        self._warned: set[str] = set()
        headers = _headers(settings, wire, origin, profile)
        self._query = f"api-version={settings.api_version}" if settings.api_version else ""
        address = ""
        if proxy is not None and not origin.secure:
            headers += proxy.header
            address = f"http://{origin.authority}"
        self._target = self._wire_target = address + self._path
        if wire.is_beside_v1:  # all other pages are below /v1
            self._wire_target = self._target.removesuffix("/v1")
            self._target = f"{self._wire_target}/v1"
        self._heads = {
            streamed: f" HTTP/1.1\r\n{headers}accept: {accepted}\r\ncontent-length: ".encode("ascii")
            for streamed, accepted in ((True, wire.stream_type), (False, "application/json"))
        }

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        response = None
        try:
            response = await self._respond(self._encode(request), deliver)
            if self._is_stream(response, asked=request.stream):
                last = await self._stream_body(response, deliver)
            else:
                last = self.wire.decode_answer(await response.read_all(MAX_ANSWER))
        except UpstreamError as error:
            last = [AnswerFailed(self._backend_error(error))]
        except ToolrelayError as error:
            last = [AnswerFailed(error)]
        finally:
            if response is not None:
                response.release()
        if last:
            await deliver_batch(deliver, redact_failure(last, self._key))

    async def _stream_body(self, response: UpstreamResponse, deliver: Deliver) -> list[StreamEvent]:
        """Deliver all batches but the last, and return that one; it is empty if nothing more is wanted."""
        decoder = self.wire.decoder()
        last: list[StreamEvent] = []

        def consume(data: bytes) -> Awaitable[bool | None] | bool | None:
            nonlocal last
            events = decoder.feed(data)
            if not events:
                return None
            kind = events[-1].__class__
            if kind is AnswerFinished or kind is AnswerFailed:
                last = events
                return True
            wanted = deliver(events)
            if wanted is None:
                return None
            return wanted is Wanted.NOTHING if isinstance(wanted, Wanted) else _is_nothing(wanted)

        if await response.stream_to(consume):
            if last:
                response.release(drain_seconds=DRAIN_SECONDS)
            return last
        response.release()
        return decoder.flush()

    async def relay(self, path: str, body: bytes, deliver: Deliver, *, stream: bool) -> RelayedHttpResponse:
        """See RelayingBackend."""
        try:
            response = await self._respond(self._make_request(self._target + path, body, stream=stream), deliver)
        except ToolrelayError as error:
            redact_failure([AnswerFailed(error)], self._key)
            raise
        try:
            is_stream = self._is_stream(response, asked=stream)
        except UpstreamError as error:
            response.release()
            raise self._backend_error(error) from None
        return RelayedHttpResponse(response, self._backend_error, is_stream=is_stream)

    async def count_tokens(self, request: Request) -> int | None:
        """See CountingBackend."""
        counting = self.wire.token_counting
        if counting is None:
            return None
        outgoing = counting.encode_request(replace(request, model=self.model, stream=False), self._profile)
        try:
            return counting.decode_count(await self._exchange(outgoing, MAX_ERROR))
        except ToolrelayError as error:
            if error.status in _CANNOT_COUNT:
                return None
            raise

    async def compact(self, request: Request) -> bytes | None:
        """See CompactingBackend."""
        compaction = self.wire.compaction
        if compaction is None:
            return None
        outgoing = compaction.encode_request(replace(request, model=self.model, stream=False), self._profile)
        return await self._exchange(outgoing, MAX_ANSWER)

    async def _exchange(self, outgoing: OutgoingRequest, limit: int) -> bytes:
        """Send a request that is not for an answer of the model. Return the body of the response."""
        sent = self._make_request(self._wire_target + outgoing.path, outgoing.body, stream=False, headers=outgoing.headers)
        try:
            response = await self._respond(sent, _ignore)
            try:
                return await response.read_all(limit)
            finally:
                response.release()
        except UpstreamError as error:
            raise self._backend_error(error) from None
        except ToolrelayError as error:
            redact_failure([AnswerFailed(error)], self._key)
            raise

    async def list_models(self, below: str = "") -> tuple[int, bytes]:
        """Return the status and body of the server's list of models, or raise BackendError. `below` goes before its path."""
        target = self._locate(self._target + below + self.wire.models_path)
        try:
            response = await self._pool.send(b"GET %b%b0\r\n\r\n" % (target, self._heads[False]))
            try:
                return response.status, await response.read_all(MAX_ANSWER)
            finally:
                response.release()
        except UpstreamError as error:
            raise self._backend_error(error) from None

    async def close(self) -> None:
        await self._pool.close()

    def _encode(self, request: Request) -> bytes:
        if request.model != self.model:
            request = replace(request, model=self.model)
        outgoing = self.wire.encode_request(request, self._profile)
        if outgoing.dropped:
            self._warn_of_dropped(outgoing.dropped)
        target = self._wire_target + outgoing.path
        return self._make_request(target, outgoing.body, stream=request.stream, headers=outgoing.headers)

    def _make_request(self, target: str, body: bytes, *, stream: bool, headers: Sequence[tuple[str, str]] = ()) -> bytes:
        more = "".join(f"\r\n{name}: {_UNSAFE.sub('', value)}" for name, value in headers).encode("ascii") if headers else b""
        return b"POST %b%b%d%b\r\n\r\n%b" % (self._locate(target), self._heads[stream], len(body), more, body)

    def _locate(self, target: str) -> bytes:
        mark = ("&" if "?" in target else "?") if self._query else ""
        return _quoted(f"{target}{mark}{self._query}")

    def _warn_of_dropped(self, dropped: tuple[str, ...]) -> None:
        for field in dropped:
            if field not in self._warned and len(self._warned) < MAX_WARNINGS:
                self._warned.add(field)
                log.warning("field_dropped", model=self._name, field=field[:100], wire=self.wire.name)

    async def _respond(self, request: bytes, deliver: Deliver) -> UpstreamResponse:
        """Return the first response with status 2xx, or raise the error of the last try. Deliver a notice of each retry."""
        tries = 0
        while True:
            try:
                response = await self._pool.send(request)
            except UpstreamError as fault:
                error, is_retryable, reason = self._backend_error(fault), fault.retryable, fault.code
            else:
                if 200 <= response.status < 300:
                    return response
                error, is_retryable = await self._read_error(response), response.status in _RETRIED
                reason = f"status_{response.status}"
            if not is_retryable or tries == len(self._backoff) or (error.retry_after or 0) > MAX_RETRY_AFTER:
                if tries:
                    error.should_retry = False  # else the client's own retries would multiply with these
                raise error
            pause = self._backoff[tries] if error.retry_after is None else error.retry_after
            tries += 1
            await deliver_batch(deliver, [Noticed(event=UPSTREAM_RETRIED, rule=reason)])
            await self._pause(pause)

    async def _read_error(self, response: UpstreamResponse) -> BackendError:
        """Decode a response with another status than 2xx."""
        body = b""
        try:
            while len(body) < MAX_ERROR and (data := await response.read()):
                body += data
        except UpstreamError:
            pass  # an error with half a body is still that error
        finally:
            response.release()
        if response.status < 400:
            location = redact(response.header(b"location") or "", self._key)
            log.warning("redirect_refused", model=self._name, status=response.status, location=location)
            problem = f"answered with a redirect ({response.status}), which is not followed"
            return self._backend_error(UpstreamError(f"{problem}: models.{self._name}.base_url must name the final address"))
        error = self.wire.decode_error(response.status, body[:MAX_ERROR])
        if response.status == 404:
            hint = f"models.{self._name}.base_url and model may be wrong; `toolrelay check` looks"
            error.message = f"{error.message} (404 from {self._pool.origin.address}{self._path}: {hint})"
        if error.retry_after is None:
            error.retry_after = _parse_retry_after(response.header(b"retry-after"))
        return error

    def _is_stream(self, response: UpstreamResponse, *, asked: bool) -> bool:
        """Decide by the response's content type, or, if that is something else, by what was asked for."""
        encoding = response.header(b"content-encoding")
        if encoding and encoding.lower() != "identity":
            raise UpstreamError(f"answered in the encoding {redact(encoding, self._key)[:40]!r}, which it was not asked for")
        kind = (response.header(b"content-type") or "").partition(";")[0].strip().lower()
        if kind == "text/html":
            raise UpstreamError(f"answered with a web page: models.{self._name}.base_url may be wrong")
        return kind in ("text/event-stream", self.wire.stream_type) or (asked and not kind.endswith("json"))

    def _backend_error(self, error: UpstreamError) -> BackendError:
        message = f"The model's server at {self._pool.origin.address} {error}."
        return BackendError(message, status=error.status, code=error.code)


class RelayedHttpResponse:
    """See RelayedResponse."""

    def __init__(
        self, response: UpstreamResponse, as_backend_error: Callable[[UpstreamError], BackendError], *, is_stream: bool
    ) -> None:
        self.is_stream = is_stream
        self._response = response
        self._as_backend_error = as_backend_error

    async def read(self) -> bytes:
        try:
            return await self._response.read()
        except UpstreamError as error:
            raise self._as_backend_error(error) from None

    async def read_all(self) -> bytes:
        try:
            return await self._response.read_all(MAX_ANSWER)
        except UpstreamError as error:
            raise self._as_backend_error(error) from None

    def release(self) -> None:
        self._response.release()


def _ignore(_events: list[StreamEvent]) -> None:
    """Deliver nothing: notices of a count are not logged."""


async def _is_nothing(wanted: Awaitable[Wanted | None]) -> bool:
    return await wanted is Wanted.NOTHING


@lru_cache(maxsize=256)
def _quoted(path: str) -> bytes:
    return quote(path, safe="/:?&=@!$'()*+,;~%").encode("ascii")


def _parse_retry_after(value: str | None) -> float | None:
    """Return seconds; the header has seconds or a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds < float("inf") else None


def _parse_base_url(settings: HttpSettings) -> tuple[Origin, str]:
    """Return the origin, and the path without a slash at its end."""
    key = f"models.{settings.name}.base_url"
    try:
        parts = urlsplit(settings.base_url)
        host = parts.hostname or ""
        host = host if ":" in host else host.encode("idna").decode("ascii")
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"{key} is not a valid URL: {error}.") from None
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(host):
        raise ConfigurationError(f"{key} must look like http://host:port/path or https://host/path.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError(f"{key} must hold neither credentials (see api_key) nor a query.")
    secure = parts.scheme == "https"
    return Origin(secure=secure, host=host, port=port or (443 if secure else 80)), parts.path.rstrip("/")


def _headers(settings: HttpSettings, wire: ProviderWire, origin: Origin, profile: Profile) -> str:
    """Return the header lines that are the same for every request."""
    if _UNSAFE.search(settings.api_key):
        raise ConfigurationError(f"models.{settings.name}.api_key holds a line break or another character that no key has.")
    key = settings.api_key
    credentials = [(profile.key_header, key)] if profile.key_header else wire.credentials(key)
    headers = [
        ("host", origin.authority),
        ("user-agent", f"toolrelay/{__version__}"),
        ("accept-encoding", "identity"),
        ("content-type", "application/json"),
        *wire.headers,
        *(credentials if key else ()),
    ]
    return "".join(f"{name}: {value}\r\n" for name, value in headers)


def profile_of(settings: HttpSettings, profile: Profile) -> Profile:
    """What a wire has no word for is emulated: stop sequences, a required call, custom tools. The model's own keys are added."""
    wire = _WIRES.get(settings.wire)
    unsupported = {} if wire is None else wire.unsupported
    return replace(
        profile,
        takes_stop_sequences=profile.takes_stop_sequences and "stop" not in unsupported,
        enforces_tool_choice=profile.enforces_tool_choice and "tool_choice" not in unsupported,
        takes_custom_tools=profile.takes_custom_tools and CUSTOM_TOOLS not in unsupported,
        **{key: getattr(settings, key) for key in _MODEL_KEYS},
    )


def passes_tool(settings: HttpSettings, tool: OpaqueTool) -> bool:
    """A server may know all that its wire can say."""
    wire = _WIRES.get(settings.wire)
    return wire is not None and wire.name == tool.wire


def open_backend(settings: HttpSettings, environment: Environment) -> HttpBackend:
    wire = _WIRES.get(settings.wire)
    if wire is None:
        raise ConfigurationError(f"models.{settings.name}.wire: the wire {settings.wire!r} is not available.")
    for key in _MODEL_KEYS:
        if getattr(settings, key) and key not in wire.model_keys:
            able = " or ".join(f'"{each.config_name}"' for each in _WIRES.values() if key in each.model_keys)
            raise ConfigurationError(f"models.{settings.name}.{key}: only wire = {able} can say it, not {settings.wire!r}.")
    profile = profile_of(settings, PROVIDERS[settings.provider].profile)
    return HttpBackend(settings, wire, profile, environ=environment.environ)


BACKEND = BackendKind(settings=HttpSettings, open=open_backend, profile=profile_of, passes_tool=passes_tool)
