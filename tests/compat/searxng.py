"""A real SearXNG between `ferrule serve` and a loopback site; see `scripts/compat_searxng`."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openai import OpenAI

from ferrule.testing import ScriptedModel
from tests.gateway.served import new_place, serving
from tests.gateway.test_web_search import check, configuration, does
from tests.web.site import SITE, Site, site

START_S = 60.0
SETTINGS = """\
use_default_settings: false
general: {{instance_name: test, debug: false}}
search: {{formats: [html, json], default_lang: all, languages: [all]}}
server: {{port: {port}, bind_address: 127.0.0.1, secret_key: test, limiter: false, public_instance: false, method: GET}}
valkey: {{url: false}}
default_doi_resolver: oadoi.org
doi_resolvers: {{oadoi.org: "https://oadoi.org/"}}
categories_as_tabs: {{general: {{}}}}
engines:
  - {{name: site, engine: json_engine, shortcut: st, categories: [general], enable_http: true, timeout: 10.0,
      search_url: "{site}/search?q={{query}}", results_query: results, url_query: url, title_query: title,
      content_query: content}}
"""


@contextmanager
def searxng(folder: Path, behind: Site) -> Iterator[str]:
    """Run SearXNG over the site; return its address as soon as it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = folder / "settings.yml"
    settings.write_text(SETTINGS.format(port=port, site=behind.base_url))
    log = (folder / "searxng.log").open("wb")
    process = subprocess.Popen(
        [str(folder / "venv" / "bin" / "python"), "-m", "searx.webapp"],
        env={**os.environ, "SEARXNG_SETTINGS_PATH": str(settings)},
        stdout=log,
        stderr=log,
    )
    try:
        _wait(f"http://127.0.0.1:{port}/search?q=x&format=json", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        log.close()


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=START_S) as answer:
                assert json.load(answer)["results"], "SearXNG finds nothing"
                return
        except urllib.error.URLError:
            time.sleep(0.2)
    raise SystemExit("SearXNG does not start; see searxng.log")


def main() -> None:
    """Run an agent over both wires."""
    folder = Path(sys.argv[1])
    with site() as behind, searxng(folder, behind) as address:
        for wire in ("chat", "responses"):
            with tempfile.TemporaryDirectory() as home, ScriptedModel(does) as model:
                place = new_place(Path(home))
                configuration(place, address, behind)
                with (
                    serving(place, model.base_url, wire=wire) as running,
                    OpenAI(base_url=running.url, api_key="unused", max_retries=0) as client,
                ):
                    asked = f"{SITE}/tower"
                    check(client.responses.create(model="m", input=asked, tools=[{"type": "web_search"}]))
                    with client.responses.stream(model="m", input=asked, tools=[{"type": "web_search"}]) as stream:
                        check(stream.get_final_response())
            print(f"{wire}: searched by SearXNG, page read, cited; whole and streamed")


if __name__ == "__main__":
    main()
