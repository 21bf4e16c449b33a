"""What a layer does to the catalogue below it: lints of what it brings, and every recipe that it touches. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from muster.configure.catalogue import Catalogue
from muster.configure.criteria import Dimension
from muster.configure.layers.rules import Room, key_of, room_of
from muster.configure.layers.source import HEADER, LayerSource
from muster.configure.layers.stack import layered
from muster.configure.lint import Finding, Paths, Rule, Severity, all_patches, lint_catalogue
from muster.configure.matching import maximal_leaves, unavailable
from muster.configure.resolve import leaf_names, resolve
from muster.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Review:
    layer: str
    digest: str
    catalogue: str
    """Digest of the catalogue with the layer on top."""
    recipes: tuple[str, ...]
    """The most specific recipes that the layer touches; each was resolved, with every value of its profiles."""
    findings: tuple[Finding, ...]

    @property
    def is_fine(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def review(
    layer: LayerSource, base: Catalogue, below: Sequence[LayerSource], paths_of: Callable[[str], Paths | None]
) -> Review:
    """Review `layer` on top of `base` and the layers `below` it. `paths_of`: value paths that charts know.

    Raises BadInputError when the layer does not fit at all.
    """
    before = layered(base, below)
    after = layered(base, [*below, layer])

    def known(name: str) -> Paths | None:
        """What is recorded of a chart does not hold for the one that a layer put in its place."""
        one, other = base.components.get(name), after.components[name]
        is_same = one is not None and (one.source.repository, one.source.chart) == (
            other.source.repository,
            other.source.chart,
        )
        return paths_of(name) if is_same else None

    present = set(lint_catalogue(before, known))
    findings = [finding for finding in lint_catalogue(after, known) if finding not in present]
    findings += _lint_criteria(layer, before)
    findings += _lint_bases(layer, after)
    findings += _lint_shadowed(layer, after)
    recipes = tuple(_touched(layer, after))
    findings += _grouped([finding for name in recipes for finding in _resolve(name, after)])
    return Review(layer.name, layer.digest, after.digest, recipes, tuple(sorted(set(findings))))


def _lint_criteria(layer: LayerSource, before: Catalogue) -> Iterator[Finding]:
    """Criteria that look like a slip of the pen, and values that nothing uses."""
    used: list[tuple[str, str]] = []
    for file, content in layer.files.items():
        criteria = content.get("criteria") if room_of(file) is Room.OVERLAYS else None
        for dimension, value in (criteria or {}).items():
            used.append((dimension, value))
            if value in before.vocabulary(Dimension(dimension)) or value in layer.header.criteria.get(dimension, ()):
                continue
            close = difflib.get_close_matches(value, before.vocabulary(Dimension(dimension)), n=1, cutoff=0.75)
            if close:
                yield Finding(
                    file,
                    Rule.CRITERION,
                    f"makes the new {dimension} {value!r}; did you mean {close[0]!r}? If not, list it "
                    f"under 'criteria' in {HEADER}.",
                    Severity.WARNING,
                )
    for dimension, values in layer.header.criteria.items():
        for value in values:
            if (dimension, value) not in used and value not in before.vocabulary(Dimension(dimension)):
                yield Finding(
                    HEADER,
                    Rule.UNUSED,
                    f"lists the {dimension} {value!r}, for which it has no overlay; write one or remove it.",
                    Severity.WARNING,
                )


def _lint_bases(layer: LayerSource, after: Catalogue) -> Iterator[Finding]:
    """Overlays that are for something else than what they are based on; only the os may differ."""
    for file in layer.files:
        if room_of(file) is not Room.OVERLAYS:
            continue
        overlay = after.overlays[key_of(file)]
        for name in after.chain(overlay.name):
            for dimension, value in after.overlays[name].criteria.items():
                own = overlay.criteria.get(dimension, value)
                if own != value and dimension != Dimension.OS:
                    yield Finding(
                        file,
                        Rule.CRITERION,
                        f"is for the {dimension} {own!r} and based on {name}, which is for {value!r}; correct one of "
                        "the two.",
                        Severity.WARNING,
                    )


def _grouped(findings: Sequence[Finding]) -> Iterator[Finding]:
    """One finding for each message: what is wrong in a component is wrong in every recipe that has it."""
    places: dict[str, list[Finding]] = {}
    for finding in findings:
        places.setdefault(finding.message, []).append(finding)
    for message, found in places.items():
        more = f" The same for {len(found) - 1} more of the recipes." if len(found) > 1 else ""
        yield replace(found[0], message=message + more)


def _lint_shadowed(layer: LayerSource, after: Catalogue) -> Iterator[Finding]:
    """Versions that the layer gives to a component, and that an overlay replaces by its own."""
    for file in layer.files:
        content = layer.files[file]
        source = content.get("source") if room_of(file) is Room.COMPONENTS else None
        if not isinstance(source, dict):
            continue
        name = key_of(file)
        for where, patched, patch in all_patches(after):
            if patched == name and patch.version:
                yield Finding(
                    file,
                    Rule.PIN,
                    f"changes the source of {name}, and {where} keeps version {patch.version} "
                    f"({patch.version_reason}); patch that file too, if the reason no longer holds.",
                    Severity.WARNING,
                )


def _touched(layer: LayerSource, after: Catalogue) -> Iterator[str]:
    """Leaves whose recipe a file of the layer takes part in, those that cannot be used yet left out."""
    names = {room: {key_of(f) for f in layer.files if room_of(f) is room} for room in Room}
    components = names[Room.COMPONENTS] | {key.partition("/")[0] for key in names[Room.MANIFESTS]}
    for leaf in leaf_names(after):
        if unavailable(leaf, after):
            continue
        stated = {Dimension(d): v for d, v in after.overlays[leaf].criteria.items()}
        chain = {name for found in maximal_leaves(stated, after) for name in after.chain(found)}
        mixins = {mixin for name in chain for mixin in after.overlays[name].mixins}
        if (
            chain & names[Room.OVERLAYS]
            or mixins & names[Room.MIXINS]
            or components & _components(after, chain, mixins)
        ):
            yield leaf


def _components(catalogue: Catalogue, overlays: set[str], mixins: set[str]) -> set[str]:
    """Components that overlays, the values of their profiles, and mixins name."""
    found = {name for mixin in mixins for name in catalogue.mixins[mixin].components}
    for overlay in (catalogue.overlays[name] for name in overlays):
        found.update(overlay.components)
        for value in overlay.profile.values.values() if overlay.profile else ():
            found.update(value.components)
    return found


def _resolve(leaf: str, catalogue: Catalogue) -> Iterator[Finding]:
    """Resolve the leaf as it is and, when that is possible, with each other value of each profile."""
    stated = {Dimension(d): v for d, v in catalogue.overlays[leaf].criteria.items()}
    chain = {name for found in maximal_leaves(stated, catalogue) for name in catalogue.chain(found)}
    profiles = [p for name in sorted(chain) if (p := catalogue.overlays[name].profile) is not None]
    choices = [{}, *({p.name: value} for p in profiles for value in p.values if value != p.default)]
    for chosen in choices:
        try:
            resolve(stated, catalogue, chosen)
        except BadInputError as error:
            said = "".join(f" with {name}={value}" for name, value in chosen.items())
            yield Finding(f"overlays/{leaf}.yaml", Rule.RECIPE, f"The recipe{said} does not resolve: {error}")
            if not chosen:
                return
