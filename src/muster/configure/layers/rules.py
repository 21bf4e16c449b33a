"""What a layer may do to each field of a catalogue file, and under which name provenance knows the field. Pure."""

from __future__ import annotations

from enum import StrEnum

from muster.configure.values import Path, path_text


class Room(StrEnum):
    """The folders of a catalogue."""

    COMPONENTS = "components"
    OVERLAYS = "overlays"
    MIXINS = "mixins"
    MANIFESTS = "manifests"


class Rule(StrEnum):
    REPLACE = "replace"
    """A scalar or list replaces what is there, a map merges."""
    VALUES = "values"
    """Helm values or Kubernetes objects: as REPLACE, and a null deletes."""
    ADD = "add"
    """A list of names: new ones are added, none is dropped."""
    NARROW = "narrow"
    """A constraint: both demands hold."""
    FIXED = "fixed"
    """Stays as it was made; a layer may only repeat it."""


def room_of(file: str) -> Room:
    """`overlays/eks.yaml` -> OVERLAYS."""
    return Room(file.partition("/")[0])


def key_of(file: str) -> str:
    """`overlays/eks.yaml` -> `eks`, `manifests/a/b.yaml` -> `a/b.yaml`: the key within its room."""
    room, _, rest = file.partition("/")
    return rest if room == Room.MANIFESTS else rest.removesuffix(".yaml")


def rule_of(room: Room, path: Path) -> Rule:
    """The rule for the field at `path` of a file in `room`; what lies below a VALUES path has the same rule."""
    match room, path:
        case (_, ("name",)) | (Room.OVERLAYS, ("base",) | ("criteria",) | ("profile", "name")):
            return Rule.FIXED
        case Room.MANIFESTS, (_,):
            return Rule.VALUES
        case Room.COMPONENTS, ("values",):
            return Rule.VALUES
        case Room.COMPONENTS, ("kubeVersion",):
            return Rule.NARROW
        case Room.COMPONENTS, ("manifests", "pre" | "post"):
            return Rule.ADD
        case Room.OVERLAYS, ("mixins",) | ("checks", _, "checks"):
            return Rule.ADD
        case Room.OVERLAYS, ("checks", _, "constraints", _):
            return Rule.NARROW
        case Room.OVERLAYS, ("profile", "values", _, *below):
            return _choice_rule(tuple(below))
        case ((Room.OVERLAYS | Room.MIXINS), _):
            return _choice_rule(path)
        case _:
            return Rule.REPLACE


def _choice_rule(path: Path) -> Rule:
    """The rule below what overlays, mixins and profile values share: constraints and patches of components."""
    match path:
        case ("constraints", _):
            return Rule.NARROW
        case ("components", _, "values"):
            return Rule.VALUES
        case ("components", _, "dependsOn") | ("components", _, "manifests", "pre" | "post"):
            return Rule.ADD
        case _:
            return Rule.REPLACE


def provenance_of(file: str, path: Path, profile: str) -> tuple[str, str] | None:
    """(source text of resolution, provenance path) of the field at `path`, or None for what no recipe holds.

    `profile` is the name of the overlay's profile.
    """
    room, name = room_of(file), file.rpartition("/")[2].removesuffix(".yaml")
    match room, path:
        case Room.MANIFESTS, _:
            return None
        case Room.COMPONENTS, ("kubeVersion",):
            return file, "constraint:kubernetes.version"
        case Room.COMPONENTS, ("source", "version"):
            return file, f"{name}.version"
        case Room.COMPONENTS, ("values", *below):
            return file, f"{name}:{path_text(tuple(below))}"
        case Room.COMPONENTS, _:
            return file, f"{name}.{'.'.join(path)}"
        case _, ("profile", "values", value, *below):
            known = _choice_provenance(tuple(below))
            return (f"profile {profile}={value} of {file}", known) if known else None
        case _, ("checks", phase, "constraints", constraint):
            return file, f"{phase}:constraint:{constraint}"
        case _:
            known = _choice_provenance(path)
            return (file, known) if known else None


def _choice_provenance(path: Path) -> str | None:
    match path:
        case ("constraints", name):
            return f"constraint:{name}"
        case ("components", name, "values", *below):
            return f"{name}:{path_text(tuple(below))}"
        case ("components", name, *below) if below:
            return f"{name}.{'.'.join(below)}"
        case _:
            return None
