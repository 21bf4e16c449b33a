"""A controller of your own that carries out Repairs, in Python alone. It talks to `kubectl proxy`.

    kubectl proxy --port 8001 &
    python3 controller.py http://127.0.0.1:8001 hands

It claims a Repair by moving it to Running, on condition that nobody changed it; does the work once for each name;
and says Done or Failed. What a predecessor that died has left Running it goes on with, so run one of it (a Deployment
with one replica and `strategy: Recreate`). Replace `work` by what you do.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone

REPAIRS = "/apis/muster.dev/v1alpha1/repairs"


def call(base, method, path, body=None):
    request = urllib.request.Request(base + path, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/merge-patch+json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def report(base, repair, **status):
    """Write the status of exactly this version of the Repair; None when somebody else was faster."""
    meta = {"resourceVersion": repair["metadata"]["resourceVersion"]}
    path = f"{REPAIRS}/{repair['metadata']['name']}/status"
    try:
        return call(base, "PATCH", path, {"metadata": meta, "status": status})
    except urllib.error.HTTPError as error:
        if error.code in (404, 409):
            return None
        raise


def work(repair):
    """Your own work, identified by the Repair's name: asked a second time after a crash, it must not do it again."""
    print(f"please {repair['spec']['rung']} {repair['spec']['nodeName']} ({repair['metadata']['name']})", flush=True)
    return f"TASK-{repair['metadata']['name']}"


def serve(base, provider):
    """One round over all Repairs."""
    for repair in call(base, "GET", REPAIRS)["items"]:
        phase = repair.get("status", {}).get("phase", "Pending")
        if repair["spec"]["provider"] != provider or phase not in ("Pending", "Running"):
            continue
        if phase == "Pending" and repair["spec"].get("cancel"):
            report(base, repair, phase="Cancelled", finishedAt=now(), message="nobody wants it any more")
            continue
        if phase == "Pending":
            repair = report(base, repair, phase="Running", startedAt=now())
        if repair is not None:
            try:
                report(base, repair, phase="Done", finishedAt=now(), externalId=work(repair), message="handed over")
            except OSError as error:
                report(base, repair, phase="Failed", finishedAt=now(), message=str(error)[:200])


if __name__ == "__main__":
    while True:
        try:
            serve(sys.argv[1], sys.argv[2])
        except (OSError, ValueError) as error:
            print(f"tried again: {error}", file=sys.stderr, flush=True)
        time.sleep(float(sys.argv[3]) if len(sys.argv) > 3 else 5)
