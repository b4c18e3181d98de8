"""The page's answers over HTTP: its files, and refusals of whoever is not this machine's user.

Two checks keep strangers out. Every path must begin with the token, which only the user can read in a file of
the run's folder. And the names in ``Host`` and ``Origin`` must be this machine's, so that no other web page
can use the user's browser. Files are read once, from the package: no path of a request reaches the disk.
"""

from __future__ import annotations

import hmac
import mimetypes
from http import HTTPStatus
from importlib import resources
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

#: Names by which a browser may address this machine.
OWN_NAMES = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def refusal(path: str, headers: Headers, token: str) -> tuple[HTTPStatus, str] | None:
    """Status and text to refuse a request with; None if it may be answered."""
    host, origin = headers.get_all("Host"), headers.get_all("Origin")
    if len(host) != 1 or not _is_own(f"//{host[0]}"):
        return HTTPStatus.FORBIDDEN, "this page is for 127.0.0.1 alone\n"
    if origin and (len(origin) != 1 or origin[0].lower() != f"http://{host[0]}".lower()):
        return HTTPStatus.FORBIDDEN, "requests of other pages are refused\n"
    if not hmac.compare_digest(path.partition("/")[2].partition("/")[0].encode(), token.encode()):
        return HTTPStatus.FORBIDDEN, "the address ends in the run's token: take it from the terminal\n"
    return None


def below_token(path: str, token: str) -> str:
    """The part of a path after the token, without its query."""
    return urlsplit(path).path.removeprefix(f"/{token}").removeprefix("/")


def _is_own(address: str) -> bool:
    try:
        return urlsplit(address).hostname in OWN_NAMES
    except ValueError:
        return False


def own_files() -> dict[str, tuple[str, bytes]]:
    """The page's files by name, with their types."""
    folder = resources.files("spreeze_zmq.screen.page") / "static"
    return {
        file.name: (mimetypes.guess_type(file.name)[0] or "text/plain", file.read_bytes())
        for file in folder.iterdir()
        if file.is_file()
    }


def response(status: HTTPStatus, content: str | bytes = b"", kind: str = "text/plain") -> Response:
    """An answer with the headers of each; its content is text or bytes of the MIME type ``kind``."""
    body = content.encode() if isinstance(content, str) else content
    headers = Headers(
        {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
    )
    return Response(status.value, status.phrase, headers, body)


def moved(path: str) -> Response:
    """The answer that another path is meant, for good."""
    answer = response(HTTPStatus.PERMANENT_REDIRECT)
    answer.headers["Location"] = path
    return answer


def add_headers(visitor: ServerConnection, request: Request, response: Response) -> None:
    """Add the headers without which an isolated page accepts no WebSocket."""
    for name in ("Cross-Origin-Embedder-Policy", "Cross-Origin-Resource-Policy"):
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            response.headers[name] = HEADERS[name]
