"""TLS of the gateway itself: the server's context, and that of commands which talk to a gateway on this machine."""

from __future__ import annotations

import ssl
from pathlib import Path

from toolrelay.errors import ConfigurationError
from toolrelay.settings import Settings, file_prefix


def load_server_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the context of `server.tls_cert` and `tls_key`, or None if there are none. Raise what the operator can correct."""
    server = settings.server
    if not server.tls_cert:
        if server.tls_key:
            raise _problem(settings, "tls_cert", "missing; tls_key needs the certificate of its key")
        return None
    certificate = _resolve(settings, "tls_cert", server.tls_cert)
    key = _resolve(settings, "tls_key", server.tls_key) if server.tls_key else None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, _EncryptedKeyError) as error:
        reason = "the key is encrypted" if isinstance(error, _EncryptedKeyError) else error.reason or "not in PEM format"
        raise _problem(settings, "tls_cert", f"the certificate and its key cannot be used: {reason}") from None
    except OSError as error:
        raise _problem(settings, "tls_cert", f"cannot be read: {error.strerror}") from None
    return context


def make_own_client_context(settings: Settings) -> ssl.SSLContext | None:
    """Return a context that trusts the gateway's own certificate, under any name: commands reach it by its address."""
    if not settings.server.tls_cert:
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is trusted, whoever signed it
    context.load_verify_locations(_resolve(settings, "tls_cert", settings.server.tls_cert))
    return context


class _EncryptedKeyError(Exception):
    pass


def _no_password() -> str:
    """OpenSSL would ask for a password on the terminal."""
    raise _EncryptedKeyError


def _resolve(settings: Settings, key: str, path: str) -> Path:
    """Return the file. A relative path starts at the directory of the configuration file."""
    file = (settings.environment.config_dir or Path()) / Path(path).expanduser()
    if not file.is_file():
        raise _problem(settings, key, f"there is no file {file}")
    return file


def _problem(settings: Settings, key: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{file_prefix(settings)}server.{key}: {problem}")
