"""A site on loopback, with pages that are good and bad."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

STYLE = (
    "<!doctype html><style>body{margin:0;font:16px sans-serif}input,select,button{position:absolute;left:20px;"
    "width:300px;height:40px}input,select{top:80px}button{top:200px}</style>"
)
BOOK = "<form action=/day><h1>Who?</h1><input name=name><button>Next</button></form>"
DAY = (
    "<form action=/confirm><h1>When?</h1><input type=hidden name=name value='{name}'><select name=day>"
    "<option>Monday<option>Tuesday<option>Wednesday</select><button>Next</button></form>"
)
CONFIRM = (
    "<form action=/done method=post onsubmit='return confirm(\"Really book?\")'><h1>{name}, {day}</h1>"
    "<input type=hidden name=name value='{name}'><input type=hidden name=day value='{day}'><button>Book</button></form>"
)
PAGES = {"/": "<h1>Home</h1>", "/book": BOOK, "/day": DAY, "/confirm": CONFIRM, "/done": "<h1>Booked</h1>"}


class Site:
    """Serves `PAGES` as `site.test`."""

    name = "site.test"

    def __init__(self) -> None:
        self.booked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                given = {name: values[0] for name, values in parse_qs(parts.query).items()}
                page = PAGES.get(parts.path)
                self.answer(200 if page else 404, (page or "<h1>Not here</h1>").format_map(given))

            def do_POST(self) -> None:
                site.booked.append(self.rfile.read(int(self.headers["content-length"])).decode())
                self.answer(200, PAGES[self.path])

            def answer(self, status: int, page: str) -> None:
                body = (STYLE + page).encode()
                self.send_response(status)
                self.send_header("content-type", "text/html")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def hosts(self) -> dict[str, str]:
        return {f"{self.name}:80": f"127.0.0.1:{self._server.server_port}"}

    def url(self, path: str) -> str:
        return f"http://{self.name}{path}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
