"""A Git repository of our own over HTTP on loopback, for deployers that fetch a bundle themselves."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

BRANCH = "main"
_SERVICE = "git-upload-pack"
_IDENTITY = ("-c", "user.name=muster", "-c", "user.email=muster@stand-in.example")


class GitServer:
    """One repository with one branch. Close it, or use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._tree = folder / "tree"
        self._tree.mkdir(parents=True)
        self._home = folder
        self._git("init", "--quiet", f"--initial-branch={BRANCH}")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._tree / ".git", folder))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/bundle.git"

    def commit(self, folder: str, files: dict[str, str]) -> str:
        """Make `files` the whole content of `folder` in the repository. Returns the commit."""
        shutil.rmtree(self._tree / folder, ignore_errors=True)
        for name, text in files.items():
            path = self._tree / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._git("add", "--all")
        self._git(*_IDENTITY, "commit", "--quiet", "--allow-empty", "--message=bundle")
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self._tree,
            env=_environment(self._home),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __enter__(self) -> GitServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _environment(home: Path) -> dict[str, str]:
    """No configuration of the machine or of a person."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }


def _handler(repository: Path, home: Path) -> type[BaseHTTPRequestHandler]:
    """Git's protocol over HTTP, reading only: what is there, then the objects that somebody asks for."""

    def upload_pack(*arguments: str, text: bytes = b"") -> bytes:
        command = ["git", "upload-pack", "--stateless-rpc", *arguments, str(repository)]
        return subprocess.run(command, input=text, env=_environment(home), capture_output=True, check=True).stdout

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != f"/bundle.git/info/refs?service={_SERVICE}":
                self.send_error(404)
                return
            first = f"# service={_SERVICE}\n"
            head = f"{len(first) + 4:04x}{first}0000".encode()
            self._answer("advertisement", head + upload_pack("--advertise-refs"))

        def do_POST(self) -> None:
            if self.path != f"/bundle.git/{_SERVICE}":
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            self._answer("result", upload_pack(text=body))

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", f"application/x-{_SERVICE}-{kind}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of the base class
            """Nothing: the tests look at what the programs do."""

    return Handler
