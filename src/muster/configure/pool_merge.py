"""One set of components from the recipes of several pools.

A shared component is installed once, so the pools must agree on its version and, path by path, on its values; where
they do not, a person decides. A component of scope `pool` is installed once per pool, on the nodes of that pool.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster.configure.catalogue import Catalogue, Scope
from muster.configure.provenance import DECLARED, INFERRED, Setting
from muster.configure.recipe import ManifestFile, RecipeComponent
from muster.configure.resolve import Resolution
from muster.configure.values import (
    ABSENT,
    Path,
    Values,
    get,
    parse_path,
    parse_value,
    path_text,
    same,
    sort_keys,
    whole_leaves,
)
from muster.errors import BadInputError

_SHOWN = 5
"""Disagreements that one error names."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a person decided: a value, or (`pool`) what one pool has there."""

    component: str
    path: Path
    text: str
    value: Any = ABSENT
    pool: str = ""

    def for_pools(self, values: Mapping[str, Any]) -> Any:
        """The value that holds, given that of each pool; ABSENT when nothing should be set."""
        return values[self.pool] if self.pool else self.value


@dataclass
class Merged:
    components: dict[str, RecipeComponent] = field(default_factory=dict)
    """By name, with the declared edges only."""
    settings: dict[str, list[Setting]] = field(default_factory=dict)
    turned_off: list[str] = field(default_factory=list)
    """Components that were settled to be off."""


def parse_settlements(texts: Iterable[str], pools: Sequence[str]) -> dict[str, Settlement]:
    """Read the texts of `--settle`, keyed `component:path`. Raises BadInputError."""
    found: dict[str, Settlement] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        component, colon, inner = target.partition(":")
        if not equals or not colon or not component or not inner:
            raise BadInputError(f"--settle {text[:80]!r} is malformed; write it as component:path=value.")
        try:
            path = parse_path(inner)
            pool = value[1:] if value.startswith("@") and value[1:] in pools else ""
            if value.startswith("@") and not pool:
                raise BadInputError(f"no pool is named {value[1:61]!r}; pools: {', '.join(pools)}.")
            settlement = Settlement(component, path, value, ABSENT if pool else parse_value(value), pool)
        except BadInputError as error:
            raise BadInputError(f"--settle {text[:80]!r}: {error}") from error
        if any(segment.startswith("[") for segment in path):
            raise BadInputError(f"--settle {text[:80]!r} points into a list; settle the whole list.")
        for other in found.values():
            shorter = min(len(other.path), len(path))
            if other.component == component and other.path[:shorter] == path[:shorter]:
                raise BadInputError(f"--settle {text[:80]!r} overlaps another --settle; give one of them.")
        found[f"{component}:{path_text(path)}"] = settlement
    return found


def merge_components(
    resolutions: Mapping[str, Resolution],
    selectors: Mapping[str, Mapping[str, str]],
    catalogue: Catalogue,
    settlements: Mapping[str, Settlement],
) -> Merged:
    """Merge the components of all pools (in the order of `resolutions`). Raises BadInputError where they disagree."""
    merge = _Merge(resolutions, selectors, catalogue, settlements)
    names = sorted({c.name for r in resolutions.values() for c in r.recipe.components})
    for name in names:
        merge.add(name)
    merge.finish()
    return merge.merged


class _Merge:
    def __init__(
        self,
        resolutions: Mapping[str, Resolution],
        selectors: Mapping[str, Mapping[str, str]],
        catalogue: Catalogue,
        settlements: Mapping[str, Settlement],
    ) -> None:
        self.resolutions = resolutions
        self.selectors = selectors
        self.catalogue = catalogue
        self.settlements = settlements
        self.used: list[str] = []
        self.conflicts: list[str] = []
        self.merged = Merged()

    def add(self, name: str) -> None:
        found = {p: r.recipe.component(name) for p, r in self.resolutions.items()}
        by_pool = {pool: component for pool, component in found.items() if component is not None}
        if self._is_per_pool(name):
            for pool, component in by_pool.items():
                self._add_copy(component, pool)
        elif self._is_on(name, by_pool):
            self._add_shared(name, by_pool)
        else:
            self.merged.turned_off.append(name)

    def finish(self) -> None:
        """Point the edges at the merged components and refuse what is still open."""
        if self.conflicts:
            more = f"; and {len(self.conflicts) - _SHOWN} more" if len(self.conflicts) > _SHOWN else ""
            raise BadInputError(
                f"The pools want different things of shared components: {'; '.join(self.conflicts[:_SHOWN])}{more}. "
                "Decide each with --settle component:path=value, or =@pool for what that pool has."
            )
        unused = sorted(set(self.settlements) - set(self.used))
        if unused:
            raise BadInputError(
                f"--settle {unused[0][:80]} decides nothing: the pools agree, or each has its own; leave it out."
            )
        present = self.merged.components
        for name, component in present.items():
            kept = tuple(sorted({needed for needed in component.depends_on if needed in present}))
            present[name] = msgspec.structs.replace(component, depends_on=kept)

    def _is_per_pool(self, name: str) -> bool:
        return self.catalogue.components[name].scope is Scope.POOL

    def _is_on(self, name: str, by_pool: Mapping[str, RecipeComponent]) -> bool:
        off = [pool for pool, r in self.resolutions.items() if name in r.recipe.disabled]
        if not off:
            return True
        states: dict[str, Any] = {**dict.fromkeys(by_pool, True), **dict.fromkeys(off, False)}
        value = self._settled(name, ("enabled",), states)
        if isinstance(value, bool):
            return value
        self.conflicts.append(f"{name}:enabled is {_sides(states)}")
        return True

    def _settled(self, name: str, path: Path, values: Mapping[str, Any]) -> Any:
        """What was settled at exactly `path`; None when nothing was."""
        target = f"{name}:{path_text(path)}"
        if target not in self.settlements:
            return None
        self.used.append(target)
        return self.settlements[target].for_pools({**dict.fromkeys(self.resolutions, ABSENT), **values})

    def _add_copy(self, component: RecipeComponent, pool: str) -> None:
        name = f"{component.name}-{pool}"
        if name in self.catalogue.components or name in self.merged.components:
            raise BadInputError(
                f"The copy of {component.name!r} for pool {pool!r} would be named as another component."
            )
        paths = component.placement.accelerated_selectors
        if not paths:
            raise BadInputError(
                f"Component {component.name!r} is installed once per pool, but the catalogue names no value path for "
                "its node selector (placement.acceleratedSelectors); add it in a catalogue layer."
            )
        values = copy.deepcopy(component.values)
        self._take_settings(component.name, name, pool)
        for text in paths:
            path = parse_path(text)
            present = get(values, path)
            selector = {**(present if isinstance(present, dict) else {}), **self.selectors[pool]}
            _set(values, path, selector)
            for label, value in self.selectors[pool].items():
                where = f"{name}:{path_text((*path, label))}"
                self.merged.settings.setdefault(where, []).append(Setting(f"selector of pool {pool}", value))
        self.merged.components[name] = msgspec.structs.replace(
            component,
            name=name,
            pool=pool,
            depends_on=tuple(self._mapped(component, pool)),
            inferred={},
            aliases=tuple(f"{alias}-{pool}" for alias in component.aliases),
            values=sort_keys(values),
        )

    def _mapped(self, component: RecipeComponent, pool: str) -> list[str]:
        """The declared edges of a component of one pool, by the names after the merge."""
        declared = [needed for needed in component.depends_on if needed not in component.inferred]
        return [f"{needed}-{pool}" if self._is_per_pool(needed) else needed for needed in declared]

    def _add_shared(self, name: str, by_pool: Mapping[str, RecipeComponent]) -> None:
        first_pool, first = next(iter(by_pool.items()))
        labels: dict[str, str] = {}
        for pool, component in by_pool.items():
            if component.source != first.source or component.namespace != first.namespace:
                raise BadInputError(
                    f"Pools {first_pool!r} and {pool!r} need {name!r} as {_source_text(first)} and "
                    f"{_source_text(component)}; a shared component has one version and one namespace: choose other "
                    "criteria, or change the pin in a catalogue layer."
                )
            for label, value in component.namespace_labels.items():
                if labels.setdefault(label, value) != value:
                    raise BadInputError(
                        f"The pools want {label}={labels[label]} and {label}={value} of the namespace of {name!r}; "
                        "make the catalogue layer agree with itself."
                    )
            self._take_settings(name, name, pool)
        values = self._values(name, by_pool)
        self.merged.components[name] = msgspec.structs.replace(
            first,
            depends_on=tuple(sorted({n for pool, c in by_pool.items() for n in self._mapped(c, pool)})),
            inferred={},
            namespace_labels=dict(sorted(labels.items())),
            pre_manifests=_files(c.pre_manifests for c in by_pool.values()),
            post_manifests=_files(c.post_manifests for c in by_pool.values()),
            values=sort_keys(values),
        )

    def _values(self, name: str, by_pool: Mapping[str, RecipeComponent]) -> Values:
        flat = {pool: dict(whole_leaves(component.values)) for pool, component in by_pool.items()}
        paths = sorted({path for leaves in flat.values() for path in leaves})
        values: Values = {}
        open_paths: list[tuple[Path, dict[str, Any]]] = []
        for path in paths:
            sides = {pool: leaves.get(path, ABSENT) for pool, leaves in flat.items()}
            one = next(iter(sides.values()))
            if all(same(one, other) for other in sides.values()):
                _set(values, path, copy.deepcopy(one))
            else:
                open_paths.append((path, sides))
        decided = [
            (target, settlement)
            for target, settlement in sorted(self.settlements.items())
            if settlement.component == name
            and any(path[: len(settlement.path)] == settlement.path for path, _ in open_paths)
        ]
        for target, settlement in decided:
            here = {pool: get(component.values, settlement.path) for pool, component in by_pool.items()}
            if settlement.pool and settlement.pool not in here:
                raise BadInputError(f"--settle {target}=@{settlement.pool}: that pool has no {name}; name another.")
            value = settlement.for_pools(here)
            _set(values, settlement.path, copy.deepcopy(value))
            self.used.append(target)
            self._record_settlement(name, settlement, value, here)
        for path, sides in open_paths:
            if not any(path[: len(s.path)] == s.path for _, s in decided):
                self.conflicts.append(f"{name}:{path_text(path)} is {_sides(sides)}")
        return values

    def _record_settlement(self, name: str, settlement: Settlement, value: Any, sides: Mapping[str, Any]) -> None:
        replaced = ({p: v for p, v in sides.items() if v is not ABSENT}, "the pools")
        inner = [(settlement.path, value)]
        if isinstance(value, dict) and value:
            inner = [((*settlement.path, *path), leaf) for path, leaf in whole_leaves(value)]
        for path, leaf in inner:
            if leaf is not ABSENT:
                settings = self.merged.settings.setdefault(f"{name}:{path_text(path)}", [])
                settings.append(
                    Setting(f"--settle {settlement.component}:{path_text(settlement.path)}", leaf, replaced)
                )

    def _take_settings(self, name: str, new_name: str, pool: str) -> None:
        """Carry over who set what; where pools were told by different files, each setting names its pool."""
        for path, settings in self.resolutions[pool].provenance.items():
            if not path.startswith((f"{name}:", f"{name}.")) or settings[-1].value == INFERRED:
                continue
            inner = path[len(name) :]
            edge, _, needed = inner.partition(".dependsOn.")
            if needed and not edge:
                if settings[-1].value != DECLARED:
                    continue
                inner = f".dependsOn.{needed}-{pool}" if self._is_per_pool(needed) else inner
            present = self.merged.settings.setdefault(f"{new_name}{inner}", [])
            if not present:
                present.extend(settings)
            elif tuple(present[-len(settings) :]) != settings:
                present.extend(
                    Setting(f"{setting.source} in pool {pool}", setting.value, setting.replaced)
                    for setting in settings
                )


def _files(lists: Iterable[tuple[ManifestFile, ...]]) -> tuple[ManifestFile, ...]:
    return tuple({file.name: file for files in lists for file in files}.values())


def _set(values: Values, path: Path, value: Any) -> None:
    """Set or (ABSENT) drop the value at `path`, whatever is on the way."""
    node = values
    for segment in path[:-1]:
        inner = node.get(segment)
        if not isinstance(inner, dict):
            if value is ABSENT:
                return
            inner = node[segment] = {}
        node = inner
    if value is ABSENT:
        node.pop(path[-1], None)
    else:
        node[path[-1]] = value


def _sides(sides: Mapping[str, Any]) -> str:
    """`"a" for pool x and not set for pool y`."""
    shown: dict[str, list[str]] = {}
    for pool, value in sides.items():
        text = "not set" if value is ABSENT else json.dumps(value, ensure_ascii=False)[:60]
        shown.setdefault(text, []).append(pool)
    return " and ".join(f"{text} for pool {', '.join(pools)}" for text, pools in shown.items())


def _source_text(component: RecipeComponent) -> str:
    return f"{component.source.chart or 'manifests'} {component.source.version} in {component.namespace}"
