"""Reads a Helm bundle back from the table that its scripts work through."""

from __future__ import annotations

from muster import yamlio
from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy
from muster.configure.render.helm import COLUMNS
from tests.bundle.found import Found, manifests_of


def read(files: dict[str, str]) -> list[Found]:
    """The releases in the order of the table. `deploy.sh` finishes a row, gate included, before it takes the next."""
    rows = [line.split("\t") for line in files["releases.tsv"].splitlines()]
    assert tuple(rows[0]) == COLUMNS
    found: list[Found] = []
    for fields in rows[1:]:
        row = {key: "" if field == "-" else field for key, field in zip(COLUMNS, fields, strict=True)}
        local = row["chart"] == row["folder"]
        repository, chart = row["repository"], row["chart"]
        if not local and not repository:
            repository, _, chart = chart.rpartition("/")
            assert repository.startswith("oci://")
        manifests = manifests_of(files, row["folder"])
        # A claim may be bound only by a pod of a later release; nothing else goes unwaited for.
        claims = any(o["kind"] == "PersistentVolumeClaim" for o in manifests)
        assert row["wait"] == ("nothing" if claims else "objects")
        found.append(
            Found(
                name=row["name"],
                namespace=row["namespace"],
                chart="" if local else chart,
                repository=repository,
                version=row["version"],
                values=yamlio.loads(files[f"{row['folder']}/values.yaml"], row["folder"]),
                after=tuple(f.name for f in found),
                timeout_s=int(row["timeout_s"]),
                retries=int(row["retries"]),
                crds=CrdPolicy(row["crds"]),
                gate=Gate(row["gate"]),
                manifests=manifests,
            )
        )
    return found
