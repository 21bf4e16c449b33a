"""Bundles on disk: put together, written atomically, closed by checksums, verified."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from muster import yamlio
from muster.configure import lock
from muster.configure.bundles.choices import Choices, RecordedChoices, record
from muster.configure.bundles.overrides import Override
from muster.configure.bundles.placement import PlacementChoice
from muster.configure.lint import lint_component
from muster.configure.plan import Plan, plan
from muster.configure.recipe import Recipe, content_of
from muster.configure.render.readme import readme
from muster.configure.render.removal import removal_page
from muster.configure.render.repository import UNSET_REPOSITORY, Repository
from muster.errors import BadInputError, NotSatisfiedError
from muster.resources.base import API_VERSION

CHECKSUMS = "checksums.txt"
DESCRIPTION = "bundle.yaml"
SUPPLIED = "supplied"
"""Folder of the manifests that a person supplied, as `component/name.yaml`."""
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")
_MAX_FILES = 10_000
_MAX_LISTING = 4 * 1024 * 1024


class Deployer(StrEnum):
    HELM = "helm"
    ARGOCD = "argocd"
    ARGOCD_HELM = "argocd-helm"
    FLUX = "flux"
    HELMFILE = "helmfile"


FETCHING = (Deployer.ARGOCD, Deployer.ARGOCD_HELM, Deployer.FLUX)
"""Deployers that run in the cluster and fetch the bundle from a repository."""


def build(
    locked: Recipe,
    changed: Recipe,
    deployer: Deployer,
    overrides: Sequence[Override] = (),
    repository: Repository | None = None,
    choices: Choices | None = None,
) -> tuple[Plan, dict[str, str]]:
    """The plan and every file of the bundle, checksums included.

    `locked` is the recipe as it was read, `changed` the same with `choices` applied (or with `overrides`, where these
    are all the choices).
    """
    for component in locked.components:
        lint_component(component, "the recipe")
    planned = plan(changed)
    repository = repository or Repository()
    match deployer:
        case Deployer.HELM:
            from muster.configure.render import helm

            files = helm.render(planned)
        case Deployer.ARGOCD:
            from muster.configure.render import argocd

            files = argocd.render(planned, repository)
        case Deployer.ARGOCD_HELM:
            from muster.configure.render import argocd_helm

            files = argocd_helm.render(planned, repository)
        case Deployer.FLUX:
            from muster.configure.render import flux

            files = flux.render(planned, repository)
        case Deployer.HELMFILE:
            from muster.configure.render import helmfile

            files = helmfile.render(planned)
    files["recipe.yaml"] = lock.write(locked)
    choices = choices or Choices(overrides=tuple(overrides))
    for name, objects in sorted(choices.manifests.items()):
        files[f"{SUPPLIED}/{name}"] = yamlio.dumps_all(objects)
    files[DESCRIPTION] = yamlio.dumps(_description(planned, deployer, record(choices), repository))
    files["README.md"] = readme(planned, deployer.value, repository.url == UNSET_REPOSITORY)
    files["UNINSTALL.md"] = removal_page(planned, deployer.value)
    files[CHECKSUMS] = checksums({name: text.encode() for name, text in files.items()})
    return planned, files


def _description(
    planned: Plan, deployer: Deployer, recorded: RecordedChoices, repository: Repository
) -> dict[str, object]:
    description: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "Bundle",
        "deployer": deployer.value,
        "recipe": planned.recipe_digest,
        "set": list(recorded.set),
    }
    # Plain values without the defaults of the encoder: a null or an empty list in a file of values is a value.
    if recorded.set_files:
        description["setFiles"] = recorded.set_files
    if recorded.placement != PlacementChoice():
        description["placement"] = content_of(recorded.placement)
    if recorded.manifests:
        description["manifests"] = list(recorded.manifests)
    if deployer in FETCHING:
        description["repository"] = {"url": repository.url, "revision": repository.revision, "path": repository.path}
    description["missing"] = list(planned.missing)
    description["releases"] = [
        {
            "name": release.name,
            "component": release.component,
            "role": release.role.value,
            "namespace": release.namespace,
            "level": release.level,
            "dependsOn": list(release.depends_on),
            "gate": release.gate.value,
            "crds": release.crds.value,
            "timeoutS": release.timeout_s,
            "retries": release.retries,
        }
        for release in planned.releases
    ]
    return description


def checksums(files: Mapping[str, bytes]) -> str:
    """`<sha256>  <path>` for each file, sorted by path."""
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))


def write(folder: Path, files: Mapping[str, str], force: bool = False) -> None:
    """Write the bundle so that `folder` holds either what it held or all of it.

    Raises BadInputError when `folder` is in use by something else, or holds a bundle and `force` is not set.
    """
    try:
        require_free(folder, force)
    except OSError as error:
        raise BadInputError(f"Cannot write to {str(folder)[:120]}: {error.strerror}.") from error
    try:
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise BadInputError(f"Cannot write into {folder.parent}: {error.strerror}.") from error
    try:
        fresh = staging / "new"
        for name in sorted(files):
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[name], encoding="utf-8")
            path.chmod(0o755 if name.endswith(".sh") else 0o644)
        try:
            if folder.exists():
                folder.rename(staging / "old")
            fresh.rename(folder)
        except BaseException:  # Ctrl-C too: the old bundle must not go away with the staging folder
            if not folder.exists() and (staging / "old").exists():
                (staging / "old").rename(folder)
            raise
    except OSError as error:
        raise BadInputError(f"Cannot write the bundle to {folder}: {error.strerror}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def require_free(
    folder: Path, force: bool = False, remedy: str = "replace it with --force or give another folder"
) -> None:
    """Raise BadInputError unless a bundle may be written to `folder`; `remedy` is for one that holds a bundle."""
    if folder.name in ("", ".."):
        raise BadInputError("The output is no name of a folder; give one, for example bundle/.")
    if not folder.parent.is_dir():
        raise BadInputError(f"The folder {folder.parent} does not exist; create it first.")
    if folder.is_symlink():
        raise BadInputError(f"{folder} is a symbolic link; give the folder that it points to.")
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"{folder} is not a folder; give another output.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / CHECKSUMS).is_file() or not (folder / DESCRIPTION).is_file():
        raise BadInputError(f"{folder} is not empty and holds no bundle; give an empty or new folder.")
    if not force:
        raise BadInputError(f"{folder} holds a bundle already; {remedy}.")
    try:
        verify(folder)
    except NotSatisfiedError as error:
        raise BadInputError(
            f"{folder} holds a bundle with changes of its own ({error}) Move them away first."
        ) from error


def verify(folder: Path) -> tuple[int, str]:
    """Check every file against `checksums.txt`, which is a closed world. Returns (number of files, bundle digest).

    Raises BadInputError when `folder` is no bundle, NotSatisfiedError naming the first file that is changed, missing
    or extra.
    """
    if not folder.is_dir():
        raise BadInputError(f"{folder} is not a folder; give the folder of a bundle.")
    try:
        listing = _read_listing(folder)
        expected = _parse_checksums(listing, folder)
        present = _present(folder)
    except OSError as error:
        name = str(error.filename or CHECKSUMS).removeprefix(f"{folder}/")
        raise BadInputError(
            f"{folder} holds no readable {_shown(name)} ({error.strerror}); it is not a bundle."
        ) from error
    for name in sorted(set(expected) | set(present)):
        if name not in present:
            raise NotSatisfiedError(f"{_shown(name)} is missing from the bundle {folder}; build it again.")
        if name not in expected:
            raise NotSatisfiedError(
                f"{_shown(name)} is not part of the bundle {folder}; remove it or build the bundle again."
            )
        if present[name] != expected[name]:
            raise NotSatisfiedError(
                f"{_shown(name)} was changed after the bundle {folder} was built; build it again."
            )
    # The list itself is a file of the bundle, too.
    return len(expected) + 1, f"sha256:{hashlib.sha256(listing).hexdigest()}"


def _shown(name: str) -> str:
    """A file name on one line, however hostile."""
    return name if name.isprintable() and len(name) <= 200 else ascii(name[:200])


def _read_listing(folder: Path) -> bytes:
    path = folder / CHECKSUMS
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BadInputError(f"{path} is not a regular file; it is not a bundle.")
    with path.open("rb") as file:
        listing = file.read(_MAX_LISTING + 1)
    if len(listing) > _MAX_LISTING:
        raise BadInputError(f"{path} is larger than {_MAX_LISTING // 1024 // 1024} MiB; it is not a bundle.")
    return listing


def _parse_checksums(listing: bytes, folder: Path) -> dict[str, str]:
    expected: dict[str, str] = {}
    # Nothing but a line feed ends a line, the last one too: every byte of the list counts.
    lines = listing.decode("utf-8", errors="replace").split("\n")
    if lines.pop():
        raise BadInputError(f"{folder / CHECKSUMS} is cut off at its end; build the bundle again.")
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or match[2] in expected or len(expected) >= _MAX_FILES:
            raise BadInputError(f"{folder / CHECKSUMS} is malformed at {line[:60]!r}; build the bundle again.")
        expected[match[2]] = match[1]
    if not expected:
        raise BadInputError(f"{folder / CHECKSUMS} is empty; build the bundle again.")
    return expected


def _present(folder: Path) -> dict[str, str]:
    """Digest of every file, by path; anything that is no regular file has a digest that nothing matches."""
    found: dict[str, str] = {}
    for root, folders, names in os.walk(folder, onerror=_raise):
        here = Path(root)
        if not folders and not names and here != folder:
            found[f"{here.relative_to(folder).as_posix()}/"] = "an empty folder"
        for name in [*names, *(f for f in folders if (here / f).is_symlink())]:
            path = here / name
            relative = path.relative_to(folder).as_posix()
            if relative == CHECKSUMS and not path.is_symlink():
                continue
            if len(found) > _MAX_FILES:
                raise BadInputError(f"{folder} holds more than {_MAX_FILES} files; it is not a bundle.")
            regular = path.is_file() and not path.is_symlink()
            found[relative] = _digest(path) if regular else "not a regular file"
    return found


def _raise(error: OSError) -> None:
    """A folder that cannot be read may hold anything: it is never skipped."""
    raise error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
