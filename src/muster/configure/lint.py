"""Lints: what is well-formed and still wrong, such as secrets written out, floating tags, unknown value paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from muster.configure.catalogue import ROOT, Catalogue, Component, Overlay, Patch, SourceKind
from muster.configure.parameters import value_paths
from muster.configure.values import Path, get, leaves, parse_path, path_text
from muster.errors import BadInputError

if TYPE_CHECKING:
    from muster.configure.recipe import RecipeComponent

_SECRET_KEY = re.compile(
    r"(password|passwd|passphrase|pwd|(?:^|[_-])pass|token|api_?key|private_?key|access_?key|secret_?key|license_?key"
    r"|encryption_?key|signing_?key|client_?secret|credentials?|dockerconfigjson|htpasswd)$",
    re.I,
)
_REFERENCE_KEY = re.compile(r"(existing|name$|ref$|path$|file$|mount|ttl|enabled$|keyref|selector)", re.I)
_KEY_OF_SECRET = re.compile(r"(password|username|user|token)_?key", re.I)
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bAKIA[0-9A-Z]{16}\b|\bnvapi-[\w-]{20,}|\bgh[pousr]_\w{30,}|\bhf_\w{30,}"
    r"|://[^/\s:@]+:[^/\s:@]+@|\bBearer [\w.~+/-]{16,}|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.|\bhooks\.slack\.com/services/\w"
    r"|--[\w-]*(?:password|passwd|token|api-?key|secret-?key|client-?secret)=(?!\$[({])[^\s]",
    re.ASCII,
)
_EXPANDED = re.compile(r"\$\(\w+\)|\$\{\w+\}", re.ASCII)
"""A container's own environment variable: filled in where it runs."""
_FLOATING_IMAGE = re.compile(r"[^\s/]+(/[^\s:]+)*:(latest|main|master|nightly|edge|stable)", re.I)
_FLOATING_TAGS = frozenset({"latest", "main", "master", "nightly", "edge", "stable"})
_TAG_KEYS = frozenset({"tag", "imagetag", "version"})
_IMAGE_KEYS = frozenset({"image", "images", "repository"})
_PASSWORDS = ("password", "passwd", "passphrase", "pwd")
_SWITCHES = frozenset({"true", "false"})
_EXACT = re.compile(r"v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?", re.ASCII)


class Rule(StrEnum):
    SECRET = "secret"  # noqa: S105 - the name of a lint
    FLOATING = "floating-version"
    SOURCE = "incoherent-source"
    PIN = "shadowing-pin"
    TWICE = "named-twice"
    EVERYWHERE = "applies-everywhere"
    UNUSED = "unused"
    CRITERION = "doubtful-criterion"
    PATH = "unknown-path"
    RECIPE = "recipe-fails"
    HELD = "held-nodes"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing to mend."""

    where: str
    """The file."""
    rule: Rule
    message: str
    """One sentence with the remedy."""
    severity: Severity = Severity.ERROR


class Paths(Protocol):
    """The value paths that a chart knows."""

    def unknown(self, path: Path) -> str | None: ...


def lint_values(component: str, values: Mapping[str, Any], source: str) -> None:
    """Raise BadInputError for the first literal secret or floating image tag in `values`."""
    for _, path, message in value_problems(values):
        raise BadInputError(f"{component}:{path_text(path)} ({source}) {message}")


def lint_component(component: RecipeComponent, source: str) -> None:
    """Raise BadInputError for the first literal secret or floating image tag in the values and manifests."""
    lint_values(component.name, component.values, source)
    for file in (*component.pre_manifests, *component.post_manifests):
        for item in file.objects or ():
            for message in _object_problems(item):
                raise BadInputError(f"{component.name}/{file.name} ({source}): {message}")


def _object_problems(item: Mapping[str, Any]) -> Iterator[str]:
    kind = item.get("kind")
    if kind == "Secret" and (item.get("data") or item.get("stringData")):
        yield "a Secret holds its content, and recipes are shared; create it in the cluster instead."
    for _, path, message in value_problems(item):
        yield f"{kind}: {path_text(path)} {message}"


def value_problems(values: Mapping[str, Any]) -> Iterator[tuple[Rule, Path, str]]:
    """(rule, path, what is wrong and the remedy) of literal secrets and floating tags."""
    for path, value in _texts(values, ()):
        key = next((part for part in reversed(path) if not part.startswith("[")), "")
        is_text = value not in _SWITCHES and not _EXPANDED.fullmatch(value)
        if is_text and (_SECRET_TEXT.search(value) or _is_secret(key)):
            yield (
                Rule.SECRET,
                path,
                "is a secret written out; put it into a Secret and name that Secret in the values.",
            )
        elif (key.lower() in _TAG_KEYS and value.lower() in _FLOATING_TAGS) or (
            key.lower() in _IMAGE_KEYS and _FLOATING_IMAGE.fullmatch(value)
        ):
            yield (
                Rule.FLOATING,
                path,
                f"is the image tag {value[:60]!r}, which moves; pin an exact tag or digest.",
            )


def _texts(value: Any, at: Path) -> Iterator[tuple[Path, str]]:
    """Every text that is not empty; that of `{name: X, value: text}` counts as the key X.

    A password of digits is a text too.
    """
    if isinstance(value, Mapping):
        name, text = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(text, str) and text:
            yield (*at, name), text
            value = {key: below for key, below in value.items() if key != "value"}
        for key, below in value.items():
            yield from _texts(below, (*at, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _texts(below, (*at, f"[{index}]"))
    elif isinstance(value, str) and value:
        yield at, value
    elif isinstance(value, int) and not isinstance(value, bool) and at and at[-1].lower().endswith(_PASSWORDS):
        yield at, str(value)


def _is_secret(key: str) -> bool:
    if _KEY_OF_SECRET.fullmatch(key) or _REFERENCE_KEY.search(key):
        return False
    return _SECRET_KEY.search(key) is not None


def lint_catalogue(
    catalogue: Catalogue, paths_of: Callable[[str], Paths | None] | None = None
) -> tuple[Finding, ...]:
    """Every finding of a catalogue that hangs together, sorted. `paths_of` gives the value paths of a component."""
    found = [
        *(f for component in catalogue.components.values() for f in _lint_component(component)),
        *(f for overlay in catalogue.overlays.values() for f in _lint_overlay(catalogue, overlay)),
        *(
            f
            for mixin in catalogue.mixins.values()
            for f in _lint_patches(catalogue, _mixin_file(mixin.name), mixin.components)
        ),
        *_lint_manifests(catalogue),
        *_lint_use(catalogue),
        *(_lint_paths(catalogue, paths_of) if paths_of is not None else ()),
    ]
    return tuple(sorted(set(found)))


def _mixin_file(name: str) -> str:
    return f"mixins/{name}.yaml"


def _lint_component(component: Component) -> Iterator[Finding]:
    where, source = f"components/{component.name}.yaml", component.source
    for rule, path, message in value_problems(component.values):
        yield Finding(where, rule, f"{path_text(path)} {message}")
    yield from _twice(where, "aliases", component.aliases)
    yield from _lint_held(where, component, component.values)
    if source.kind is SourceKind.MANIFESTS:
        if source.repository or source.chart or source.version:
            yield Finding(where, Rule.SOURCE, "has manifests only and names a chart; drop one of the two.")
        return
    if component.unavailable:
        return
    missing = [name for name in ("repository", "chart", "version") if not getattr(source, name)]
    if missing:
        yield Finding(where, Rule.SOURCE, f"is a chart without {' and '.join(missing)}; state it.")
    elif not _EXACT.fullmatch(source.version):
        yield Finding(where, Rule.FLOATING, f"has the version {source.version[:60]!r}, which is not exact; pin one.")
    address = source.repository.rpartition("://")[2]
    if "@" in address or address.count(":") > 1 or (":" in address.partition("/")[2]):
        yield Finding(
            where, Rule.SOURCE, "has a repository with a tag, digest or user in it; give 'version' instead."
        )
    elif source.repository.startswith("oci://") and address.rpartition("/")[2] == source.chart:
        yield Finding(
            where,
            Rule.SOURCE,
            "has a repository that ends with the chart's name; look whether the chart lies below that.",
            Severity.WARNING,
        )


def _lint_overlay(catalogue: Catalogue, overlay: Overlay) -> Iterator[Finding]:
    where = f"overlays/{overlay.name}.yaml"
    yield from _lint_patches(catalogue, where, overlay.components)
    yield from _twice(where, "mixins", overlay.mixins)
    for phase, checks in overlay.checks.items():
        yield from _twice(where, f"checks.{phase}", checks.checks)
    for value in overlay.profile.values.values() if overlay.profile else ():
        yield from _lint_patches(catalogue, where, value.components)
    is_base = overlay.name == ROOT or any(o.base == overlay.name for o in catalogue.overlays.values())
    if not overlay.criteria and not is_base and not overlay.notes:
        yield Finding(
            where,
            Rule.EVERYWHERE,
            "has no criteria, so it applies to every recipe; give it criteria, or say in 'notes' that this is meant.",
            Severity.WARNING,
        )


def _lint_patches(catalogue: Catalogue, where: str, patches: Mapping[str, Patch]) -> Iterator[Finding]:
    for name, patch in patches.items():
        component = catalogue.components[name]
        for rule, path, message in value_problems(patch.values):
            yield Finding(where, rule, f"{name}:{path_text(path)} {message}")
        for what, names in (
            ("dependsOn", patch.depends_on),
            ("manifests.pre", patch.manifests.pre),
            ("manifests.post", patch.manifests.post),
        ):
            yield from _twice(where, f"{name}.{what}", names)
        yield from _lint_held(where, component, patch.values)
        if name in patch.depends_on:
            yield Finding(where, Rule.TWICE, f"{name} depends on itself; drop that.")
        if not patch.version:
            continue
        if component.source.kind is SourceKind.MANIFESTS:
            yield Finding(where, Rule.SOURCE, f"gives {name} a version, which has no chart; drop it.")
        elif not _EXACT.fullmatch(patch.version):
            yield Finding(where, Rule.FLOATING, f"gives {name} the version {patch.version[:60]!r}; pin an exact one.")
        elif patch.version == component.source.version:
            yield Finding(
                where,
                Rule.PIN,
                f"repeats the version of {name} and would hold it back when that moves; drop version and reason.",
            )


def _lint_held(where: str, component: Component, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Explicit empty tolerations of DaemonSets that prepare nodes: resolution leaves them as they are."""
    for daemon in component.placement.daemon_tolerations:
        path = _path(daemon.path)
        if path is None:
            yield Finding(where, Rule.PATH, f"{daemon.path[:80]!r} is no path to a value; correct it.")
        elif get(values, path) in ([], None):
            yield Finding(
                where,
                Rule.HELD,
                f"{component.name}:{daemon.path} is empty, so its pods never run on held nodes, and every node is "
                "held until it is certified; leave it out, or list the tolerations that are meant.",
                Severity.WARNING,
            )


def _twice(where: str, what: str, names: Iterable[str]) -> Iterator[Finding]:
    seen: list[str] = []
    for name in names:
        if name in seen:
            yield Finding(where, Rule.TWICE, f"names {name!r} twice in {what}; name it once.")
        seen.append(name)


def _path(text: str) -> Path | None:
    try:
        return parse_path(text)
    except BadInputError:
        return None


def _lint_manifests(catalogue: Catalogue) -> Iterator[Finding]:
    for file, objects in catalogue.manifests.items():
        where = f"manifests/{file}"
        for text in value_paths(objects):
            if _path(text) is None:
                yield Finding(where, Rule.PATH, f"reads {text[:80]!r}, which is no path to a value; correct it.")
        for item in objects:
            kind = item.get("kind")
            if kind == "Secret" and (item.get("data") or item.get("stringData")):
                yield Finding(where, Rule.SECRET, "holds a Secret with content; create it in the cluster instead.")
            for path, text in _texts(item, ()):
                is_container = path[-1] == "image" and {"containers", "initContainers"} & {*path}
                if is_container and "@" not in text and ":" not in text.rpartition("/")[2]:
                    yield Finding(where, Rule.FLOATING, f"{kind}: the image {text[:80]!r} has no tag; pin one.")
            for rule, path, message in value_problems(item):
                yield Finding(where, rule, f"{kind}: {path_text(path)} {message}")


def _lint_use(catalogue: Catalogue) -> Iterator[Finding]:
    """What nobody refers to."""
    mixins = {name for overlay in catalogue.overlays.values() for name in overlay.mixins}
    for name in sorted(set(catalogue.mixins) - mixins):
        yield Finding(_mixin_file(name), Rule.UNUSED, "is used by no overlay; use or remove it.", Severity.WARNING)
    patches = [(name, patch) for _, name, patch in all_patches(catalogue)]
    for name in sorted(set(catalogue.components) - {name for name, _ in patches}):
        if not catalogue.components[name].unavailable:
            yield Finding(
                f"components/{name}.yaml", Rule.UNUSED, "is used by no overlay; use or remove it.", Severity.WARNING
            )
    named = {
        f"{name}/{file}"
        for name, manifests in (
            *((name, patch.manifests) for name, patch in patches),
            *((c.name, c.manifests) for c in catalogue.components.values()),
        )
        for file in (*manifests.pre, *manifests.post)
    }
    for file in sorted(set(catalogue.manifests) - named):
        yield Finding(
            f"manifests/{file}", Rule.UNUSED, "is named by no component; name or remove it.", Severity.WARNING
        )


def all_patches(catalogue: Catalogue) -> Iterator[tuple[str, str, Patch]]:
    """(file, component, patch) of every overlay, profile value and mixin."""
    for overlay in catalogue.overlays.values():
        for value in (overlay, *(overlay.profile.values.values() if overlay.profile else ())):
            for name, patch in value.components.items():
                yield f"overlays/{overlay.name}.yaml", name, patch
    for mixin in catalogue.mixins.values():
        for name, patch in mixin.components.items():
            yield _mixin_file(mixin.name), name, patch


def _lint_paths(catalogue: Catalogue, paths_of: Callable[[str], Paths | None]) -> Iterator[Finding]:
    for where, name, path in _used_paths(catalogue):
        known = paths_of(name)
        suggestion = known.unknown(path) if known is not None else None
        if suggestion is not None:
            hint = f"did you mean {suggestion!r}?" if suggestion else "look into the chart's values.yaml."
            yield Finding(where, Rule.PATH, f"{name}: the chart knows no value {path_text(path)!r}; {hint}")


def _used_paths(catalogue: Catalogue) -> Iterator[tuple[str, str, Path]]:
    """(file, component, path) of every value that is set, and of every one that a placeholder of a manifest reads."""
    for file, objects in catalogue.manifests.items():
        for text in value_paths(objects):
            if (path := _path(text)) is not None:
                yield f"manifests/{file}", file.partition("/")[0], path
    holders = [(f"components/{c.name}.yaml", c.name, c.values) for c in catalogue.components.values()]
    holders += [(file, name, patch.values) for file, name, patch in all_patches(catalogue)]
    for where, name, values in holders:
        for path, _ in leaves(values):
            if not any(part.startswith("[") for part in path):
                yield where, name, path
