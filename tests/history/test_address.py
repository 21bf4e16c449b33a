"""Addresses of the history: read, refused with a remedy, and never shown with a password."""

from __future__ import annotations

import pytest

from muster.errors import BadInputError
from muster.operate.history.address import Engine, parse


@pytest.mark.parametrize(
    ("text", "target", "shown"),
    [
        ("sqlite:///var/lib/h.db", "/var/lib/h.db", "sqlite:///var/lib/h.db"),
        ("sqlite:////var/lib/h.db", "/var/lib/h.db", "sqlite:///var/lib/h.db"),
        ("sqlite:///a%20b.db ", "/a b.db", "sqlite:///a b.db"),
    ],
)
def test_files(text: str, target: str, shown: str) -> None:
    found = parse(text)
    assert (found.engine, found.target, found.shown) == (Engine.SQLITE, target, shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://muster:s3cret@db.example:5433/ops", "postgresql://muster@db.example:5433/ops"),
        ("postgres://muster:s3c%40ret@db/ops?sslmode=require", "postgresql://muster@db/ops?sslmode=require"),
        ("postgresql://muster@/ops?host=/run/pg&password=s3cret", "postgresql://muster@/run/pg/ops?password=..."),
        ("postgresql://muster:s3cret@[::1]/ops", "postgresql://muster@[::1]/ops"),
    ],
)
def test_servers_are_shown_without_secrets(text: str, shown: str) -> None:
    found = parse(text)
    assert (found.engine, found.target, found.shown) == (Engine.POSTGRESQL, text, shown)
    assert "s3c" not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "history.db",
        "sqlite://history.db",
        "sqlite:///",
        "sqlite:///folder/",
        "mysql://muster:s3cret@db/ops",
        "postgresql://muster:s3cret@db",
        "postgresql://muster:s3cret@db:port/ops",
        "postgresql://muster:s3@cret@db/ops",
        "postgresql://muster:s3cret@[::1/ops",
        "x" * 5000,
    ],
)
def test_what_cannot_be_used_is_one_sentence_without_secrets(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse(text)
    said = str(caught.value)
    assert said.endswith(".")
    assert len(said) < 400
    assert "cret" not in said
