"""Components, constraints and checks while overlays, mixins and profiles are merged into them, and who set what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from muster.configure.catalogue import Catalogue, Checks, Component, Overlay, Patch
from muster.configure.constraints import Constraint, narrow
from muster.configure.provenance import DECLARED, Setting
from muster.configure.values import ABSENT, Path, Values, merge, parse_path, path_text, put


class Draft(msgspec.Struct):
    """A component while overlays are merged into it."""

    component: Component
    enabled: bool = True
    version: str = ""
    depends_on: list[str] = []
    pre: list[str] = []
    post: list[str] = []
    namespace_labels: dict[str, str] = {}
    values: Values = {}


class Drafts:
    """Everything merged so far."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.drafts: dict[str, Draft] = {}
        self.constraints: dict[str, Constraint] = {}
        self.checks: dict[str, tuple[list[str], dict[str, Constraint]]] = {}
        self.settings: dict[str, list[Setting]] = {}

    def apply_overlay(self, overlay: Overlay) -> None:
        source = f"overlays/{overlay.name}.yaml"
        self.apply(source, overlay.constraints, overlay.components)
        for phase, wanted in overlay.checks.items():
            self._apply_checks(phase, wanted, source)

    def apply(self, source: str, constraints: Mapping[str, str], components: Mapping[str, Patch]) -> None:
        for name, text in constraints.items():
            for origin in self.catalogue.settings(source, f"constraint:{name}", text):
                self._narrow(self.constraints, name, str(origin.value), origin.source)
        for name, patch in components.items():
            self._apply_patch(self._draft(name), patch, source)

    def set_node_count(self, nodes: int) -> None:
        for name in sorted(self.drafts):
            for text in self.drafts[name].component.node_count_paths:
                put(self.drafts[name].values, parse_path(text), nodes)
                self.record(f"{name}:{text}", "--nodes", nodes)

    def demand_kubernetes(self, component: Component) -> None:
        file = f"components/{component.name}.yaml"
        for origin in self.catalogue.settings(file, "constraint:kubernetes.version", component.kube_version):
            source = f"kubeVersion of the chart in {origin.source}"
            self._narrow(self.constraints, "kubernetes.version", str(origin.value), source)

    def _draft(self, name: str) -> Draft:
        if name not in self.drafts:
            component = self.catalogue.components[name]
            draft = self.drafts[name] = Draft(component, version=component.source.version)
            source = f"components/{name}.yaml"
            if draft.version:
                self._trace(f"{name}.version", source, draft.version)
            self._record_layers(name, source)
            draft.pre.extend(component.manifests.pre)
            draft.post.extend(component.manifests.post)
            merge(draft.values, component.values, self._recorder(name, source))
        return self.drafts[name]

    def _record_layers(self, name: str, source: str) -> None:
        """Fields of the component (its namespace, say) that layers changed."""
        for path, origins in self.catalogue.origins.get(source, {}).items():
            if path.startswith(f"{name}.") and path != f"{name}.version":
                for origin in origins:
                    self.record(path, origin.source, origin.value)

    def _apply_patch(self, draft: Draft, patch: Patch, source: str) -> None:
        name = draft.component.name
        if patch.enabled is not None:
            draft.enabled = patch.enabled
            self._trace(f"{name}.enabled", source, patch.enabled)
        if patch.version:
            draft.version = patch.version
            self._trace(f"{name}.version", source, patch.version)
        for needed in patch.depends_on:
            if needed not in draft.depends_on:
                self.record(f"{name}.dependsOn.{needed}", source, DECLARED)
        for target, added in (
            (draft.depends_on, patch.depends_on),
            (draft.pre, patch.manifests.pre),
            (draft.post, patch.manifests.post),
        ):
            target.extend(item for item in added if item not in target)
        draft.namespace_labels.update(patch.namespace_labels)
        merge(draft.values, patch.values, self._recorder(name, source))

    def _apply_checks(self, phase: str, wanted: Checks, source: str) -> None:
        names, constraints = self.checks.setdefault(phase, ([], {}))
        if not wanted.checks:
            names.clear()
            constraints.clear()
        names.extend(name for name in wanted.checks if name not in names)
        for name, text in wanted.constraints.items():
            for origin in self.catalogue.settings(source, f"{phase}:constraint:{name}", text):
                self._narrow(constraints, name, str(origin.value), origin.source)

    def _narrow(self, constraints: dict[str, Constraint], name: str, text: str, source: str) -> None:
        before = constraints.get(name)
        constraints[name] = narrow(before, name, text, source)
        # A demand that changes nothing did not set the value.
        if before is None or before.value != constraints[name].value:
            self.record(f"constraint:{name}", source, constraints[name].value)

    def _recorder(self, component: str, source: str) -> Callable[[Path, Any, Any], None]:
        def record(path: Path, value: Any, present: Any) -> None:
            self._trace(f"{component}:{path_text(path)}", source, value, present)

        return record

    def _trace(self, path: str, source: str, value: Any, present: Any = ABSENT) -> None:
        """Record a setting of the file `source`, and which layers made the file say so."""
        for origin in self.catalogue.settings(source, path, value):
            self.record(path, origin.source, origin.value, present)

    def record(self, path: str, source: str, value: Any, present: Any = ABSENT) -> None:
        settings = self.settings.setdefault(path, [])
        replaced = None
        if settings:
            replaced = (settings[-1].value, settings[-1].source)
        elif present is not ABSENT:
            replaced = (present, "a map or value around it")
        settings.append(Setting(source, value, replaced))
