"""Signing in and out with a browser, and the list of sessions."""

from __future__ import annotations

from hashlib import sha256
from html import escape
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from toolrelay import log
from toolrelay.core.json import JsonObject
from toolrelay.errors import ClientError, PolicyError, ToolrelayError
from toolrelay.settings import LOCAL
from toolrelay.stores.access import SessionRow
from toolrelay.web.access import Access
from toolrelay.web.approver_auth import Approvers
from toolrelay.web.auth import SIGNED_IN_OPERATOR, Authenticator, Identity, credential_of
from toolrelay.web.router import error_headers
from toolrelay.web.sessions import CODE_SECONDS, COOKIE, SESSION_SECONDS, Codes, Sessions, foreign_request, is_same_origin
from toolrelay.web.site import exchange_of, identify
from toolrelay.wires.json import encode

SIGN_IN = "/console/sign-in"
STYLE = f"{SIGN_IN}.css"
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with "no-referrer" a browser's POST would say `Origin: null`
    "cache-control": "no-store",
}
_FORM = "application/x-www-form-urlencoded"
_MAX_FIELDS = 10


class SignInPages:
    def __init__(
        self,
        sessions: Sessions,
        codes: Codes,
        authenticator: Authenticator,
        approvers: Approvers,
        access: Access,
    ) -> None:
        self._sessions = sessions
        self._codes = codes
        self._authenticator = authenticator
        self._approvers = approvers
        self._access = access

    def open_routes(self) -> list[Route]:
        """Return the pages for those who are not signed in."""
        return [
            Route(SIGN_IN, self.show_sign_in),
            Route(SIGN_IN, self.sign_in, methods=["POST"]),
            Route(STYLE, show_style),
            Route("/console/sign-out", self.sign_out, methods=["POST"]),
            Route("/console/codes", self.make_code, methods=["POST"]),
        ]

    def routes(self) -> list[Route]:
        return [
            Route("/console/sessions", self.list_sessions),
            Route("/console/sessions/{id}", self.revoke_session, methods=["DELETE"]),
        ]

    # Signing in

    async def make_code(self, request: Request) -> Response:
        """Respond with a one-time code, for `toolrelay console`."""
        exchange = exchange_of(request)
        try:
            identity = self._authenticator.identify(exchange.headers)
            self._approvers.require_operator(identity, request.headers.get("authorization"))
            if not self._authenticator.is_local:
                message = f"Other machines reach this gateway, so it has no one-time codes: sign in with a key at {SIGN_IN}."
                raise PolicyError(message, code="key_required")
        except ToolrelayError:
            await self._access.count_refused(exchange)
            raise
        return _json({"code": self._codes.make(), "expires_in": int(CODE_SECONDS)})

    async def show_sign_in(self, request: Request) -> Response:
        """Exchange a one-time code for a session, or show the form."""
        self._authenticator.check_local(exchange_of(request).headers)
        code = request.query_params.get("code")
        if code is None:
            return self._form()
        if request.method == "HEAD" or "sec-purpose" in request.headers:  # a preview, which must not use up the code
            return Response(status_code=204, headers=SECURITY_HEADERS)
        if not self._authenticator.is_local or not self._codes.redeem(code):
            return await self._refuse(request, "This link was used already, or is older than ten minutes.")
        return await self._begin(request, SIGNED_IN_OPERATOR, "")

    async def sign_in(self, request: Request) -> Response:
        """Exchange a key for a session."""
        exchange = exchange_of(request)
        self._authenticator.check_local(exchange.headers)
        names_sender = b"origin" in exchange.headers or b"sec-fetch-site" in exchange.headers
        if names_sender and not is_same_origin(exchange):  # a foreign page must not sign people in as somebody else
            raise foreign_request()
        digest = sha256(await _read_key(request)).digest()
        identity = self._authenticator.find_key(digest)
        if identity is None:
            return await self._refuse(request, "This key is not known to the gateway.")
        return await self._begin(request, identity, credential_of(digest))

    async def _begin(self, request: Request, identity: Identity, credential: str) -> Response:
        """Begin a session with a new token, end the one that the browser had, and show the console."""
        earlier = await self._sessions.find(exchange_of(request).headers)
        token, row = await self._sessions.begin(identity, credential, request.headers.get("user-agent", ""))
        if earlier is not None:
            await self._sessions.revoke(earlier[1].id)
        log.info("signed_in", key=self._authenticator.keys.name_of(row.owner), session=row.id)
        # A browser that follows a link of another site sends no strict cookie along the redirects: there a page of ours goes on.
        response = _continue_page() if _comes_from_elsewhere(request) else RedirectResponse("/", 303, SECURITY_HEADERS)
        _set_cookie(response, request, token, SESSION_SECONDS)
        return response

    async def _refuse(self, request: Request, problem: str) -> Response:
        exchange = exchange_of(request)
        log.info("sign_in_failed", turn=exchange.request_id.removeprefix("req_"))
        try:
            await self._access.count_refused(exchange)
        except ToolrelayError as error:
            response = self._form(error.message, error.status)
            response.headers.update(error_headers(error))
            return response
        return self._form(problem, 401)

    def _form(self, problem: str = "", status: int = 200) -> Response:
        hint = "<p>{}un <code>toolrelay console</code> on the machine of the gateway, and open the address that it prints.</p>"
        alert = f'<p role="alert">{escape(problem)}</p>\n' if problem else ""
        if self._authenticator.has_keys:
            body = f"""<form method="post" action="{SIGN_IN}">
<label for="key">Key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button>
</form>
{hint.format("Or, if you run the gateway: r") if self._authenticator.is_local else ""}"""
        else:
            body = hint.format("R")
        return _page("Sign in", alert + body, status)

    # Sessions

    async def sign_out(self, request: Request) -> Response:
        exchange = exchange_of(request)
        self._authenticator.check_local(exchange.headers)
        if not is_same_origin(exchange):
            raise foreign_request()
        found = await self._sessions.find(exchange.headers)
        if found is not None:
            await self._sessions.revoke(found[1].id)
            log.info("signed_out", key=self._authenticator.keys.name_of(found[1].owner), session=found[1].id)
        response = RedirectResponse(SIGN_IN, 303, SECURITY_HEADERS)
        _set_cookie(response, request, "", 0)
        return response

    async def list_sessions(self, request: Request) -> Response:
        current = identify(request).session_id
        rows = await self._sessions.list(self._visible_owner(request))
        return _json({"sessions": [self._describe(row, current) for row in rows]})

    async def revoke_session(self, request: Request) -> Response:
        session = request.path_params["id"]
        if not await self._sessions.revoke(session, self._visible_owner(request)):
            raise ClientError("There is no such session.", status=404, code="session_not_found")
        log.info("session_revoked", session=session, by=identify(request).name or LOCAL)
        return _json({"id": session, "deleted": True})

    def _describe(self, row: SessionRow, current: str | None) -> JsonObject:
        return {
            "id": row.id,
            "key": self._authenticator.keys.name_of(row.owner),
            "may_approve": row.may_approve,
            "user_agent": row.user_agent,
            "created_at": row.created_at,
            "last_used_at": row.last_used_at,
            "expires_at": row.expires_at,
            "current": row.id == current,
        }

    def _visible_owner(self, request: Request) -> str | None:
        """Return whose sessions the sender may see. None: those of all, because they run the gateway."""
        identity = identify(request)
        self._approvers.require_person(identity, request.headers.get("authorization"), subject="Lists of sessions")
        return None if identity.is_operator else identity.key


def redirect_code(request: Request) -> Response | None:
    """Return the way to sign in for a request with a one-time code, as `toolrelay serve` prints it; for others None."""
    code = request.query_params.get("code")
    return None if code is None else RedirectResponse(f"{SIGN_IN}?{urlencode({'code': code})}", 303, SECURITY_HEADERS)


async def show_style(_: Request) -> Response:
    return Response(_STYLE, headers={"content-type": "text/css; charset=utf-8", "x-content-type-options": "nosniff"})


async def _read_key(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise ClientError(f"Send the key as a form: {_FORM}.", status=415, code="invalid_content_type")
    try:
        fields = parse_qs((await request.body()).decode(), max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise ClientError("The form cannot be read.", code="invalid_form") from None
    return fields.get("key", [""])[0].strip().encode("utf-8", "replace")


def _comes_from_elsewhere(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site")
    return "referer" in request.headers if site is None else site not in ("none", "same-origin")


def _set_cookie(response: Response, request: Request, token: str, seconds: int) -> None:
    is_tls = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").lower())
    response.set_cookie(COOKIE, token, max_age=seconds, path="/", secure=is_tls, httponly=True, samesite="strict")


def _json(value: JsonObject) -> Response:
    return Response(encode(value), headers={"content-type": "application/json", "cache-control": "no-store"})


def _continue_page() -> Response:
    return _page(
        "Signed in", '<p>You are signed in. <a href="/">Go on</a></p>', head='<meta http-equiv="refresh" content="0; url=/">\n'
    )


def _page(title: str, body: str, status: int = 200, *, head: str = "") -> Response:
    return HTMLResponse(
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
{head}<title>{title} · Toolrelay</title>
<link rel="stylesheet" href="{STYLE}">
<main>
<h1>Toolrelay</h1>
{body}
</main>
</html>
""",
        status,
        SECURITY_HEADERS,
    )


_STYLE = b""":root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 24rem; margin: 15vh auto 0; padding: 0 1.25rem; }
form { display: grid; gap: .5rem; }
input, button { font: inherit; padding: .5rem .75rem; border: 1px solid #8886; border-radius: .5rem; }
[role=alert] { border-left: 3px solid #c33; padding-left: .75rem; }
"""
