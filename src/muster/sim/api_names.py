"""Validation of names, labels and annotations."""

from __future__ import annotations

import re
from functools import lru_cache
from random import Random
from typing import Any

from muster.sim.api_status import Cause, invalid_value

_LABEL_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL_PART)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL_PART}(\.{_LABEL_PART})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_GENERATED = "bcdfghjklmnpqrstvwxz2456789"
_MAX_ANNOTATIONS_BYTES = 256 * 1024

_SUBDOMAIN_ADVICE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_ADVICE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)

_PATH_NAMED = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
_LABEL_NAMED = {"Namespace", "Service"}


def generated_name(base: str, rng: Random) -> str:
    """`base` with a random suffix of five characters; at most 63 characters."""
    return base[:58] + "".join(rng.choice(_GENERATED) for _ in range(5))


def is_dns_label(name: str) -> bool:
    return len(name) <= 63 and _DNS_LABEL.fullmatch(name) is not None


def is_dns_subdomain(name: str) -> bool:
    return len(name) <= 253 and _DNS_SUBDOMAIN.fullmatch(name) is not None


def name_causes(kind: str, name: str) -> list[Cause]:
    """What is wrong with the name of an object of this kind."""
    if kind in _PATH_NAMED:
        if name in (".", "..") or "/" in name or "%" in name:
            return [invalid_value("metadata.name", name, "may not be '.' or '..' and may not contain '/' or '%'")]
        return []
    if kind in _LABEL_NAMED:
        return [] if is_dns_label(name) else [invalid_value("metadata.name", name, _LABEL_ADVICE)]
    return [] if is_dns_subdomain(name) else [invalid_value("metadata.name", name, _SUBDOMAIN_ADVICE)]


def label_causes(labels: Any, path: str = "metadata.labels") -> list[Cause]:
    """What is wrong with a map of labels."""
    causes = []
    for key, value in labels.items():
        if not is_qualified_name(key):
            causes.append(invalid_value(path, key, _KEY_ADVICE))
        if value and not is_label_value(value):
            causes.append(invalid_value(path, value, _VALUE_ADVICE))
    return causes


_KEY_ADVICE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_ADVICE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@lru_cache(maxsize=8192)
def is_label_value(value: str) -> bool:
    """Whether `value` may be the value of a label."""
    return not value or (len(value) <= 63 and _QUALIFIED.fullmatch(value) is not None)


@lru_cache(maxsize=8192)
def is_qualified_name(key: str) -> bool:
    """Whether `key` is a label or annotation key, with or without a prefix."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return len(name) <= 63 and _QUALIFIED.fullmatch(name) is not None


def annotation_causes(annotations: Any) -> list[Cause]:
    """What is wrong with a map of annotations."""
    causes = [
        invalid_value("metadata.annotations", key, _KEY_ADVICE)
        for key in annotations
        if not is_qualified_name(key.lower())
    ]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MAX_ANNOTATIONS_BYTES:
        causes.append(
            Cause(
                "FieldValueTooLong",
                f"Too long: may not be more than {_MAX_ANNOTATIONS_BYTES} bytes",
                "metadata.annotations",
            )
        )
    return causes
