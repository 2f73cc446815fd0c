"""Authentication of approvers: a key with `approve = true`, or its session in a browser.

Where no keys are configured: the reader of the approver's token, or a session.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

from toolrelay.errors import ClientError, PolicyError
from toolrelay.settings import LOCAL, KeySettings
from toolrelay.web.auth import Identity, bearer_token

_SOMEWHERE = "approver.token in the data directory"


class _Credential(NamedTuple):
    digest: bytes
    name: str
    may_approve: bool


class Approvers:
    """Finds the approver behind an Authorization header. Tokens are kept and compared as hashes, in constant time.

    `token_file` is named in errors.
    """

    def __init__(self, keys: Sequence[KeySettings], token: Callable[[], str], *, token_file: str = _SOMEWHERE) -> None:
        """`token` returns the approver's token. It is not called if there are keys."""
        self._has_keys = bool(keys)
        self._token = token
        self._token_file = token_file
        self._credentials = [_Credential(bytes.fromhex(key.sha256), key.name, key.approve) for key in keys]

    def find(self, authorization: bytes | str | None) -> str | None:
        """Return the approver's name: that of a key, or `local` for the token. None: whoever sent this may not approve."""
        found = self._match(_presented(authorization))
        return found.name if found is not None and found.may_approve else None

    def require(self, authorization: bytes | str | None) -> str:
        """Return the approver's name, or raise a 401 or 403 that says what to send."""
        presented = _presented(authorization)
        found = self._match(presented)
        if found is None:
            raise self._unauthenticated(is_missing=presented is None)
        if not found.may_approve:
            raise _not_an_approver(found.name)
        return found.name

    def require_key(self, name: str) -> str:
        """Return the name of a key that was authenticated, or raise a 403 if it may not approve."""
        if not any(each.name == name and each.may_approve for each in self._credentials):
            raise _not_an_approver(name)
        return name

    def require_identity(self, identity: Identity, authorization: bytes | str | None) -> str:
        """Return the approver's name for a request that was authenticated, or raise a 401 or 403."""
        if identity.session_id is not None:
            if not identity.may_approve:
                raise _not_an_approver(identity.name or LOCAL)
            return identity.name or LOCAL
        return self.require(authorization) if identity.name is None else self.require_key(identity.name)

    def require_operator(self, identity: Identity, authorization: bytes | str | None) -> str:
        """Return the name of who may change settings and keys, or raise a 401 or 403.

        That is who runs the gateway: someone who has its data directory, or signed in with a one-time code.
        """
        if identity.name is not None:
            raise PolicyError(f"The key {identity.name!r} may not change settings.", code="not_an_operator")
        return self.require_identity(identity, authorization)

    def _match(self, presented: bytes | None) -> _Credential | None:
        if presented is None:
            return None
        digest = sha256(presented).digest()
        match: _Credential | None = None
        credentials = self._credentials
        if not self._has_keys and (token := self._token()):
            credentials = [_Credential(sha256(token.encode()).digest(), LOCAL, may_approve=True)]
        for credential in credentials:  # every one is compared, against timing attacks
            if hmac.compare_digest(credential.digest, digest):
                match = credential
        return match

    def _unauthenticated(self, *, is_missing: bool) -> ClientError:
        if self._has_keys:
            problem = "Approvals need a key." if is_missing else "The API key is not known to this gateway."
            advice = "Send a key with approve = true as 'Authorization: Bearer KEY'."
            code = "missing_api_key" if is_missing else "invalid_api_key"
        else:
            problem = "Approvals need the approver's token." if is_missing else "This is not the approver's token."
            advice = f"Send the token of {self._token_file} as 'Authorization: Bearer TOKEN'."
            code = "missing_approver_token" if is_missing else "invalid_approver_token"
        return ClientError(f"{problem} {advice}", status=401, code=code)


def _not_an_approver(name: str) -> PolicyError:
    return PolicyError(f"The key {name!r} may not answer approvals. Use a key with approve = true.", code="not_an_approver")


def _presented(authorization: bytes | str | None) -> bytes | None:
    """Return the bearer token as it was received. Headers that are text were decoded as Latin-1."""
    if authorization is None:
        return None
    text = authorization if isinstance(authorization, str) else authorization.decode("latin-1")
    token = bearer_token(text)
    return None if token is None else token.encode("latin-1", "replace")
