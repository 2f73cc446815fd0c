"""Who may answer approvals, and who is the operator."""

from __future__ import annotations

import contextlib
import hmac
from hashlib import sha256

import pytest

from toolrelay.errors import ClientError, PolicyError, ToolrelayError
from toolrelay.runtime.keys import KeyRing
from toolrelay.settings import KeySettings
from toolrelay.web.approver_auth import Approvers
from toolrelay.web.auth import Authenticator, credential_of

TOKEN = "the-token-in-the-data-directory-of-the-gateway"
FILE = "/data/approver.token"
APPROVER, OTHER = "tr-may-approve", "tr-may-not"


def key(name: str, secret: str, *, approve: bool) -> KeySettings:
    return KeySettings(name=name, sha256=sha256(secret.encode()).hexdigest(), approve=approve)


KEYS = (key("phone", OTHER, approve=False), key("ada", APPROVER, approve=True), key("bob", "tr-clé", approve=True))
KEYED = Authenticator(KeyRing(KEYS), token=lambda: TOKEN)
KEYLESS = Authenticator(KeyRing(), token=lambda: TOKEN)
APPROVERS = Approvers(token_file=FILE)


def headers_of(authorization: bytes | str | None) -> dict[bytes, bytes]:
    if authorization is None:
        return {}
    return {b"authorization": authorization.encode("utf-8") if isinstance(authorization, str) else authorization}


def approve(authenticator: Authenticator, authorization: bytes | str | None) -> str:
    """Return the name of the approver behind a header, or raise the error."""
    headers = headers_of(authorization)
    text = headers[b"authorization"].decode("latin-1") if headers else None
    return APPROVERS.require_identity(authenticator.identify(headers), text)


def refusal(authenticator: Authenticator, authorization: bytes | str | None) -> ToolrelayError:
    with pytest.raises(ToolrelayError) as caught:
        approve(authenticator, authorization)
    return caught.value


# With keys


@pytest.mark.parametrize(
    ("authorization", "name"),
    [
        (f"Bearer {APPROVER}", "ada"),
        (f"bearer   {APPROVER} ", "ada"),
        (f"BEARER {APPROVER}".encode(), "ada"),
        ("Bearer tr-clé".encode(), "bob"),
    ],
)
def test_key_that_may_approve_is_found_by_its_name(authorization: bytes | str, name: str) -> None:
    assert approve(KEYED, authorization) == name


@pytest.mark.parametrize("authorization", [f"Bearer {OTHER}", f"Bearer {OTHER}".encode()])
def test_key_that_may_not_approve_is_a_403_that_says_what_to_do(authorization: bytes | str) -> None:
    error = refusal(KEYED, authorization)
    assert isinstance(error, PolicyError)
    assert (error.status, error.code) == (403, "not_an_approver")
    assert "'phone'" in error.message
    assert "Use a key with approve = true" in error.message


@pytest.mark.parametrize("authorization", [None, "", b"", "Bearer", "Bearer ", f"Basic {APPROVER}", APPROVER])
def test_missing_key_is_a_401_that_says_what_to_do(authorization: bytes | str | None) -> None:
    error = refusal(KEYED, authorization)
    assert isinstance(error, ClientError)
    assert (error.status, error.code) == (401, "missing_api_key")
    assert FILE not in error.message


@pytest.mark.parametrize(
    "presented", ["wrong", TOKEN.upper(), APPROVER.upper(), sha256(APPROVER.encode()).hexdigest(), f"{APPROVER}, x"]
)
def test_unknown_key_is_a_401_with_keys(presented: str) -> None:
    error = refusal(KEYED, f"Bearer {presented}")
    assert (error.status, error.code) == (401, "invalid_api_key")
    assert presented not in error.message


def test_token_does_not_approve_with_keys() -> None:
    error = refusal(KEYED, f"Bearer {TOKEN}")
    assert (error.status, error.code) == (403, "not_an_approver")
    assert "Use a key with approve = true" in error.message


# Without keys


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", f"bearer {TOKEN} ".encode()])
def test_without_keys_the_token_is_local(authorization: bytes | str) -> None:
    assert approve(KEYLESS, authorization) == "local"


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (None, "missing_approver_token"),
        ("Bearer ", "missing_approver_token"),
        ("Bearer wrong", "invalid_approver_token"),
        (f"Bearer {TOKEN}x", "invalid_approver_token"),
        (f"Bearer {TOKEN[:-1]}", "invalid_approver_token"),
        (f"Bearer {TOKEN.upper()}", "invalid_approver_token"),
        (f"Bearer {sha256(TOKEN.encode()).hexdigest()}", "invalid_approver_token"),
        ("Bearer ключ", "invalid_approver_token"),
        (b"Bearer \xff", "invalid_approver_token"),
    ],
)
def test_without_keys_another_credential_is_a_401_that_names_the_file(authorization: bytes | str | None, code: str) -> None:
    error = refusal(KEYLESS, authorization)
    assert (error.status, error.code) == (401, code)
    assert FILE in error.message
    assert TOKEN not in error.message


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", b"Bearer \xe2\x80\x8b"])
def test_empty_token_admits_nobody(authorization: bytes | str | None) -> None:
    assert refusal(Authenticator(KeyRing()), authorization).status == 401


# The operator


def operate(authenticator: Authenticator, authorization: str | None) -> str:
    return APPROVERS.require_operator(authenticator.identify(headers_of(authorization)), authorization)


@pytest.mark.parametrize("authenticator", [KEYED, KEYLESS])
def test_token_is_the_operator_with_and_without_keys(authenticator: Authenticator) -> None:
    assert operate(authenticator, f"Bearer {TOKEN}") == "local"


@pytest.mark.parametrize(
    ("authenticator", "authorization", "status", "code"),
    [
        (KEYED, f"Bearer {APPROVER}", 403, "not_an_operator"),
        (KEYED, f"Bearer {OTHER}", 403, "not_an_operator"),
        (KEYED, "Bearer wrong", 401, "invalid_api_key"),
        (KEYED, None, 401, "missing_api_key"),
        (KEYLESS, None, 401, "missing_approver_token"),
        (KEYLESS, "Bearer wrong", 401, "invalid_approver_token"),
    ],
)
def test_others_are_no_operators(authenticator: Authenticator, authorization: str | None, status: int, code: str) -> None:
    with pytest.raises(ToolrelayError) as caught:
        operate(authenticator, authorization)
    assert (caught.value.status, caught.value.code) == (status, code)


@pytest.mark.parametrize("key_name", ["ada", "phone"])
def test_session_of_a_key_is_no_operator(key_name: str) -> None:
    found = next(each for each in KEYS if each.name == key_name)
    identity = KEYED.find_session_owner(key_name, credential_of(bytes.fromhex(found.sha256)))
    assert identity is not None
    assert not identity.is_operator


def test_gateway_that_others_reach_is_never_without_keys() -> None:
    exposed = Authenticator(KeyRing(is_local=False), token=lambda: TOKEN, is_local=False)
    with pytest.raises(ClientError, match="No API key was given"):
        exposed.identify({})
    assert exposed.find_session_owner("local", "") is None


# Secrecy


@pytest.mark.parametrize("presented", [APPROVER, OTHER, "wrong"])
def test_every_key_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch, presented: str) -> None:
    """Comparison in constant time: compare_digest of hashes, once for every key."""
    compared: list[int] = []

    def compare(known: bytes, given: bytes) -> bool:
        compared.append(len(given))
        return known == given

    monkeypatch.setattr(hmac, "compare_digest", compare)
    with contextlib.suppress(ToolrelayError):
        approve(KEYED, f"Bearer {presented}")
    assert compared[:3] == [32] * 3


def test_token_is_not_in_the_representation() -> None:
    assert TOKEN not in repr(KEYLESS) + repr(vars(KEYLESS))
