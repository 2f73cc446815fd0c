"""Who may answer approvals."""

from __future__ import annotations

import hmac
from hashlib import sha256

import pytest

from toolrelay.errors import ClientError, PolicyError, ToolrelayError
from toolrelay.settings import KeySettings
from toolrelay.web.approver_auth import Approvers

TOKEN = "the-token-in-the-data-directory-of-the-gateway"
FILE = "/data/approver.token"
APPROVER, OTHER = "tr-may-approve", "tr-may-not"


def key(name: str, secret: str, *, approve: bool) -> KeySettings:
    return KeySettings(name=name, sha256=sha256(secret.encode()).hexdigest(), approve=approve)


KEYS = (key("phone", OTHER, approve=False), key("ada", APPROVER, approve=True), key("bob", "tr-clé", approve=True))
KEYED = Approvers(KEYS, lambda: TOKEN, token_file=FILE)
KEYLESS = Approvers((), lambda: TOKEN, token_file=FILE)


def refusal(approvers: Approvers, authorization: bytes | str | None) -> ToolrelayError:
    with pytest.raises(ToolrelayError) as caught:
        approvers.require(authorization)
    return caught.value


# With keys


@pytest.mark.parametrize(
    ("authorization", "name"),
    [
        (f"Bearer {APPROVER}", "ada"),
        (f"bearer   {APPROVER} ", "ada"),
        (f"BEARER {APPROVER}".encode(), "ada"),
        ("Bearer tr-clé".encode(), "bob"),
        ("Bearer tr-clé".encode().decode("latin-1"), "bob"),
    ],
)
def test_key_that_may_approve_is_found_by_its_name(authorization: bytes | str, name: str) -> None:
    assert KEYED.find(authorization) == KEYED.require(authorization) == name


@pytest.mark.parametrize("authorization", [f"Bearer {OTHER}", f"Bearer {OTHER}".encode()])
def test_key_that_may_not_approve_is_a_403_that_says_what_to_do(authorization: bytes | str) -> None:
    assert KEYED.find(authorization) is None
    error = refusal(KEYED, authorization)
    assert isinstance(error, PolicyError)
    assert (error.status, error.code) == (403, "not_an_approver")
    assert "'phone'" in error.message
    assert "Use a key with approve = true" in error.message


@pytest.mark.parametrize("authorization", [None, "", b"", "Bearer", "Bearer ", f"Basic {APPROVER}", APPROVER])
def test_missing_key_is_a_401_that_says_what_to_do(authorization: bytes | str | None) -> None:
    assert KEYED.find(authorization) is None
    error = refusal(KEYED, authorization)
    assert isinstance(error, ClientError)
    assert (error.status, error.code) == (401, "missing_api_key")
    assert "a key with approve = true" in error.message
    assert FILE not in error.message


@pytest.mark.parametrize("presented", ["wrong", TOKEN, APPROVER.upper(), sha256(APPROVER.encode()).hexdigest(), f"{APPROVER}, x"])
def test_unknown_key_and_the_token_file_do_not_count_with_keys(presented: str) -> None:
    assert KEYED.find(f"Bearer {presented}") is None
    error = refusal(KEYED, f"Bearer {presented}")
    assert (error.status, error.code) == (401, "invalid_api_key")
    assert presented not in error.message


def test_keys_none_of_which_may_approve_leave_no_approver() -> None:
    approvers = Approvers(KEYS[:1], lambda: TOKEN)
    assert [approvers.find(f"Bearer {each}") for each in (TOKEN, OTHER, APPROVER)] == [None] * 3


# Without keys


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", f"bearer {TOKEN} ".encode()])
def test_without_keys_the_token_is_local(authorization: bytes | str) -> None:
    assert KEYLESS.find(authorization) == KEYLESS.require(authorization) == "local"


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
    assert KEYLESS.find(authorization) is None
    error = refusal(KEYLESS, authorization)
    assert (error.status, error.code) == (401, code)
    assert FILE in error.message
    assert TOKEN not in error.message


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", b"Bearer \xe2\x80\x8b"])
def test_empty_token_admits_nobody(authorization: bytes | str | None) -> None:
    assert Approvers((), str).find(authorization) is None


# Secrecy


@pytest.mark.parametrize("presented", [APPROVER, OTHER, "wrong"])
def test_every_key_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch, presented: str) -> None:
    """Comparison in constant time: compare_digest of hashes, once for every key."""
    compared: list[int] = []

    def compare(known: bytes, given: bytes) -> bool:
        compared.append(len(given))
        return known == given

    monkeypatch.setattr(hmac, "compare_digest", compare)
    KEYED.find(f"Bearer {presented}")
    assert compared == [32] * 3


def test_token_is_not_in_the_representation() -> None:
    assert TOKEN not in repr(KEYLESS) + repr(vars(KEYLESS))
