"""One file of a layer, merged into what lies below it; and the ledger of what layers set. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from muster.configure.catalogue import Component, Mixin, Origin, Overlay
from muster.configure.catalogue_check import check_kube_version
from muster.configure.constraints import Constraint, demand, narrow
from muster.configure.layers.objects import by_identity, onto
from muster.configure.layers.rules import Room, Rule, key_of, provenance_of, room_of, rule_of
from muster.configure.layers.source import LayerSource
from muster.configure.values import ABSENT, Path, Record, Values, merge, path_text
from muster.errors import BadInputError

_MONTH = re.compile(r"\d{4}-\d{2}(-\d{2})?", re.ASCII)
_EMPTY: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Setting:
    """A layer set a value."""

    value: Any
    layer: str
    source: str


@dataclass
class Ledger:
    """What the layers so far did."""

    settings: dict[str, dict[Path, Setting]] = field(default_factory=dict)
    """File -> path -> the last setting."""
    inner: dict[str, dict[Path, dict[str, Setting]]] = field(default_factory=dict)
    """File -> path -> layer -> one of its settings below that path."""
    demands: dict[tuple[str, Path], list[Origin]] = field(default_factory=dict)
    origins: dict[str, dict[str, list[Origin]]] = field(default_factory=dict)
    makers: dict[str, str] = field(default_factory=dict)
    """Files that a layer made, and the source text of that layer."""

    def opposed(self, file: str, path: Path, value: Any, layer: str) -> Setting | None:
        """A setting of another layer that says something else about `path`, about what is around it or in it."""
        settings = self.settings.get(file, {})
        exact = settings.get(path)
        if exact is not None and exact.layer != layer and not same(exact.value, value):
            return exact
        around = (settings.get(path[:length]) for length in range(1, len(path)))
        inside = self.inner.get(file, {}).get(path, {}).values()
        # An empty map is no more than the room for what lies in it.
        opposed = [s for s in around if s is not None and s.value != _EMPTY] + [s for s in inside if value != _EMPTY]
        return next((s for s in opposed if s.layer != layer), None)

    def enter(self, file: str, path: Path, setting: Setting) -> None:
        self.settings.setdefault(file, {})[path] = setting
        inner = self.inner.setdefault(file, {})
        for length in range(1, len(path)):
            inner.setdefault(path[:length], {})[setting.layer] = setting


@dataclass
class FilePatch:
    """One file of one layer on its way into the catalogue."""

    ledger: Ledger
    layer: LayerSource
    file: str
    is_new: bool
    profile: str = ""

    @property
    def source(self) -> str:
        return f"layer {self.layer.name}: {self.file}"

    def apply(self, below: Any) -> Any:
        """The entry `below` (None: there is none) with the patch merged in."""
        room, content = room_of(self.file), self.layer.files[self.file]
        if self.is_new:
            self.ledger.makers[self.file] = self.source
        tree: Values = {} if below is None else _plain(below)
        if room is Room.MANIFESTS:
            tree = by_identity(below or [], self.source)
            self._merge(tree, onto(tree, by_identity(content, self.source), self.source), ())
            return list(tree.values())
        if not isinstance(content, dict):
            raise BadInputError(f"{self.source} holds no map; write the fields of the file that it patches.")
        self._check_reasons(room, content)
        profiles = [p["name"] for t in (tree, content) if isinstance(p := t.get("profile"), dict) and "name" in p]
        self.profile = str(profiles[0]) if profiles else ""
        self._merge(tree, content, ())
        return self._entry(room, tree)

    def _entry(self, room: Room, tree: Values) -> Component | Overlay | Mixin:
        kind: Any
        match room:
            case Room.COMPONENTS:
                kind = Component
            case Room.OVERLAYS:
                kind = Overlay
            case Room.MIXINS:
                kind = Mixin
            case Room.MANIFESTS:
                raise AssertionError("manifests are no entries")
            case _:
                assert_never(room)
        tree.setdefault("name", key_of(self.file))
        try:
            entry: Component | Overlay | Mixin = msgspec.convert(tree, kind)
        except msgspec.ValidationError as error:
            raise BadInputError(f"{self.source} does not fit the catalogue: {error}.") from error
        if entry.name != key_of(self.file):
            raise BadInputError(f"{self.source} holds the name {entry.name[:60]!r}; name and file must agree.")
        return entry

    def _check_reasons(self, room: Room, content: Values) -> None:
        """A pin that changes says where the new one comes from; an overlay's version says why."""
        if room is Room.COMPONENTS:
            pin = content.get("pin")
            told = (
                isinstance(pin, dict)
                and str(pin.get("source") or "").strip()
                and _MONTH.fullmatch(str(pin.get("date")))
            )
            if "source" in content and not told:
                raise BadInputError(
                    f"{self.source} sets 'source'; state also pin.source (where the version was read) and pin.date "
                    "(YYYY-MM)."
                )
            return
        for where, patch in _component_patches(content):
            if "version" in patch and not str(patch.get("versionReason") or "").strip():
                raise BadInputError(f"{self.source} overrides the version of {where!r} without a versionReason.")

    def _merge(self, target: Values, patch: Mapping[str, Any], at: Path) -> None:
        room = room_of(self.file)
        fresh = not target
        for key, value in patch.items():
            path = (*at, key)
            rule = rule_of(room, path)
            if rule is Rule.VALUES and isinstance(value, dict):
                inner = target.setdefault(key, {})
                merge(inner, value, self._recorder(path))
            elif value is None:
                raise BadInputError(
                    f"{self.source}: {path_text(path)} is null; only values can be deleted. Leave the field out."
                )
            elif rule is Rule.FIXED:
                self._keep(target, key, value, path, fresh)
            elif rule is Rule.NARROW and isinstance(value, str):
                target[key] = self._narrow(path, target.get(key), value)
            elif rule is Rule.ADD and isinstance(value, list) and isinstance(target.get(key, []), list):
                self._add(target, key, value, path)
            elif isinstance(value, dict):
                if not isinstance(target.get(key), dict):
                    target[key] = {}
                self._merge(target[key], value, path)
            else:
                self._record(path, value, target.get(key, ABSENT))
                target[key] = value

    def _keep(self, target: Values, key: str, value: Any, path: Path, fresh: bool) -> None:
        if fresh or (self.is_new and len(path) == 1):
            target[key] = value
        elif not same(target.get(key), value):
            raise BadInputError(
                f"{self.source} changes {path_text(path)!r}, which stays as it was made; write a file with a name of "
                "its own instead."
            )

    def _narrow(self, path: Path, present: Any, text: str) -> str:
        name = "kubernetes.version" if path == ("kubeVersion",) else path[-1]
        if path == ("kubeVersion",):
            check_kube_version(text, self.source)
        try:
            demand(name, text, self.source)
        except BadInputError as error:
            raise BadInputError(f"{self.source}, constraint {name[:60]!r}: {error}") from error
        before = [Origin(source=self._below(path), value=present)] if isinstance(present, str) else []
        demands = self.ledger.demands.setdefault((self.file, path), before)
        demands.append(Origin(source=self.source, value=text))
        both: Constraint | None = None
        for origin in demands:
            both = narrow(both, name, origin.value, origin.source)
        if both is None:
            raise AssertionError("there is at least the new demand")
        self._tell(path, demands)
        return both.value

    def _add(self, target: Values, key: str, names: list[Any], path: Path) -> None:
        present = target.get(key, [])
        added = [name for name in names if name not in present]
        target[key] = [*present, *added]
        self._remember(path, added, present or ABSENT)

    def _below(self, path: Path) -> str:
        """Who made what lies below the layers at `path`, as resolution writes it."""
        known = provenance_of(self.file, path, self.profile)
        return self.ledger.makers.get(self.file) or (known[0] if known else self.file)

    def _recorder(self, at: Path) -> Record:
        def record(below: Path, value: Any, present: Any) -> None:
            if isinstance(present, dict) and present and value is not None:
                raise BadInputError(
                    f"{self.source} puts one value in the place of the map {path_text((*at, *below))!r}; set its "
                    "entries, or null to drop it."
                )
            self._record((*at, *below), value, present)

        return record

    def _record(self, path: Path, value: Any, present: Any) -> None:
        opposed = self.ledger.opposed(self.file, path, value, self.layer.name)
        if opposed is not None:
            self._require_override(path, opposed)
        self.ledger.enter(self.file, path, Setting(value, self.layer.name, self.source))
        self._remember(path, value, present)

    def _require_override(self, path: Path, earlier: Setting) -> None:
        text = f"{self.file.removesuffix('.yaml')}:{path_text(path)}"
        if any(text == known or text.startswith((f"{known}.", f"{known}[")) for known in self.layer.header.overrides):
            return
        raise BadInputError(
            f"{self.source} and {earlier.source} set {path_text(path)!r} differently; agree on one, or list "
            f"'{text}' under 'overrides' in the layer.yaml of {self.layer.name}."
        )

    def _remember(self, path: Path, value: Any, present: Any) -> None:
        known = provenance_of(self.file, path, self.profile)
        if known is None:
            return
        origins = self.ledger.origins.setdefault(known[0], {}).setdefault(known[1], [])
        if not origins and present is not ABSENT:
            origins.append(Origin(source=self._below(path), value=present))
        origins.append(Origin(source=self.source, value=value))

    def _tell(self, path: Path, demands: Sequence[Origin]) -> None:
        known = provenance_of(self.file, path, self.profile)
        if known is not None:
            self.ledger.origins.setdefault(known[0], {})[known[1]] = list(demands)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 and true differ."""
    return bool(msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted"))


def _plain(entry: Any) -> Any:
    """Plain values of a catalogue entry, defaults left out."""
    return msgspec.json.decode(msgspec.json.encode(entry))


def _component_patches(content: Values) -> list[tuple[str, Values]]:
    """Every component patch in an overlay or mixin, those of profile values included."""
    profile = content.get("profile")
    choices = profile.get("values") if isinstance(profile, dict) else None
    holders = [content, *(choices.values() if isinstance(choices, dict) else ())]
    maps = [m for h in holders if isinstance(h, dict) and isinstance(m := h.get("components"), dict)]
    return [(name, patch) for m in maps for name, patch in m.items() if isinstance(patch, dict)]
