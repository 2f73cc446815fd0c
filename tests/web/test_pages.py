"""The pages beside the API endpoints."""

from __future__ import annotations

import asyncio
import json
import shlex
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from openai.types import Model as OpenAIModel

from tests.gateway import Gateway, running
from tests.raw_client import RawClient
from tests.scripted import ask, scripted, serving
from toolrelay import __version__
from toolrelay.backends.demo import DemoBackend


def test_models_are_listed_in_openai_format(gateway: Gateway) -> None:
    body = gateway.get("/v1/models").json()
    assert body["object"] == "list"
    models = [OpenAIModel.model_validate(model, strict=True) for model in body["data"]]
    assert {model.id: model.owned_by for model in models} == {"fast": "toolrelay:compatible", "demo": "toolrelay:demo"}


def test_one_model_equals_its_entry_in_the_list(gateway: Gateway) -> None:
    [listed] = [model for model in gateway.get("/v1/models").json()["data"] if model["id"] == "fast"]
    assert gateway.get("/v1/models/fast").json() == listed


def test_missing_model_is_a_404(gateway: Gateway) -> None:
    response = gateway.get("/v1/models/nowhere")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


def test_model_name_with_special_characters_is_found() -> None:
    with running('[models."org/model:7b <é>"]\nprovider = "demo"\n') as gateway:
        [name, _demo] = [model["id"] for model in gateway.get("/v1/models").json()["data"]]
        for path in ("/v1/models/org/model:7b%20%3C%C3%A9%3E", "/v1/models/org%2Fmodel%3A7b%20%3C%C3%A9%3E/"):
            assert gateway.get(path).json()["id"] == name == "org/model:7b <é>"
        assert "<é>" not in gateway.get("/v1/").text, "names are escaped"


@pytest.mark.parametrize(
    "target",
    [
        "GET /v1/responses/resp_1",
        "DELETE /v1/responses/resp_1",
        "POST /v1/responses/resp_1/cancel",
        "GET /responses/resp_1/input_items",
        "GET /responses/msg_resp_1",
    ],
)
def test_unknown_response_is_a_404(gateway: Gateway, target: str) -> None:
    with RawClient(gateway.port) as client:
        reply = client.send(f"{target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()).reply()
    assert reply.status == 404
    assert reply.json()["error"]["code"] == "response_not_found"
    assert "resp_1" in reply.json()["error"]["message"]


def test_health_has_the_version(gateway: Gateway) -> None:
    assert gateway.get("/healthz").json() == {"status": "ok", "version": __version__}


def test_readiness_is_200_while_running(gateway: Gateway) -> None:
    assert gateway.get("/readyz").json() == {"status": "ready"}


def test_readiness_is_503_while_draining() -> None:
    async def scenario() -> tuple[int, bytes]:
        app = scripted(DemoBackend())
        app.ready = False
        async with serving(app) as port:
            return await ask(port, "/readyz", method="GET")

    assert asyncio.run(scenario()) == (503, b'{"status":"draining"}')


class _Page(HTMLParser):
    """Links and text of an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if name in ("href", "src") and value]

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"


def test_welcome_page_links_work(gateway: Gateway) -> None:
    page = _Page(gateway.get("/v1/").text)
    assert f"http://127.0.0.1:{gateway.port}/v1" in page.text
    assert {"fast", "demo"} <= set(page.text.split())
    assert page.links
    for link in page.links:
        assert gateway.get(link).status_code == 200


def test_welcome_page_escapes_the_host(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        reply = client.get("/v1/?<script>", 'host: localhost:80"><script>alert(1)</script>').reply()
    assert b"<script>" not in reply.body


def example(gateway: Gateway, **headers: str) -> tuple[list[str], str]:
    """Return the words of the example command, as a shell splits them, and the text of the page."""
    text = _Page(gateway.get("/v1/", **headers).text).text
    command = text[text.index("curl ") :].partition("\n\n")[0].replace("\\\n", " ")
    return shlex.split(command), text


def test_welcome_page_example_quotes_the_model_name() -> None:
    name = 'it\'s "$(touch x)" `y` \\ <é>'
    with running(f'[models.{json.dumps(name)}]\nprovider = "demo"\n') as gateway:
        words, _ = example(gateway)
    assert words[0] == "curl"
    assert f"http://127.0.0.1:{gateway.port}/v1/chat/completions" in words
    assert json.loads(words[words.index("-d") + 1])["model"] == name
    assert not [word for word in words if word.lower().startswith("authorization")]


def test_welcome_page_shows_only_the_models_of_the_key() -> None:
    keys = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\nmodels = ["{models}"]\n'
        for name, models in (("some", "mine-*"), ("none", "nothing"))
    )
    models = "".join(f'[models.{name}]\nprovider = "demo"\n' for name in ("hidden", "mine-1"))
    with running(keys + models) as gateway:
        words, text = example(gateway, authorization="Bearer some")
        without_models = gateway.get("/v1/", authorization="Bearer none")
    assert "hidden" not in text
    assert json.loads(words[words.index("-d") + 1])["model"] == "mine-1"
    [authorization] = [word for word in words if word.lower().startswith("authorization: bearer ")]
    assert "some" not in authorization, "the key is not shown"
    assert without_models.status_code == 200
    assert "hidden" not in without_models.text
    assert "curl" not in without_models.text, "without models there is no example"
