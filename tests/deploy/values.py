"""Sets of values with which the chart is looked at: every switch, and what people combine."""

from __future__ import annotations

from typing import Any

from muster.resources.base import (
    GPU_PRESENT_LABEL,
)
from tests.deploy.chart import OBSERVERS

EVERYTHING: dict[str, Any] = {
    "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": [{"name": "registry"}]},
    "namespace": {"create": True},
    "logFormat": "json",
    "controller": {
        "verbose": True,
        "podLabels": {"a": "b"},
        "podAnnotations": {"c": "d"},
        "nodeSelector": {"e": "f"},
        "outputs": {"cluster": "east", "audit": {"path": "-"}},
        "providers": {"providers": [{"kind": "external", "name": "ours"}]},
        "secrets": ["pager"],
        "history": {"secret": "history", "retentionDays": 30},
        "serviceAccountAnnotations": {"g": "h"},
    },
    "agent": {
        "hostNetwork": True,
        "podLabels": {"a": "b"},
        "podAnnotations": {"c": "d"},
        "config": {"gpu": {"intervalS": 60}},
        "secrets": ["cloud"],
        "runtimeClassName": "nvidia",
        "serviceAccountAnnotations": {"g": "h"},
    },
    "baselines": {"enabled": True},
    "metrics": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "rules": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
    },
}
VALUES = {
    "defaults": {},
    "observers": OBSERVERS,
    "controller-alone": {"agent": {"enabled": False}},
    "everything": EVERYTHING,
    "baselines": {"baselines": {"enabled": True}},
    "no-crds": {"crds": {"install": False}},
    "no-policies": {"admissionPolicies": {"enabled": False}},
    "no-glass": {"admissionPolicies": {"breakGlassGroups": []}},
    "existing-classes": {
        "controller": {"priorityClassName": "system-cluster-critical"},
        "agent": {"priorityClassName": "system-node-critical"},
    },
    "log-file": {"agent": {"kernelLog": {"path": "/var/log/muster/kernel.json", "privileged": False}}},
    "device-without-privilege": {"agent": {"kernelLog": {"privileged": False}}},
    "little-of-the-host": {"agent": {"hostFilesystem": False}},
    "no-annotations": {"controller": {"annotatePods": False}},
    "history-on-a-disk": {"controller": {"replicas": 1, "history": {"secret": "history", "claim": "history"}}},
    "outputs-alone": {"controller": {"outputs": {"cluster": "east"}}},
    "providers-alone": {"controller": {"providers": {"providers": []}}},
    "no-force": {"controller": {"forceDelete": False}},
    "one-replica": {"controller": {"replicas": 1}, "agent": {"maxUnavailable": 3}},
    "own-affinity": {"controller": {"affinity": {"nodeAffinity": {}}}, "agent": {"affinity": {"nodeAffinity": {}}}},
    "every-node": {"agent": {"nodeSelector": {GPU_PRESENT_LABEL: None}}},
}
