"""Validation of names, labels, annotations and finalizers, worded as a real API server words it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

from muster.sim.api_status import Cause, invalid_value

_LABEL_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL_PART)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL_PART}(\.{_LABEL_PART})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_GENERATED = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED = 63
_SUFFIX = 5
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
_CHARACTERS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_WITH_PREFIX = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_VALUE_ADVICE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

_PATH_NAMED = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Event", "PodDisruptionBudget"}
_LABEL_NAMED = {"Namespace", "Service"}
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def generated_name(base: str, rng: Random) -> str:
    """`base` with a random suffix of five characters; at most 63 characters."""
    return base[: _MAX_GENERATED - _SUFFIX] + "".join(rng.choice(_GENERATED) for _ in range(_SUFFIX))


def is_dns_label(name: str) -> bool:
    return len(name) <= 63 and _DNS_LABEL.fullmatch(name) is not None


def is_dns_subdomain(name: str) -> bool:
    return len(name) <= 253 and _DNS_SUBDOMAIN.fullmatch(name) is not None


def label_name_faults(name: str) -> list[str]:
    """What is wrong with a DNS label."""
    if len(name) > 63:
        faults = ["must be no more than 63 characters"]
    elif is_dns_subdomain(name) and "." in name:
        return ["must not contain dots"]
    else:
        faults = []
    return faults if _DNS_LABEL.fullmatch(name) else [*faults, _LABEL_ADVICE]


def subdomain_faults(name: str) -> list[str]:
    """What is wrong with a DNS subdomain."""
    faults = ["must be no more than 253 characters"] if len(name) > 253 else []
    return faults if _DNS_SUBDOMAIN.fullmatch(name) else [*faults, _SUBDOMAIN_ADVICE]


def _path_faults(name: str) -> list[str]:
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def _faults_of(kind: str) -> Callable[[str], list[str]]:
    if kind in _PATH_NAMED:
        return _path_faults
    return label_name_faults if kind in _LABEL_NAMED else subdomain_faults


@lru_cache(maxsize=8192)
def _named_well(kind: str, name: str) -> bool:
    return not _faults_of(kind)(name)


def name_causes(kind: str, name: str) -> list[Cause]:
    """What is wrong with the name of an object of this kind."""
    if _named_well(kind, name):
        return []
    return [invalid_value("metadata.name", name, fault) for fault in _faults_of(kind)(name)]


def generate_name_causes(kind: str, base: str) -> list[Cause]:
    """What is wrong with a prefix for names: it may end with '-', unlike a name."""
    if not base or _named_well(kind, base):
        return []
    masked = base[:-1] + "a" if base.endswith("-") and len(base) > 1 else base
    return [invalid_value("metadata.generateName", base, fault) for fault in _faults_of(kind)(masked)]


_NAMING = {"Pod": "the Pod's hostname", "Deployment": "Pod names and hostnames"}


def hostname_warning(kind: str, name: str) -> str:
    """What a client is told about a name that makes bad hostnames; "" when there is nothing to say."""
    used = _NAMING.get(kind)
    if used is None:
        return ""
    faults = ["must be no more than 63 characters"] if len(name) > 63 else []
    if "." in name:
        faults.append("must not contain dots")
    if not faults:
        return ""
    return (
        f"metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is "
        f"recommended: [{' '.join(faults)}]"
    )


def label_causes(labels: Any, path: str = "metadata.labels") -> list[Cause]:
    """What is wrong with a map of labels."""
    causes = []
    for key, value in labels.items():
        causes += [invalid_value(path, key, fault) for fault in qualified_name_faults(key)]
        causes += [invalid_value(path, value, fault) for fault in label_value_faults(value)]
    return causes


def label_value_faults(value: str) -> list[str]:
    """What is wrong with the value of a label."""
    if is_label_value(value):
        return []
    faults = ["must be no more than 63 bytes"] if len(value.encode()) > 63 else []
    return faults if _QUALIFIED.fullmatch(value) else [*faults, _VALUE_ADVICE]


def qualified_name_faults(key: str) -> list[str]:
    """What is wrong with a key such as `example.com/name`."""
    if is_qualified_name(key):
        return []
    parts = key.split("/")
    if len(parts) > 2:
        return [f"a valid label key {_CHARACTERS} {_WITH_PREFIX}"]
    faults = []
    if len(parts) == 2:
        prefix = parts[0]
        if not prefix:
            faults.append("prefix part must be non-empty")
        elif len(prefix) > 253:
            faults.append("prefix part must be no more than 253 bytes")
        if prefix and not _DNS_SUBDOMAIN.fullmatch(prefix):
            faults.append(f"prefix part {_SUBDOMAIN_ADVICE}")
    name = parts[-1]
    if not name:
        faults.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        faults.append("name part must be no more than 63 bytes")
    return faults if _QUALIFIED.fullmatch(name) else [*faults, f"name part {_CHARACTERS}"]


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
    """What is wrong with a map of annotations. Their keys may have upper case prefixes."""
    causes = [
        invalid_value("metadata.annotations", key, fault)
        for key in annotations
        for fault in qualified_name_faults(key.lower())
    ]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS_BYTES:
        text = f"Too long: may not be more than {_MAX_ANNOTATIONS_BYTES} bytes"
        causes.append(Cause("FieldValueTooLong", text, "metadata.annotations"))
    return causes


def is_bare_finalizer(name: str) -> bool:
    """Whether a finalizer is neither a standard one nor that of a domain."""
    return "/" not in name and name not in _STANDARD_FINALIZERS


def finalizer_causes(finalizers: list[str], *, any_name: bool = False) -> list[Cause]:
    """What is wrong with a list of finalizers. `any_name`: they need not belong to a domain."""
    causes = []
    for at, name in enumerate(finalizers):
        faults = qualified_name_faults(name)
        causes += [invalid_value("metadata.finalizers", name, fault) for fault in faults]
        if not faults and not any_name and is_bare_finalizer(name):
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid_value(f"metadata.finalizers[{at}]", name, detail))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        causes.append(invalid_value("metadata.finalizers", finalizers, detail))
    return causes
