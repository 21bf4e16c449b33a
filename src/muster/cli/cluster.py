"""`--kubeconfig/--context`, and reading Muster's resources from a live cluster for the verbs that do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import msgspec

from muster.errors import BadInputError, UnreachableError
from muster.kube.api import ForbiddenError, KubeApi, NotFoundError, ResourceType

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M")
T = TypeVar("T")
PAGE = 500


def cluster_options(command: F) -> F:
    """Adds `--kubeconfig` and `--context`."""
    command = click.option("--context", default=None, help="Context of the kubeconfig to use.")(command)
    return click.option(
        "--kubeconfig", default=None, help="Kubeconfig file; without it $KUBECONFIG, the pod's own or ~/.kube/config."
    )(command)


def with_cluster(kubeconfig: str | None, context: str | None, work: Callable[[KubeApi], Awaitable[T]]) -> T:
    """Run `work` with a client of the cluster. Errors are the sentences of the client."""
    from muster.kube.http import HttpApi

    async def main() -> T:
        async with HttpApi.from_kubeconfig(kubeconfig, context) as api:
            try:
                return await work(api)
            except ForbiddenError as error:
                if error.code != 401:
                    raise
                # The server says "Unauthorized" and nothing else.
                raise UnreachableError(
                    f"The API server {api.server} does not accept the login ({error}); log in again or give another "
                    "kubeconfig or context."
                ) from error

    return asyncio.run(main())


@contextmanager
def without_watch_warnings() -> Iterator[None]:
    """Each watch of a server that is away warns again and again; a verb that follows tells the outage once."""
    import logging

    log = logging.getLogger("muster.kube.cache")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


async def read_all(
    api: KubeApi, res: ResourceType, decode: Callable[[bytes], M], *, label_selector: str = ""
) -> list[M]:
    """Every object of a kind, or those with the labels of `label_selector`.

    Raises BadInputError when the cluster does not know the kind or one is not readable."""
    found: list[M] = []
    token = ""
    while True:
        try:
            page = await api.list_page(res, label_selector=label_selector, limit=PAGE, continue_token=token)
        except NotFoundError as error:
            raise BadInputError(
                f"The cluster does not know {res.plural}.{res.group}; install Muster's CRDs first."
            ) from error
        for raw in page.items:
            try:
                found.append(decode(raw))
            except msgspec.MsgspecError as error:
                raise BadInputError(f"A {res.kind} of the cluster cannot be read: {error}.") from error
        token = page.continue_token
        if not token:
            return found


def decoder(model: type[M]) -> Callable[[bytes], M]:
    """A decoder of `model` from JSON, lenient about numbers written as text."""
    return msgspec.json.Decoder(model, strict=False).decode
