"""Errors before an endpoint gets a request have the form of the endpoint's API."""

from __future__ import annotations

import pytest

from tests.gateway import Gateway

PATHS = pytest.mark.parametrize("path", ["/v1/messages", "/messages", "/v1/messages/count_tokens"])


@PATHS
def test_wrong_method_is_refused_in_anthropics_form(gateway: Gateway, path: str) -> None:
    response = gateway.get(path)
    assert response.status_code == 405
    assert response.json()["type"] == "error"
    assert response.json()["error"]["details"] == {"error_code": "method_not_allowed"}


@PATHS
def test_foreign_page_is_refused_in_anthropics_form(gateway: Gateway, path: str) -> None:
    response = gateway.post(path, {}, **{"sec-fetch-site": "cross-site"})
    assert response.status_code == 403
    assert response.json()["error"]["type"] == "permission_error"
    assert response.json()["error"]["details"] == {"error_code": "cross_site"}


@PATHS
def test_bad_body_is_refused_in_anthropics_form_with_its_request_id(gateway: Gateway, path: str) -> None:
    response = gateway.post(path, [])
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.headers["request-id"] == response.headers["x-request-id"]


def test_endpoints_of_openais_api_keep_their_form(gateway: Gateway) -> None:
    response = gateway.get("/v1/chat/completions")
    assert response.status_code == 405
    assert set(response.json()) == {"error"}
    assert "request-id" not in response.headers
