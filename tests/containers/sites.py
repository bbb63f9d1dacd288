"""A site on loopback, with pages that are good and bad."""

import base64
import hashlib
import ssl
import threading
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.http_servers import HttpServer, Silent, listening

NAME = "site.test"
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
SAY = "<script>say = what => fetch('/say?' + encodeURIComponent(what))</script>"
LISTENER = SAY + (
    "<input autofocus><div id=give draggable=true style='position:absolute;left:0;top:300px;width:50px;height:50px;"
    "background:red'></div><div id=take style='position:absolute;left:300px;top:300px;width:99px;height:99px;"
    "background:green'></div><script>"
    "onkeydown = e => say(`${e.ctrlKey ? 'C-' : ''}${e.shiftKey ? 'S-' : ''}${e.key}`);"
    "onwheel = e => say(`wheel ${e.deltaX} ${e.deltaY}`);"
    "ondblclick = e => say(`double${e.shiftKey ? ' S' : ''}`); oncontextmenu = e => say('menu');"
    "give.ondragstart = e => e.dataTransfer.setData('text', 'carried'); take.ondragover = e => e.preventDefault();"
    "take.ondrop = e => say(e.dataTransfer.getData('text')); take.onmousemove = e => say('over');</script>"
)
SHADOW = SAY + (
    "<p></p><script>const own = new CSSStyleSheet(), root = document.querySelector('p').attachShadow({mode: 'closed'});"
    "own.replaceSync('select { position: absolute; top: 80px; left: 20px; width: 300px; height: 40px }');"
    "root.adoptedStyleSheets = [own]; root.innerHTML = '<select><option>Monday<option>Tuesday</select>';"
    "root.firstChild.onchange = e => say(e.target.value)</script>"
)
NOISE = (
    "<canvas width=300 height=300></canvas><script>const canvas = document.querySelector('canvas').getContext('2d'),"
    "image = canvas.createImageData(300, 300); for (let at = 0; at < image.data.length; at++)"
    " image.data[at] = at % 4 == 3 ? 255 : 256 * Math.random(); canvas.putImageData(image, 0, 0)</script>"
)
ACTS = {
    "alert": "alert('Hello')",
    "prompt": "say(prompt('Name?', 'Bob'))",
    "dialogs": "for (;;) alert('again')",
    "hang": "for (;;);",
    "popup": "window.open('/popup')",
    "slow": "location.href = '/slow'",
    "leave": "onbeforeunload = e => e.preventDefault(); location.href = '/'",
    "download": "location.href = '/download'",
    "huge": "location.href = '/huge'",
    "choose": "chooser.click()",
    "file": "location.href = 'file:///etc/passwd'; say('on')",
    "other": "fetch('http://other.test/').catch(() => say('other'))",
    "socket": "new WebSocket('ws://socket.test/').onerror = () => say('socket')",
    "loopback": "fetch('http://127.0.0.1:3128/').catch(() => say('loopback'))",
    "own": "new WebSocket('ws://site.test/ws').onmessage = e => say(e.data)",
    "fetch": "fetch('/later').then(() => document.body.append('fetched'))",
    "print": "print(); say('printed')",
    "go": "location.href = '/book'",
    "program": "location.href = 'other-program:1'",
    "locked": "fetch('/locked').then(answer => say(`locked ${answer.status}`))",
}
"""What the buttons of `/acts` do. They stand in one row."""
WIDTH = 50
GRID = "".join(
    f"<button style='left:{WIDTH * at}px;top:0;width:{WIDTH}px' onclick=\"{act}\">{name}</button>"
    for at, (name, act) in enumerate(ACTS.items())
)
PAGES = {
    "/": "<h1>Home</h1>", "/book": BOOK, "/day": DAY, "/confirm": CONFIRM, "/done": "<h1>Booked</h1>",
    "/popup": "<h1>Popup</h1>", "/listener": LISTENER, "/acts": f"{SAY}{GRID}<input type=file id=chooser>",
    "/shadow": SHADOW, "/noise": NOISE,
    "/framed": "<iframe src=/book></iframe>", "/reload": "<script>setTimeout(() => location.reload(), 5)</script>",
}  # fmt: skip


def place_of(act: str) -> dict[str, int]:
    """Return where a button of `/acts` is."""
    return {"x": WIDTH * list(ACTS).index(act) + WIDTH // 2, "y": 20}


class Site:
    """The site, which is served as `site.test` within the block, and what was asked of it and said by its pages. With a
    `context`, also by https."""

    name = NAME

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        contexts = {80: None} if context is None else {80: None, 443: context}
        self._servers = {port: HttpServer(partial(Handler, self), ours) for port, ours in contexts.items()}
        self._stack = ExitStack()
        self.hosts = {f"{NAME}:{port}": f"127.0.0.1:{server.server_port}" for port, server in self._servers.items()}
        self.booked: list[str] = []
        self.said: list[str] = []
        self.over = threading.Event()

    def url(self, path: str) -> str:
        return f"http://{NAME}{path}"

    def __enter__(self) -> Self:
        for server in self._servers.values():
            self._stack.enter_context(listening(server))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._stack.close()


class Handler(Silent):
    def __init__(self, site: Site, *given: Any) -> None:
        self.site = site
        super().__init__(*given)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match parts.path:
            case "/say":
                self.site.said.append(unquote(parts.query))
                self.answer(200, "")
            case "/slow":
                self.answer(200, "<h1>Slow</h1>", more=1)
                self.site.over.wait()
            case "/never":
                self.site.over.wait()
            case "/locked":
                self.answer(401, "<h1>Who are you?</h1>", "www-authenticate", "Basic realm=x")
            case "/later":
                self.site.over.wait(0.2)
                self.answer(200, "<h1>Later</h1>")
            case "/download":
                self.answer(200, "text", "content-disposition", "attachment; filename=report.txt")
            case "/huge":
                self.answer(200, "x", "content-disposition", "attachment; filename=huge.bin", more=10 << 30)
                self.site.over.wait()
            case "/ws":
                self.greet()
            case path:
                page = PAGES.get(path)
                self.answer(200 if page else 404, page.replace("{name}", given.get("name", "")).replace(
                    "{day}", given.get("day", "")) if page else "<h1>Not here</h1>")  # fmt: skip

    def do_POST(self) -> None:
        self.site.booked.append(self.rfile.read(int(self.headers["content-length"])).decode())
        self.answer(200, PAGES[self.path])

    def answer(self, status: int, page: str, *header: str, more: int = 0) -> None:
        body = (STYLE + page).encode()
        self.send_response(status)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body) + more))
        if header:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def greet(self) -> None:
        """Accept a WebSocket, and send one text (RFC 6455)."""
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "upgrade")
        self.send_header("sec-websocket-accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.wfile.write(b"\x81\x07greeted")
