"""Where the programs of the control plane come from: KUBEBUILDER_ASSETS, or a build of our own that is kept.

`python -m tests.controlplane.binaries` (`make control-plane`) builds them once into a cache outside the tree.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).parent
ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
)
PACKAGES = {
    ETCD: "go.etcd.io/etcd/server/v3",
    API_SERVER: "k8s.io/kubernetes/cmd/kube-apiserver",
    CONTROLLER_MANAGER: "k8s.io/kubernetes/cmd/kube-controller-manager",
    SCHEDULER: "k8s.io/kubernetes/cmd/kube-scheduler",
}
NEEDED = (ETCD, API_SERVER)
"""What the field's archives of test binaries hold; the other two are built or found beside them."""
DEBIAN_ETCD = "/usr/bin/etcd"
BUILD_LIMIT_S = 3600


class BinariesMissingError(Exception):
    """There is no control plane on this machine. The text says what was looked for and what failed."""


@dataclass(frozen=True)
class Binaries:
    """The programs by name. `source` says where they come from."""

    source: str
    paths: Mapping[str, Path]

    def path(self, name: str) -> Path:
        """Raises BinariesMissingError for a program that this source does not have."""
        try:
            return self.paths[name]
        except KeyError:
            raise BinariesMissingError(f"{self.source} has no {name}") from None


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the programs that belong to the module files of this tree; others keep their own."""
    root = environment.get("MUSTER_TEST_CACHE") or environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    sources = (MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes() + linker_flags().encode()
    digest = hashlib.sha256(sources).hexdigest()[:12]
    return Path(root) / "muster" / "control-plane" / digest


def version() -> str:
    """The release of Kubernetes that go.mod names, such as `v1.37.2`."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\d+\.\d+\.\d+)\b", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found, "tests/controlplane/go.mod names no release of k8s.io/kubernetes"
    return found[1]


def linker_flags() -> str:
    """No symbols, and the version that a release would tell: Helm and kubectl compare themselves with it."""
    release = version()
    major, minor, _ = release.removeprefix("v").split(".")
    told = {"gitVersion": release, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(
        ["-s -w", *(f"-X {package}.{name}={value}" for package in packages for name, value in told.items())]
    )


def find(environment: Mapping[str, str] = os.environ) -> Binaries:
    """The programs, without building any. Raises BinariesMissingError."""
    assets = environment.get("KUBEBUILDER_ASSETS", "")
    if assets:
        found = _in(Path(assets), f"KUBEBUILDER_ASSETS ({assets})")
        if found is None:
            raise BinariesMissingError(f"KUBEBUILDER_ASSETS ({assets}) does not hold {' and '.join(NEEDED)}")
        return found
    found = _in(cache_folder(environment), f"Kubernetes {version()}, built from tests/controlplane/go.mod")
    if found is None:
        raise BinariesMissingError("no control plane was built yet (make control-plane)")
    return found


def _in(folder: Path, source: str) -> Binaries | None:
    paths = {name: folder / name for name in PACKAGES if os.access(folder / name, os.X_OK)}
    return Binaries(source, paths) if all(name in paths for name in NEEDED) else None


def build(tell: Callable[[str], None], environment: Mapping[str, str] = os.environ) -> Binaries:
    """Build what the cache lacks, one program after the other. Raises BinariesMissingError with what failed."""
    go = shutil.which("go")
    if go is None:
        raise BinariesMissingError("Go is not on this machine, so the control plane cannot be built")
    folder = cache_folder(environment)
    folder.mkdir(parents=True, exist_ok=True)
    for name, package in PACKAGES.items():
        if os.access(folder / name, os.X_OK):
            continue
        started = time.monotonic()
        tell(f"building {name} ({package})")
        failure = _build_one(go, package, folder / name, environment)
        if failure and name == ETCD and Path(DEBIAN_ETCD).exists():
            tell(f"etcd cannot be built ({failure}); using {DEBIAN_ETCD}")
            (folder / name).symlink_to(DEBIAN_ETCD)
        elif failure:
            raise BinariesMissingError(f"{name} cannot be built: {failure}")
        tell(f"{name}: {time.monotonic() - started:.0f} s")
    return find({**environment, "KUBEBUILDER_ASSETS": ""})


def _build_one(go: str, package: str, target: Path, environment: Mapping[str, str]) -> str:
    """Build one program. Returns what went wrong, or nothing."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    command = [
        go,
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-mod=readonly",
        f"-ldflags={linker_flags()}",
        "-o",
        str(part),
        package,
    ]
    try:
        run = subprocess.run(
            command,
            cwd=MODULE,
            env={**environment, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {BUILD_LIMIT_S} s"
    if run.returncode:
        lines = [line for line in run.stderr.splitlines() if line.strip() and "downloading" not in line]
        return " / ".join(lines[-3:])[:600] or f"go build ended with {run.returncode}"
    part.replace(target)
    return ""


def main() -> int:
    """Build, or say in one sentence why the real half of the tests will not run. Never fails the caller's make."""
    if os.environ.get("KUBECONFIG") or os.environ.get("KUBEBUILDER_ASSETS"):
        print("control plane: taken from the environment, nothing to build")
        return 0
    try:
        binaries = build(lambda line: print(f"control plane: {line}", flush=True))
    except BinariesMissingError as error:
        print(f"control plane: {error}; the tests against a real API server will not run")
        return 0
    print(f"control plane: {', '.join(sorted(binaries.paths))} in {cache_folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
