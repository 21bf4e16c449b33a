"""Runs real programs for the tests of bundles, in a home of their own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from muster.configure.bundles import build as bundles


class Shell:
    """Programs of `folder` come first on the path; `kubeconfig` names the cluster, where there is one."""

    def __init__(self, home: Path, folder: Path, kubeconfig: Path | None = None) -> None:
        self.home = home
        own = home / "bin"
        own.mkdir(exist_ok=True)
        # The pauses between attempts are not what is tested.
        (own / "sleep").write_text("#!/bin/sh\n")
        (own / "sleep").chmod(0o755)
        self.env = {
            "PATH": f"{own}:{folder}:{os.environ['PATH']}",
            "HOME": str(home),
            "KUBECONFIG": str(kubeconfig or home / "none"),
        }

    def run(self, *command: str, text: str | None = None, cwd: Path | None = None) -> tuple[int, str]:
        """(Exit status, standard output and error together)."""
        done = subprocess.run(
            command,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            input=text if text is not None else "",
            cwd=cwd or self.home,
            timeout=300,
        )
        return done.returncode, done.stdout

    def ok(self, *command: str, text: str | None = None, cwd: Path | None = None) -> str:
        """The output of a command that must succeed."""
        code, output = self.run(*command, text=text, cwd=cwd)
        assert code == 0, output
        return output

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        return self.ok("kubectl", *arguments, text=text)

    def releases(self, namespace: str) -> dict[str, str]:
        """Name -> revision and status, as Helm tells them."""
        output = self.ok("helm", "list", "--namespace", namespace, "--output", "json")
        return {r["name"]: f"{r['revision']} {r['status']}" for r in json.loads(output)}


def written(folder: Path, files: dict[str, str]) -> Path:
    """The files of a renderer as a bundle on disk, with checksums."""
    whole = dict(files) | {bundles.DESCRIPTION: "kind: Bundle\n"}
    whole[bundles.CHECKSUMS] = bundles.checksums({name: text.encode() for name, text in whole.items()})
    bundles.write(folder, whole)
    return folder
