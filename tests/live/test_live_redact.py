"""What is shown of values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.live.redact import HIDDEN, MAX_SHOWN, shown


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("adminPassword", "x"),
        ("grafana.auth", "x"),
        ("ngcApiKey", "x"),
        ("tls.key", "x"),
        ("db.credentials.user", "x"),
        ("secret.data", {"a": ["x"]}),
        ("url", "postgres://u:pw@host/db"),
        ("text", "-----BEGIN RSA PRIVATE KEY-----"),
        ("text", "ghp_abcdef"),
        ("text", "nvapi-abc"),
        ("text", "eyJhbGciOiJIUzI1NiJ9.eyJ"),
        ("text", "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"),
        ("env", [{"name": "API_TOKEN", "value": "x"}]),
        ("adminPassword", 123456),
        ("licenses", [{"name": "a", "key": "x"}]),
        ("tolerations", [{"operator": "In", "key": "-----BEGIN RSA PRIVATE KEY-----"}]),
        ("db.pwd", "x"),
        ("smtp_pass", "x"),
        ("headers.authorization", "Bearer abcdefgh"),
        ("hook", "https://hooks.slack.com/services/T0/B0/x"),
    ],
)
def test_what_may_be_secret_is_hidden(path: str, value: Any) -> None:
    assert HIDDEN in shown(tuple(path.split(".")), value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("driver.version", "580.95.05"),
        ("existingSecretName", "pull"),
        ("auth.enabled", True),
        ("token.ttl", 3600),
        ("maxTokens", 4096),
        ("bypass", "x"),
        (
            "tolerations",
            [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute"}],
        ),
        ("matchExpressions", [{"key": "zone", "operator": "In", "values": ["a"]}]),
        ("valueFrom.secretKeyRef", {"name": "db", "key": "url"}),
        ("image", "nvcr.io/nvidia/gpu-operator:v26.7.0"),
        ("digest.type", "sha256"),
        ("a", None),
        ("env", [{"name": "LOG_LEVEL", "value": "debug"}]),
    ],
)
def test_ordinary_values_are_shown(path: str, value: Any) -> None:
    assert HIDDEN not in shown(tuple(path.split(".")), value)


@given(st.recursive(st.text() | st.none() | st.integers(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)))
def test_it_is_one_short_line_of_ascii(value: Any) -> None:
    text = shown(("a",), value)
    assert len(text) <= MAX_SHOWN
    assert text.isascii()
    assert text.isprintable()
