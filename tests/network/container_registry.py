"""A container registry on this machine, as far as ``docker push`` and ``docker pull`` need one (OCI distribution
specification): blobs are files, manifests are kept in memory."""

import hashlib
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class Registry:
    """A registry that runs until ``close``.

    Attributes:
        address: host and port, the first part of its images' names. Docker asks for no certificate on this machine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifests: dict[str, tuple[str, bytes]] = {}  # NAME/TAG or NAME/DIGEST: media type, content
        registry = self

        class Handler(_Handler):
            kept = registry

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kept: Registry

    def log_message(self, *_arguments) -> None:
        """Requests are not printed."""

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def do_GET(self, body: bool = True) -> None:
        kind, name, reference = self._asked()
        if kind == "manifests" and (found := self.kept.manifests.get(f"{name}/{reference}")):
            media_type, content = found
            self._answer(200, content if body else b"", length=len(content), kind=media_type, digest=_digest(content))
        elif kind == "blobs" and (path := self._blob(reference)).exists():
            content = path.read_bytes() if body else b""
            self._answer(200, content, length=path.stat().st_size, digest=reference)
        else:
            self._answer(200 if kind == "" else 404)

    def do_POST(self) -> None:
        self._body()
        _, name, _ = self._asked()
        self._answer(202, location=f"/v2/{name}/blobs/uploads/{uuid.uuid4()}")

    def do_PATCH(self) -> None:
        upload = self._blob(self.path.rpartition("/")[2])
        with upload.open("ab") as file:
            file.write(self._body())
        self._answer(202, location=self.path, range_=f"0-{upload.stat().st_size - 1}")

    def do_PUT(self) -> None:
        kind, name, reference = self._asked()
        content = self._body()
        if kind == "manifests":
            entry = (self.headers["Content-Type"], content)
            self.kept.manifests[f"{name}/{reference}"] = self.kept.manifests[f"{name}/{_digest(content)}"] = entry
            self._answer(201, digest=_digest(content))
        else:
            upload = self._blob(reference)
            with upload.open("ab") as file:
                file.write(content)
            [digest] = parse_qs(urlsplit(self.path).query)["digest"]
            upload.rename(self._blob(digest))
            self._answer(201, digest=digest)

    def _asked(self) -> tuple[str, str, str]:
        """What is asked for: manifests or blobs, of which name, by which tag or digest."""
        path = urlsplit(self.path).path.removeprefix("/v2/")
        for kind in ("manifests", "blobs"):
            if f"/{kind}/" in path:
                name, _, reference = path.partition(f"/{kind}/")
                return kind, name, reference.removeprefix("uploads/")
        return "", "", ""

    def _blob(self, reference: str) -> Path:
        return self.kept.folder / reference.replace(":", "-")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, content: bytes = b"", *, length: int | None = None, **headers: str) -> None:
        names = {"kind": "Content-Type", "digest": "Docker-Content-Digest", "location": "Location", "range_": "Range"}
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        for key, value in headers.items():
            self.send_header(names[key], value)
        self.end_headers()
        self.wfile.write(content)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
