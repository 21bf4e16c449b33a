"""Programs and CRDs of the deployers, for tests: Go modules of a pinned version and checksum.

`python -m tests.programs.sources deployers` (`make programs`) builds helm, helmfile and the registry into a cache
outside the tree; `... flux` (`make flux`) the controllers of Flux, which take longer.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_BUILD = ("go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags=-s -w")
BUILD_LIMIT_S = 3600
FETCH_LIMIT_S = 600


@dataclass(frozen=True)
class Module:
    """A Go module as the proxy serves it. `checksum` is Go's own `h1:` hash over all of its files."""

    path: str
    version: str
    checksum: str
    parts: tuple[tuple[str, Module], ...] = ()
    """(folder, module) that the module expects inside itself: the proxy serves nested modules apart from it."""


HELM = Module("helm.sh/helm/v4", "v4.3.2", "h1:zdd8DgKTlLrlYIzdoAntDHLH0V3RkgNIpQ3yjzuD84M=")
HELMFILE = Module("github.com/helmfile/helmfile", "v1.8.0", "h1:coUoYKmxceeLbm4y43dJ1Dh3crrwniAx8LtBxPcu7+Y=")
DISTRIBUTION = Module(
    "github.com/distribution/distribution/v3", "v3.1.2", "h1:/Bv2YIqqSR00HiO49FT93hovy6r9IlrzwUDsJjCN5qg="
)
ARGO_CD = Module("github.com/argoproj/argo-cd/v3", "v3.5.0", "h1:iqnPFSKaQ0l3hREMH2Rk55VDcxrvBFaSO0g9bifZKzc=")


def _flux(name: str, version: str, checksum: str, api_checksum: str) -> Module:
    """A controller of Flux: its types are a module of their own in the folder `api`."""
    path = f"github.com/fluxcd/{name}"
    return Module(path, version, checksum, (("api", Module(f"{path}/api", version, api_checksum)),))


FLUX_HELM = _flux(
    "helm-controller",
    "v1.4.3",
    "h1:449LcGJXLCylvrNCq8ycevwa5mxE1Mn9vxTwlsj/no8=",
    "h1:CdZwjL1liXmYCWyk2jscmFEB59tICIlnWB9PfDDW5q4=",
)
FLUX_SOURCE = _flux(
    "source-controller",
    "v1.7.3",
    "h1:gFfeBiNUgF0kFFGap/rrMeJqz+0Tod0ARENJO8w/UA8=",
    "h1:JCDbaJqAbQtjCt3Ijsm/6nZf+SZiby3/R6lVZ1gDllE=",
)
FLUX_KUSTOMIZE = _flux(
    "kustomize-controller",
    "v1.7.2",
    "h1:xmOWILtm9329M7MQCS/iCHXc2R+Xm9HjFSft9fh/PCA=",
    "h1:E+UwgztwYCwgOgpMuIZZfntCEYIer+hl2NH5O+tL8hs=",
)

PROGRAMS: Mapping[str, tuple[Module, str]] = {
    "helm": (HELM, "./cmd/helm"),
    "registry": (DISTRIBUTION, "./cmd/registry"),
    "helmfile": (HELMFILE, "."),
    "source-controller": (FLUX_SOURCE, "."),
    "helm-controller": (FLUX_HELM, "."),
    "kustomize-controller": (FLUX_KUSTOMIZE, "."),
}
"""Name -> (module, package of the program in it). `registry` is the CNCF's OCI registry; controllers are Flux's."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "deployers": ("helm", "registry", "helmfile"),
    "flux": ("source-controller", "helm-controller", "kustomize-controller"),
}
"""What is built together."""

CRD_FOLDERS: tuple[tuple[Module, str], ...] = (
    (ARGO_CD, "manifests/crds"),
    (FLUX_HELM, "config/crd/bases"),
    (FLUX_SOURCE, "config/crd/bases"),
    (FLUX_KUSTOMIZE, "config/crd/bases"),
)


class SourceMissingError(Exception):
    """A program or a CRD is not to be had on this machine. The text says what was tried and what failed."""


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the built programs are kept; another set of versions has another folder."""
    root = environment.get("MUSTER_TEST_CACHE") or environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    told = repr(sorted((name, module, package) for name, (module, package) in PROGRAMS.items()))
    return Path(root) / "muster" / "programs" / hashlib.sha256(told.encode()).hexdigest()[:12]


def find(name: str) -> Path:
    """The program `name`: the built one, never one that happens to be on the machine. Raises SourceMissingError."""
    program = cache_folder() / name
    if not os.access(program, os.X_OK):
        raise SourceMissingError(f"{name} was not built yet (make programs)")
    return program


def fetch(module: Module) -> Path:
    """The read-only folder of a module's files. Raises SourceMissingError, also when the checksum is another."""
    go = shutil.which("go")
    if go is None:
        raise SourceMissingError("Go is not on this machine")
    try:
        run = subprocess.run(
            [go, "mod", "download", "-json", f"{module.path}@{module.version}"],
            cwd="/",
            env={**os.environ, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=FETCH_LIMIT_S,
            check=False,
        )
        found = json.loads(run.stdout or "{}")
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise SourceMissingError(f"{module.path} could not be fetched: {type(error).__name__}") from error
    if run.returncode or "Dir" not in found:
        reason = str(found.get("Error") or run.stderr).strip().splitlines()
        raise SourceMissingError(f"{module.path}@{module.version} could not be fetched: {' '.join(reason)[:300]}")
    if found.get("Sum") != module.checksum:
        raise SourceMissingError(f"{module.path}@{module.version} has another checksum than the one it is pinned to")
    return Path(found["Dir"])


def crd_files() -> list[Path]:
    """The CRDs of Argo CD and Flux as their projects publish them. Raises SourceMissingError."""
    return [
        file
        for module, folder in CRD_FOLDERS
        for file in sorted((fetch(module) / folder).glob("*.yaml"))
        if file.name != "kustomization.yaml"
    ]


def build(name: str) -> Path:
    """Build one program unless the cache has it. Raises SourceMissingError with what failed."""
    target = cache_folder() / name
    if os.access(target, os.X_OK):
        return target
    module, package = PROGRAMS[name]
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{name}.{os.getpid()}.part")
    with tempfile.TemporaryDirectory() as scratch:
        _compile(name, package, _whole(module, Path(scratch)), part)
    part.replace(target)
    return target


def _whole(module: Module, scratch: Path) -> Path:
    """The folder of a module with the modules that it expects inside; a copy only where there are any."""
    folder = fetch(module)
    if not module.parts:
        return folder
    whole = scratch / "module"
    # The cache of modules is read-only; contents are copied, modes are not.
    shutil.copytree(folder, whole, copy_function=shutil.copyfile)
    whole.chmod(0o755)
    for name, part in module.parts:
        shutil.copytree(fetch(part), whole / name, copy_function=shutil.copyfile)
    for path in (p for p in whole.rglob("*") if p.is_dir()):
        path.chmod(0o755)
    return whole


def _compile(name: str, package: str, folder: Path, target: Path) -> None:
    try:
        run = subprocess.run(
            [*_BUILD, "-o", str(target), package],
            cwd=folder,
            env={**os.environ, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceMissingError(f"{name} was not built within {BUILD_LIMIT_S} s") from error
    if run.returncode:
        lines = [line for line in run.stderr.splitlines() if line.strip() and "downloading" not in line]
        raise SourceMissingError(f"{name} cannot be built: {' / '.join(lines[-3:])[:600]}")


def build_all(names: Iterable[str], tell: Callable[[str], None]) -> list[str]:
    """Build the programs `names`. Returns what went wrong, one sentence each."""
    failures = []
    for name in names:
        started = time.monotonic()
        try:
            path = build(name)
        except SourceMissingError as error:
            failures.append(str(error))
        else:
            tell(f"{name}: {path} ({time.monotonic() - started:.0f} s)")
    return failures


def main(groups: Sequence[str]) -> int:
    """Build, or say which tests will not run. Never fails the caller's make."""
    names = [name for group in groups for name in GROUPS[group]]
    for failure in build_all(names, lambda line: print(f"programs: {line}", flush=True)):
        print(f"programs: {failure}; the tests that need it will not run")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
