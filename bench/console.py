"""First paint and size of the console's pages, on loopback, in the Chromium of the tests. Part of `make bench`.

  bench/console.py                nine loads of each page, about half a minute
  bench/console.py --loads 3      fewer

Each load has an empty cache. First paint is the browser's first-contentful-paint, from the start of the navigation. Transferred
is what was loaded over the network by the load event: page, styles and scripts, compressed, with headers.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from playwright.sync_api import Browser, sync_playwright

from tests.web.console.browser import launch
from toolrelay.web.console.pages import PAGES

_LOADS = 9
_MAX_KILOBYTES = 150
_READY = "Toolrelay is ready at "
_CONFIG = '[models.demo]\nprovider = "demo"\n'
_FIRST_PAINT = """() => new Promise((resolve) => {
  const find = (entries) => entries.find(({ name }) => name === "first-contentful-paint");
  new PerformanceObserver((list) => find(list.getEntries()) && resolve(find(list.getEntries()).startTime))
    .observe({ type: "paint", buffered: true });
})"""


@dataclass(frozen=True, slots=True)
class Load:
    first_paint: float  # ms
    transferred: int  # bytes


@contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """Run a gateway with the demo model, and yield its URL."""
    (folder / "toolrelay.toml").write_text(_CONFIG)
    arguments = ["--config", str(folder / "toolrelay.toml"), "--data-dir", str(folder / "data"), "--port", "0"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "toolrelay", "serve", *arguments], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(_READY):
            raise SystemExit(f"the gateway did not start: {(folder / 'log').read_text()}")
        yield line.removeprefix(_READY).strip()
    finally:
        process.terminate()
        process.wait(timeout=30)


def load_page(browser: Browser, url: str) -> Load:
    context = browser.new_context()
    try:
        page = context.new_page()
        session = context.new_cdp_session(page)
        sizes: list[int] = []
        session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
        session.send("Network.enable")
        page.goto(url, wait_until="load")
        first_paint = float(page.evaluate(_FIRST_PAINT))
        return Load(first_paint=first_paint, transferred=sum(sizes))
    finally:
        context.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=_LOADS, help=f"of each page; default {_LOADS}")
    loads = parser.parse_args().loads
    with TemporaryDirectory(prefix="toolrelay-bench-") as folder, gateway(Path(folder)) as url, sync_playwright() as playwright:
        browser = launch(playwright)
        load_page(browser, url)  # warms up
        print(f"{'page':<20}{'first paint, ms':>17}{'worst':>8}{'transferred, KB':>17}  target")
        for path in PAGES:
            found = [load_page(browser, url + path) for _ in range(loads)]
            paints = [each.first_paint for each in found]
            size = max(each.transferred for each in found) / 1000
            verdict = "ok" if size <= _MAX_KILOBYTES else "MISSED"
            print(
                f"{path:<20}{statistics.median(paints):>17.0f}{max(paints):>8.0f}{size:>17.1f}  ≤ {_MAX_KILOBYTES} KB {verdict}"
            )
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
