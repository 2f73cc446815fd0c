"""Gateways to compare: their configurations, processes, CPU time and memory."""

import contextlib
import hashlib
import http.client
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.client import KEY, Api

ROOT = Path(__file__).resolve().parent.parent
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the results: a gateway, the client's API, and the model, which decides the upstream wire."""

    label: str
    api: Api = "chat"
    model: str = "fake-model"
    full: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The directory for configurations and logs, the ports and the cores."""

    directory: Path
    port: int
    upstream_port: int
    tool_core: int
    gateway_core: int

    @property
    def upstream(self) -> str:
        return f"http://127.0.0.1:{self.upstream_port}/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    name: str
    command: tuple[str, ...]
    rows: tuple[Row, ...]
    environment: tuple[tuple[str, str], ...] = ()
    ours: bool = False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


# --- configurations


def toolrelay(setup: Setup, name: str, command: str) -> Gateway:
    """Configure toolrelay for seven pairs of wires, and for WebSockets. `command` contains {config}, {port} and {data}."""
    config = setup.directory / f"{name}.toml"
    models = "".join(
        f'[models.{table}]\nprovider = "compatible"\nwire = "{wire}"\nmodel = "fake-model"\nbase_url = "{setup.upstream}"\n'
        'api_key = "sk-up"\n\n'
        for table, wire in (("fake-model", "chat"), ("fake-responses", "responses"), ("fake-anthropic", "anthropic"))
    )
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    config.write_text(f'{models}[[keys]]\nname = "bench"\nsha256 = "{digest}"\n')
    filled = _fill(command, setup, config=str(config), data=str(setup.directory / f"{name}-data"))
    rows = (
        Row(label=name),
        Row(label=f"{name} chat>responses", model="fake-responses", full=False),
        Row(label=f"{name} responses>chat", api="responses", full=False),
        Row(label=f"{name} responses>responses", api="responses", model="fake-responses", full=False),
        Row(label=f"{name} websocket>chat", api="websocket", full=False),
        Row(label=f"{name} chat>anthropic", model="fake-anthropic", full=False),
        Row(label=f"{name} anthropic>chat", api="anthropic", full=False),
        Row(label=f"{name} anthropic>anthropic", api="anthropic", model="fake-anthropic", full=False),
    )
    return Gateway(name=name, command=filled, rows=rows, ours=True)


def own_command() -> str:
    program = Path(sys.executable).parent / "toolrelay"
    if not program.exists():
        sys.exit(f"{program} does not exist: run `make bench`, which installs it, or name another command")
    return f"{shlex.quote(str(program))} serve --config {{config}} --port {{port}} --data-dir {{data}}"


def other(setup: Setup, name: str, command: str) -> Gateway:
    if "{config}" in command:
        return toolrelay(setup, name, command)
    return Gateway(name=name, command=_fill(command, setup), rows=(Row(label=name),))


def _fill(command: str, setup: Setup, **more: str) -> tuple[str, ...]:
    values = {"port": str(setup.port), "upstream": setup.upstream, **more}
    return tuple(word.format(**values) for word in shlex.split(command))


def nginx_program() -> str | None:
    """Find nginx, also in /usr/sbin, which is not on the PATH of ordinary users."""
    return shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


def nginx(setup: Setup) -> Gateway | None:
    program = nginx_program()
    if program is None:
        return None
    here = setup.directory
    scratch = " ".join(f"{kind}_temp_path {here}/nginx-{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = here / "nginx.conf"
    config.write_text(
        f"""daemon off; worker_processes 1; pid {here}/nginx.pid; error_log {here}/nginx-error.log error;
events {{ worker_connections 8192; }}
http {{
  access_log off; tcp_nodelay on; keepalive_requests 100000000; {scratch}
  upstream provider {{ server 127.0.0.1:{setup.upstream_port}; keepalive 2048; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{setup.port} backlog=4096;
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }}
  }}
}}
"""
    )
    return Gateway(name="nginx", command=(program, "-c", str(config)), rows=(Row(label="nginx"),))


def litellm(setup: Setup) -> Gateway:
    """Configure the LiteLLM proxy. It is installed once, into a virtual environment in the user's cache directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "toolrelay-bench" / "litellm"
    program = cache / "bin" / "litellm"
    if not program.exists():
        print(f"installing litellm[proxy] into {cache}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(cache)], check=True)
        subprocess.run([str(cache / "bin" / "python"), "-m", "pip", "install", "--quiet", "litellm[proxy]"], check=True)
    config = setup.directory / "litellm.yaml"
    config.write_text(
        "model_list:\n- model_name: fake-model\n  litellm_params:\n    model: openai/fake-model\n"
        f"    api_base: {setup.upstream}\n    api_key: sk-up\n"
        "litellm_settings: {callbacks: [], telemetry: false, request_timeout: 600}\n"
        "router_settings: {num_retries: 0}\ngeneral_settings: {disable_spend_logs: true}\n"
    )
    command = (str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(setup.port), "--num_workers", "1")
    environment = (
        ("LITELLM_LOG", "ERROR"),
        ("LITELLM_MASTER_KEY", KEY),
        ("LITELLM_MODE", "PRODUCTION"),
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        ("DISABLE_ADMIN_UI", "True"),
        ("NO_DOCS", "True"),
    )
    return Gateway(name="litellm", command=command, rows=(Row(label="litellm"),), environment=environment)


# --- processes


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pin this process and those that it starts to a core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_s(pids: set[int]) -> float:
    """Return the CPU time of the processes; one that has ended counts as 0."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += time.clock_gettime((~pid << 3) | 2)
    return total


def busy_s(cores: set[int]) -> float:
    """Return the busy time of the cores, for all processes: the columns of /proc/stat without idle and iowait."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *columns = line.split()
        if name in {f"cpu{core}" for core in cores}:
            ticks += sum(int(column) for column in columns[:3] + columns[5:8])
    return ticks / os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> set[int]:
    found = {pid}
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found |= tree(int(child))
    return found


def environment() -> dict[str, str]:
    """Return os.environ without proxies, which loopback does not need, and with compiled modules, as in an installation."""
    unwanted = {"PYTHONDONTWRITEBYTECODE", "TOOLRELAY_CONFIG"}
    return {name: value for name, value in os.environ.items() if name not in unwanted and not name.lower().endswith("_proxy")}


class Running:
    """A running gateway. The end of the context stops its process tree."""

    def __init__(self, gateway: Gateway, setup: Setup) -> None:
        self.gateway = gateway
        self._setup = setup
        self._log = setup.directory / f"{gateway.name}.log"
        began = time.monotonic()
        with self._log.open("ab") as log, on_core(setup.gateway_core):
            self._process = subprocess.Popen(
                gateway.command,
                env=environment() | dict(gateway.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=setup.directory,
                start_new_session=True,
            )
        try:
            self._wait_until_ready(began)
        except BaseException:
            self.stop()
            raise
        self.start_s = time.monotonic() - began

    def _wait_until_ready(self, began: float) -> None:
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() - began > _START_TIMEOUT_S:
                raise RuntimeError(f"{self.gateway.name} did not start:\n{self.log_tail()}")
            time.sleep(0.001)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _is_ready(self) -> bool:
        """Any answer of /readyz but 503 counts: other gateways do not have it."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self._setup.port, timeout=5)
            connection.request("GET", "/readyz", headers={"Connection": "close"})
            status = connection.getresponse().status
            connection.close()
        except (OSError, http.client.HTTPException):
            return False
        return status != 503

    @property
    def pid(self) -> int:
        return self._process.pid

    def pids(self) -> set[int]:
        return tree(self.pid)

    def rss_mb(self) -> float:
        kilobytes = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmRSS:"):
                        kilobytes += int(line.split()[1])
        return kilobytes / 1024

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-1000:]

    def stop(self) -> None:
        pids = self.pids()
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT_S)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
