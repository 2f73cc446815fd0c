"""Permissions of approvers, of the operator, and of people who are signed in.

Approvers are keys with `approve = true`, the operator who signed in with a one-time code and, where there are no keys, whoever
sends the approver's token.
"""

from __future__ import annotations

from toolrelay.errors import ClientError, PolicyError
from toolrelay.settings import LOCAL
from toolrelay.web.auth import Identity, bearer_token

_SOMEWHERE = "approver.token in the data directory"


class Approvers:
    """Refuses those who may not. `token_file` is named in errors."""

    def __init__(self, *, token_file: str = _SOMEWHERE) -> None:
        self._token_file = token_file

    def require_identity(self, identity: Identity, authorization: str | None) -> str:
        """Return the approver's name for a request that was authenticated, or raise a 401 or 403."""
        if identity.may_approve:
            return identity.name or LOCAL
        if identity.key is None and not identity.is_operator:
            raise self._unauthenticated("Approvals need", authorization)
        who = "The approver's token" if identity.key is None else f"The key {identity.name!r}"
        where = " where there are keys" if identity.key is None else ""
        raise PolicyError(f"{who} may not answer approvals{where}. Use a key with approve = true.", code="not_an_approver")

    def require_person(self, identity: Identity, authorization: str | None, *, subject: str) -> None:
        """Raise a 401 for a client of a gateway without keys, which any program on the machine can be.

        `subject` is what they may not see, in the plural.
        """
        if identity.key is None and not identity.is_operator:
            raise self._unauthenticated(f"{subject} need a session, or", authorization)

    def require_operator(self, identity: Identity, authorization: str | None) -> str:
        """Return the name of who may change settings and keys, or raise a 401 or 403.

        A key never may: it could give itself more rights.
        """
        if identity.is_operator:
            return LOCAL
        if identity.key is None:
            raise self._unauthenticated("Settings need", authorization)
        raise PolicyError(
            f"The key {identity.name!r} may not see or change settings and keys: that is for whoever runs the gateway. Sign in "
            "with the address that `toolrelay console` prints there, or use `toolrelay keys`.",
            code="not_an_operator",
        )

    def _unauthenticated(self, need: str, authorization: str | None) -> ClientError:
        """Return the error for a client of a gateway without keys."""
        is_missing = authorization is None or bearer_token(authorization) is None
        problem = f"{need} the approver's token." if is_missing else "This is not the approver's token."
        code = "missing_approver_token" if is_missing else "invalid_approver_token"
        advice = f"Send the token of {self._token_file} as 'Authorization: Bearer TOKEN'."
        return ClientError(f"{problem} {advice}", status=401, code=code)
