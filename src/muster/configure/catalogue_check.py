"""Whether a catalogue hangs together: bases, mixins, components, constraints, profiles. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from muster.configure.catalogue import ROOT, Catalogue, Overlay, Patch, Profile, owned_paths
from muster.configure.constraints import demand
from muster.configure.criteria import Dimension
from muster.configure.values import check
from muster.errors import BadInputError

MAX_CHAIN = 20
"""Overlays from one to its root, itself included."""
_TERM = re.compile(r"(>=|<=|!=|==|=|>|<|~|\^)?\s*([^\s,<>=!|~^]+)")
_SHORT = re.compile(r"[vV]?\d+(\.\d+)?", re.ASCII)
_CRITERION = re.compile(r"[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?", re.ASCII)


def check_catalogue(catalogue: Catalogue) -> None:
    """Raise BadInputError for the first thing that does not hang together."""
    for overlay in catalogue.overlays.values():
        _check_overlay(catalogue, overlay)
    for mixin in catalogue.mixins.values():
        where = f"Mixin {mixin.name!r}"
        _check_patches(catalogue, mixin.components, where)
        _check_demands(mixin.constraints, where)
    for component in catalogue.components.values():
        where = f"Component {component.name!r}"
        check(component.values, where)
        if component.kube_version:
            _check_demands({"kubernetes.version": component.kube_version}, where)


def check_kube_version(text: str, where: str) -> None:
    """Raise BadInputError for a bound that Helm reads in another way than Muster.

    `kubeVersion` is Helm's: `> 1.30` is above every 1.30 there and above 1.30.0 here, and `= 1.30` is any of them.
    """
    for term in _TERM.finditer(text):
        if term[1] not in (">=", "<", "~", "^") and _SHORT.fullmatch(term[2]):
            raise BadInputError(
                f"{where}: {term[0].strip()[:60]!r} in kubeVersion stands for all patches to Helm; write all three "
                "numbers, or the bound with '>=', '<' or '~'."
            )


def check_criterion(dimension: str, value: str, where: str) -> None:
    """Raise BadInputError unless somebody can state `value` for `dimension`."""
    if dimension not in set(Dimension):
        names = [d.value for d in Dimension]
        raise BadInputError(f"{where}: no dimension is named {dimension[:60]!r}{_hint(dimension, names)}.")
    if not _CRITERION.fullmatch(value) or value == "any":
        raise BadInputError(
            f"{where}: {value[:60]!r} is no value for {dimension}; use lower-case letters, digits, '-' and '.', and "
            "leave a dimension out that does not matter."
        )


def _hint(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _check_overlay(catalogue: Catalogue, overlay: Overlay) -> None:
    where = f"Overlay {overlay.name!r}"
    _check_ancestors(catalogue, overlay)
    for dimension, value in overlay.criteria.items():
        check_criterion(dimension, value, where)
    for mixin in overlay.mixins:
        if mixin not in catalogue.mixins:
            raise BadInputError(
                f"{where} names the mixin {mixin!r}, which does not exist{_hint(mixin, catalogue.mixins)}."
            )
    _check_patches(catalogue, overlay.components, where)
    _check_demands(overlay.constraints, where)
    for phase in overlay.checks.values():
        _check_demands(phase.constraints, where)
    if overlay.profile is not None:
        _check_profile(catalogue, overlay.profile, where)


def _check_demands(constraints: Mapping[str, str], where: str) -> None:
    for name, text in constraints.items():
        try:
            demand(name, text, where)
        except BadInputError as error:
            raise BadInputError(f"{where}, constraint {name!r}: {error}") from error


def _check_ancestors(catalogue: Catalogue, overlay: Overlay) -> None:
    seen = [overlay.name]
    while base := catalogue.overlays[seen[-1]].base:
        if base not in catalogue.overlays:
            raise BadInputError(
                f"Overlay {seen[-1]!r} is based on {base!r}, which does not exist{_hint(base, catalogue.overlays)}."
            )
        if base in seen:
            raise BadInputError(f"Overlays are based on each other in a circle: {' -> '.join([*seen, base])}.")
        seen.append(base)
        if len(seen) > MAX_CHAIN:
            raise BadInputError(f"Overlay {overlay.name!r} has more than {MAX_CHAIN} ancestors; flatten the chain.")
    if seen[-1] != ROOT:
        raise BadInputError(f"Overlay {overlay.name!r} does not lead to {ROOT!r}.")


def _check_patches(catalogue: Catalogue, patches: Mapping[str, Patch], where: str) -> None:
    for name, patch in patches.items():
        if name not in catalogue.components:
            raise BadInputError(
                f"{where} names the component {name!r}, which does not exist{_hint(name, catalogue.components)}."
            )
        if patch.version and not patch.version_reason.strip():
            raise BadInputError(f"{where} overrides the version of {name!r} without a versionReason.")
        for needed in patch.depends_on:
            if needed not in catalogue.components:
                raise BadInputError(
                    f"{where}: {name!r} depends on {needed!r}, which does not exist"
                    f"{_hint(needed, catalogue.components)}."
                )
        check(patch.values, f"{where}, component {name!r}")


def _check_profile(catalogue: Catalogue, profile: Profile, where: str) -> None:
    if profile.default not in profile.values:
        raise BadInputError(f"{where}: profile {profile.name!r} has no value {profile.default!r} to default to.")
    expected = owned_paths(profile.values[profile.default])
    for name, value in profile.values.items():
        _check_patches(catalogue, value.components, where)
        _check_demands(value.constraints, where)
        if differing := sorted(set(owned_paths(value)) ^ set(expected)):
            raise BadInputError(
                f"{where}: the values of profile {profile.name!r} must set the same paths; {name!r} and "
                f"{profile.default!r} differ in {', '.join(differing[:4])}."
            )
