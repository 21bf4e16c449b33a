"""Tokens of service accounts on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube.api import Object
from muster.sim.api_access import Access
from muster.sim.api_status import StatusError
from muster.sim.identities import ADMIN_GROUP, ANONYMOUS
from muster.sim.service_accounts import TokenIssuer
from muster.sim.store import Store
from muster.sim.virtual import run_virtual

Scene = Callable[[Store, TokenIssuer], Awaitable[None]]


def play(scene: Scene) -> None:
    async def main(clock: Any) -> None:
        store = Store(clock, seed=1)
        await scene(store, TokenIssuer(store))

    run_virtual(main)


def make(store: Store, plural: str, obj: Object, namespace: str = "") -> Object:
    return store.create(store.registry_kind("", "v1", plural), obj, namespace).obj


def ask(issuer: TokenIssuer, **spec: Any) -> str:
    return str(issuer.issue("default", "default", {"spec": spec})["status"]["token"])


def test_a_token_expires() -> None:
    async def scene(store: Store, issuer: TokenIssuer) -> None:
        token = ask(issuer, expirationSeconds=600)
        assert issuer.user_of(token) is not None
        await store.clock.sleep(599)
        assert issuer.user_of(token) is not None
        await store.clock.sleep(1)
        assert issuer.user_of(token) is None

    play(scene)


def test_a_token_ends_with_what_it_is_bound_to() -> None:
    async def scene(store: Store, issuer: TokenIssuer) -> None:
        node = make(store, "nodes", {"metadata": {"name": "n"}})
        token = ask(issuer, boundObjectRef={"kind": "Node", "apiVersion": "v1", "name": "n"})
        user = issuer.user_of(token)
        assert user is not None
        assert user.extra["authentication.kubernetes.io/node-uid"] == (node["metadata"]["uid"],)
        store.delete(store.registry_kind("", "v1", "nodes"), "n")
        make(store, "nodes", {"metadata": {"name": "n"}})
        assert issuer.user_of(token) is None

    play(scene)


def test_the_token_of_another_server_is_none() -> None:
    async def scene(store: Store, issuer: TokenIssuer) -> None:
        assert TokenIssuer(store).user_of(ask(issuer)) is None
        await asyncio.sleep(0)

    play(scene)


@given(st.text(max_size=60) | st.from_regex(r"[A-Za-z0-9_-]{0,20}(\.[A-Za-z0-9_=-]{0,40}){2}", fullmatch=True))
def test_no_text_is_a_token(text: str) -> None:
    async def scene(store: Store, issuer: TokenIssuer) -> None:
        assert issuer.user_of(text) is None
        genuine = ask(issuer)
        assert issuer.user_of(genuine + text) is None or not text
        await asyncio.sleep(0)

    play(scene)


def test_who_a_header_names() -> None:
    async def scene(store: Store, _: TokenIssuer) -> None:
        access = Access(store)
        token = access.add_user("jane", (ADMIN_GROUP,))
        assert access.user_of(f"Bearer {token}").name == "jane"
        assert access.user_of(f"bearer  {token} ").name == "jane"
        assert access.user_of("") == ANONYMOUS
        assert access.user_of("Basic amFuZTpqYW5l") == ANONYMOUS
        with pytest.raises(StatusError) as refused:
            access.user_of("Bearer wrong")
        assert refused.value.code == 401
        await asyncio.sleep(0)

    play(scene)


def test_a_default_account_comes_with_its_namespace_and_stays() -> None:
    async def scene(store: Store, _: TokenIssuer) -> None:
        accounts = store.registry_kind("", "v1", "serviceaccounts")
        make(store, "namespaces", {"metadata": {"name": "ns"}})
        first = store.get(accounts, "default", "ns").obj["metadata"]["uid"]
        store.delete(accounts, "default", "ns")
        assert store.get(accounts, "default", "ns").obj["metadata"]["uid"] != first
        store.delete(store.registry_kind("", "v1", "namespaces"), "ns")
        with pytest.raises(StatusError):
            store.get(accounts, "default", "ns")
        await asyncio.sleep(0)

    play(scene)
