"""The commands of the Codex binary that sign the user in and out, in the Codex home that the gateway reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

from toolrelay.backends.codex.settings import CodexLocation, CodexSettings, location_for
from toolrelay.backends.codex.sign_in import SignIn
from toolrelay.errors import ConfigurationError
from toolrelay.settings import Environment

# In a file, also where the user's configuration or Codex itself prefers the system's keyring: the gateway reads only the file.
_FILE_STORE = ("-c", 'cli_auth_credentials_store="file"')


def account_location(environment: Environment) -> CodexLocation:
    """Return the location of the signed-in account, whatever models are configured."""
    return location_for(CodexSettings(name="codex", provider="codex"), environment)


def run_login(location: CodexLocation, *, device_auth: bool = False, with_api_key: bool = False) -> int:
    """Run `codex login` on this terminal and return its exit code. The key is read by Codex, from standard input."""
    options = [*(["--device-auth"] if device_auth else []), *(["--with-api-key"] if with_api_key else [])]
    return _run(location, "login", *options)


def run_logout(location: CodexLocation) -> int:
    """Run `codex logout`, and remove the gateway's copy of the sign-in as well."""
    code = _run(location, "logout")
    SignIn(location.auth_file, location.folder).sync()
    return code


def _run(location: CodexLocation, *arguments: str) -> int:
    """Run the binary in the user's own Codex home. It has the user's environment: it may open a browser."""
    home = Path(location.auth_file).parent
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [location.binary, *arguments, *_FILE_STORE]
        done = subprocess.run(  # noqa: S603 -- the configured binary
            command, env={**location.environ, "CODEX_HOME": str(home)}, check=False
        )
    except OSError as error:
        raise ConfigurationError(f"{error.filename or location.binary}: {error.strerror}") from None
    return done.returncode
