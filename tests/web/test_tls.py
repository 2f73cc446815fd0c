"""A gateway that serves https itself."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.certificates import write_certificate
from tests.gateway import Gateway, running
from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment, ServerSettings, Settings
from toolrelay.web.tls import load_server_context

PORT = "port = 0\n"


def trusting(certificate: Path) -> httpx.Client:
    return httpx.Client(verify=ssl.create_default_context(cafile=certificate), timeout=60)


def command(gateway: Gateway, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as its user does, with the gateway's configuration and port."""
    folder = gateway.data_dir.parent
    config = folder / "with-port.toml"
    config.write_text((folder / "toolrelay.toml").read_text().replace(PORT, f"port = {gateway.port}\n"))
    run = [sys.executable, "-m", "toolrelay", *arguments, "--config", str(config), "--data-dir", str(gateway.data_dir)]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)


def test_gateway_serves_https_to_clients_browsers_and_its_own_commands(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    config = f'[server]\n{PORT}tls_cert = "cert.pem"\ntls_key = "key.pem"\n[models.demo]\nprovider = "demo"\n'
    with running(config, folder=tmp_path) as gateway, trusting(certificate) as browser:
        assert gateway.url.startswith("https://127.0.0.1:")
        body = {"model": "demo", "messages": [{"role": "user", "content": "count to 200"}], "stream": True}
        streamed = browser.post(f"{gateway.v1}/chat/completions", json=body).text
        assert all(f'"content":"{number} "' in streamed for number in range(1, 200))
        assert streamed.endswith("data: [DONE]\n\n")
        assert f"{gateway.url}/v1" in browser.get(f"{gateway.v1}/").text

        listed = command(gateway, "approvals", "list")
        assert (listed.returncode, listed.stderr) == (0, ""), listed
        opened = command(gateway, "console")
        assert opened.returncode == 0, opened.stderr
        signed_in = browser.get(opened.stdout.strip().replace("/?code=", "/console/sign-in?code="))
        assert "secure" in signed_in.headers["set-cookie"].lower()


def test_plain_http_on_the_port_of_https_is_closed_and_others_are_served(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path / "both.pem")
    with running('[server]\ntls_cert = "both.pem"\n', folder=tmp_path) as gateway, trusting(certificate) as browser:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert b"200 OK" not in plain.recv(1000)
        assert browser.get(f"{gateway.url}/healthz").status_code == 200


def load(folder: Path, **server: Any) -> ssl.SSLContext | None:
    environment = Environment(data_dir=folder, config_dir=folder)
    return load_server_context(Settings(server=ServerSettings(**server), environment=environment, config_file="toolrelay.toml"))


def test_without_a_certificate_there_is_no_context(tmp_path: Path) -> None:
    assert load(tmp_path) is None


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ({"tls_key": "key.pem"}, "server.tls_cert: missing; tls_key needs"),
        ({"tls_cert": "none.pem"}, "server.tls_cert: there is no file"),
        ({"tls_cert": "cert.pem", "tls_key": "none.pem"}, "server.tls_key: there is no file"),
        ({"tls_cert": "cert.pem"}, "server.tls_cert: the certificate and its key cannot be used"),
        ({"tls_cert": "cert.pem", "tls_key": "other.pem"}, "server.tls_cert: the certificate and its key cannot be used"),
        ({"tls_cert": "cert.pem", "tls_key": "text.pem"}, "server.tls_cert: the certificate and its key cannot be used"),
        ({"tls_cert": "locked.pem"}, "cannot be used: the key is encrypted"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, server: dict[str, str], problem: str) -> None:
    write_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    write_certificate(tmp_path / "other.pem")
    write_certificate(tmp_path / "locked.pem", password=b"secret")
    (tmp_path / "text.pem").write_text("no key")
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, **server)
    assert refused.value.message.startswith("toolrelay.toml: server.")
    assert problem in refused.value.message
