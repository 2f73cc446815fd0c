"""All that can be requested. Nothing here runs a tool on request: tools run only in turns."""

from __future__ import annotations

from pathlib import Path

from starlette.routing import Route

from toolrelay.app import App
from toolrelay.config import load

TURNS = {"/chat/completions", "/responses", "/messages"}  # a request with messages: the model makes the calls
RELAYED = {"/embeddings", "/completions"}  # passed on to the model's server; no tools
COUNTED = {"/messages/count_tokens", "/responses/input_tokens"}  # counted, not answered
COMPACTED = {"/responses/compact"}  # shortened by the model's server; no tools

READING = {
    "/",
    "/api/keys",
    "/api/usage",
    "/api/usage.csv",
    "/api/traces",
    "/api/traces/{id}",
    "/api/traces/{id}/entries/{key}",
    "/api/traces/{id}/events",
    "/api/traces/{id}/report",
    "/api/settings",
    "/api/conversations",
    "/api/conversations/{id}",
    "/api/conversations/{id}/answers",
    "/approvals",
    "/approvals/events",
    "/approvals/rules",
    "/approvals/{id}",
    "/approvals/{id}/files/{index}",
    "/approvals-inbox",
    "/console/sessions",
    "/console/static/{path:path}",
    "/console/vendor/{path:path}",
    "/console/sign-in",
    "/console/sign-in.css",
    "/conversations/{id}",
    "/conversations/{id}/items",
    "/conversations/{id}/items/{item}",
    "/healthz",
    "/metrics",
    "/models",
    "/models/{name:path}",
    "/readyz",
    "/responses/{id}",
    "/responses/{id}/input_items",
    "/settings",
    "/traces",
    "/usage",
}

# What else changes something. A verdict lets a turn go on that has asked; it cannot name another tool.
CHANGING = {
    ("POST", "/api/keys"),
    ("DELETE", "/api/keys/{id}"),
    ("POST", "/api/keys/{id}/rotate"),
    ("PATCH", "/api/settings"),
    ("POST", "/api/settings/check-folder"),
    ("DELETE", "/approvals/rules/{id}"),
    ("POST", "/approvals/{id}"),
    ("POST", "/console/codes"),
    ("DELETE", "/console/sessions/{id}"),
    ("POST", "/console/sign-in"),
    ("POST", "/console/sign-out"),
    ("POST", "/conversations"),
    ("POST", "/conversations/{id}"),
    ("DELETE", "/conversations/{id}"),
    ("POST", "/conversations/{id}/items"),
    ("DELETE", "/conversations/{id}/items/{item}"),
    ("DELETE", "/responses/{id}"),
    ("POST", "/responses/{id}/cancel"),
}


def test_no_route_takes_a_tool_call_outside_a_turn(tmp_path: Path) -> None:
    """Whoever adds a route adds it here, after making sure that it runs no tool."""
    app = App(load(None, {}, data_dir=str(tmp_path)))
    assert set(app.router.paths) == TURNS | RELAYED | COUNTED | COMPACTED
    assert all(isinstance(route, Route) for route in app.site.routes), "a mounted application has routes of its own"
    routes = {
        (method, route.path)
        for route in app.site.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert routes == CHANGING | {("GET", path) for path in READING}
