"""One repository of an OCI registry, through `oras`: bounded answers, our time limits, errors in one sentence.

Needs the extra `oci`; `registry` imports this module only when a registry is meant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import oras.auth  # type: ignore[import-untyped]  # oras has no type hints
import oras.container  # type: ignore[import-untyped]
import oras.provider  # type: ignore[import-untyped]
import requests

from muster.errors import BadInputError, UnreachableError

CONNECT_LIMIT_S = 10.0
READ_LIMIT_S = 60.0
MAX_MANIFEST_BYTES = 1024 * 1024
_BLOCK = 256 * 1024

logging.getLogger("oras").setLevel(logging.CRITICAL)


class _Registry(oras.provider.Registry):  # type: ignore[misc]  # oras has no type hints
    """The client of `oras` without its own retries, which wait for minutes, and with time limits."""

    def do_request(self, *args: Any, **kwargs: Any) -> requests.Response:
        once: Callable[..., requests.Response] = oras.provider.Registry.do_request.__wrapped__
        return once(self, *args, **kwargs)


class _Session(requests.Session):
    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs.setdefault("timeout", (CONNECT_LIMIT_S, READ_LIMIT_S))
        return super().request(*args, **kwargs)


T = TypeVar("T")


class Client:
    """Requests to one repository. Every method raises UnreachableError or BadInputError in one sentence."""

    def __init__(self, host: str, repository: str, plain_http: bool) -> None:
        self.host, self.repository = host, repository
        self._registry = _Registry(hostname=host, insecure=plain_http)
        self._registry.session = self._registry.auth.session = _session(host)
        namespace, _, name = repository.rpartition("/")
        self._container = oras.container.Container("placeholder", registry=host)
        self._container.namespace, self._container.repository = namespace, name
        self._address = f"{self._registry.prefix}://{host}/v2/"
        self._log_in(plain_http)

    def _log_in(self, plain_http: bool) -> None:
        """Take the way of authentication that the registry asks for, and the credentials that were left for it."""
        answer = self._try(lambda: self._registry.session.get(self._address, allow_redirects=False))
        if answer.headers.get("Www-Authenticate", "").lower().startswith("basic"):
            self._registry.auth = oras.auth.get_auth_backend("basic", self._registry.session, plain_http)
        try:
            self._registry.auth.load_configs(self._container)
        except (ValueError, KeyError, AttributeError, TypeError, OSError) as error:
            raise BadInputError(
                f"The credentials in ~/.docker/config.json cannot be used for {self.host} ({type(error).__name__}); "
                f"log in again with: docker login {self.host}."
            ) from error

    def get_manifest(self, tag_or_digest: str, media_type: str) -> bytes:
        url = f"{self._address}{self.repository}/manifests/{tag_or_digest}"
        return self._get(url, {"Accept": media_type}, MAX_MANIFEST_BYTES, tag_or_digest)

    def get_blob(self, digest: str, size_bytes: int) -> bytes:
        """The blob; at most one block more than `size_bytes` is read."""
        return self._get(f"{self._address}{self.repository}/blobs/{digest}", {}, size_bytes, digest)

    def upload(self, blob: Path, descriptor: Mapping[str, Any]) -> None:
        """Upload a file unless the repository has it."""
        answer = self._try(lambda: self._registry.upload_blob(str(blob), self._container, dict(descriptor)))
        self._require_success(answer, "the upload")

    def put_manifest(self, tag_or_digest: str, content: bytes, media_type: str) -> None:
        url = f"{self._address}{self.repository}/manifests/{tag_or_digest}"
        headers = {"Content-Type": media_type}
        answer = self._try(lambda: self._registry.do_request(url, "PUT", data=content, headers=headers))
        self._require_success(answer, "the manifest")

    def _get(self, url: str, headers: dict[str, str], limit_bytes: int, what: str) -> bytes:
        def fetch() -> bytes:
            with self._registry.do_request(url, "GET", headers=headers, stream=True) as answer:
                self._require_success(answer, what)
                content = bytearray()
                for block in answer.iter_content(_BLOCK):
                    content += block
                    if len(content) > limit_bytes:
                        raise BadInputError(
                            f"{self.host} sends more than {limit_bytes} bytes for {what} of {self.repository}; "
                            "do not use it."
                        )
                return bytes(content)

        return self._try(fetch)

    def _try(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except requests.exceptions.SSLError as error:
            raise UnreachableError(
                f"The registry {self.host} has no TLS that can be trusted; check the address, or use --plain-http "
                "for a registry without TLS."
            ) from error
        except requests.exceptions.RequestException as error:
            raise UnreachableError(
                f"The registry {self.host} does not answer ({type(error).__name__}); check address and network."
            ) from error
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            # What oras raises when it has no credentials, or an answer it does not understand.
            raise self._denied() from error

    def _require_success(self, answer: requests.Response, what: str) -> None:
        status = answer.status_code
        if status in (200, 201, 202):
            return
        if status in (401, 403):
            raise self._denied()
        if status == 404:
            raise BadInputError(f"{self.host} knows no {what!r} in {self.repository}; check the reference.")
        if status == 429 or status >= 500:
            raise UnreachableError(f"The registry {self.host} cannot answer now (HTTP {status}); try again later.")
        raise BadInputError(f"The registry {self.host} refuses {what} in {self.repository} (HTTP {status}).")

    def _denied(self) -> BadInputError:
        return BadInputError(
            f"The registry {self.host} refuses access to {self.repository}; log in with: docker login {self.host}."
        )


def _session(host: str) -> requests.Session:
    session = _Session()
    session.headers["User-Agent"] = "muster"
    # A proxy does not lead to a registry on this machine.
    if host.startswith(("localhost", "127.", "[::1]")):
        session.trust_env = False
    return session
