"""Pages and files of the console over HTTP: headers, compression, size, vendored libraries."""

from __future__ import annotations

import gzip
import posixpath
import re
from hashlib import sha256

import httpx
import pytest

from tests.gateway import Gateway, running
from tests.raw_client import RawClient
from tests.web.console.vendor import FOLDER, read_list
from toolrelay.web.console.assets import load_assets
from toolrelay.web.console.pages import PAGES

MAX_PAGE_BYTES = 150_000  # compressed
KEY = f'[[keys]]\nname = "a"\nsha256 = "{sha256(b"secret").hexdigest()}"\n[models.demo]\nprovider = "demo"\n'


@pytest.mark.parametrize("path", PAGES)
def test_page_forbids_inline_scripts_and_frames(gateway: Gateway, path: str) -> None:
    page = gateway.get(path)
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "same-origin"
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on[a-z]+=", page.text)


def test_page_needs_no_key_and_has_no_data() -> None:
    with running(KEY) as gateway:
        assert gateway.get("/").status_code == 200
        assert "demo" not in re.sub(r"the demo model", "", gateway.get("/").text)
        assert gateway.get("/v1/models").status_code == 401


def test_page_is_not_below_v1(gateway: Gateway) -> None:
    assert "The gateway is running" in gateway.get("/v1/").text
    assert gateway.get("/v1/console/static/chat.js").status_code == 404


def test_file_is_compressed_and_revalidated(gateway: Gateway) -> None:
    url = f"{gateway.url}/console/static/chat.js"
    response = httpx.get(url, headers={"accept-encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["content-type"] == "text/javascript; charset=utf-8"
    assert httpx.get(url, headers={"accept-encoding": "identity"}).text == response.text
    again = httpx.get(url, headers={"if-none-match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["static/nothing.js", "vendor/vendor.json", "pages.py", "static/../pages.py", "templates/chat.html"]
)
def test_other_files_are_not_served(gateway: Gateway, path: str) -> None:
    with RawClient(gateway.port) as client:
        assert client.get(f"/console/{path}", "host: localhost").reply().status == 404


@pytest.mark.parametrize("path", PAGES)
def test_whole_page_is_under_the_limit(gateway: Gateway, path: str) -> None:
    """All that the page, its scripts and their imports load."""
    assets = load_assets()
    page = gateway.get(path)
    found: set[str] = set()
    waiting = re.findall(r'(?:src|href)="/console/([^"]+)"', page.text)
    while waiting:
        name = waiting.pop()
        if name not in found and name in assets:
            found.add(name)
            imports = re.findall(r'^(?:import|export)\b[^"]*"(\.[^"]+)"', assets[name].body.decode(), re.MULTILINE)
            waiting += [posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in imports]
    assert {"static/console.css", "static/api.js", "static/dom.js"} <= found
    assert sum(len(assets[name].compressed) for name in found) + len(gzip.compress(page.content)) < MAX_PAGE_BYTES


def test_vendored_files_have_their_hashes_and_licences() -> None:
    listed = {FOLDER / name: entry["sha256"] for package in read_list() for name, entry in package["files"].items()}
    found = {path for path in FOLDER.rglob("*") if path.is_file() and path.name != "vendor.json"}
    assert found == set(listed)
    assert [path for path, digest in listed.items() if sha256(path.read_bytes()).hexdigest() != digest] == []
    for package in read_list():
        assert any(name.endswith("LICENSE.txt") for name in package["files"])
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
