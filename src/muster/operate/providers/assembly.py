"""From the configuration to providers. Each kind is imported only where it is asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol, assert_never, cast

from muster.clock import Clock
from muster.errors import BadInputError
from muster.kube.api import KubeApi
from muster.operate.carry_out import always_leading
from muster.operate.providers.config import (
    AnySettings,
    AwsSettings,
    AzureSettings,
    ExternalSettings,
    GcpSettings,
    JobSettings,
    OciSettings,
    PluginSettings,
    ProvidersConfig,
    RedfishSettings,
    TicketSettings,
    WebhookSettings,
)
from muster.operate.providers.provider import ENTRY_POINTS, Provider
from muster.resources.repair import Rung


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What providers work with. `still_leading` is asked before each write to the cluster."""

    api: KubeApi
    clock: Clock
    still_leading: Callable[[], Awaitable[bool]] = always_leading


class MakePlugin(Protocol):
    """What an entry point of the group `muster.providers` names. Raises BadInputError for settings of no use."""

    def __call__(
        self, name: str, rungs: frozenset[Rung] | None, settings: Mapping[str, Any], around: Surroundings
    ) -> Provider: ...


def make_providers(config: ProvidersConfig, around: Surroundings) -> tuple[Provider, ...]:
    """One provider for each entry, in their order.

    Raises BadInputError: a missing extra or file, rungs that the kind cannot do.
    """
    return tuple(_checked(settings, _make(settings, around)) for settings in config.providers)


def _make(settings: AnySettings, around: Surroundings) -> Provider:
    match settings:
        case JobSettings():
            from muster.operate.providers.job.provider import JobProvider

            return JobProvider(settings, around.api, around.clock, around.still_leading)
        case RedfishSettings():
            from muster.operate.providers.redfish.provider import RedfishProvider

            return RedfishProvider(settings, around.clock)
        case AwsSettings() | GcpSettings() | AzureSettings() | OciSettings():
            from muster.operate.providers.cloud.assembly import cloud_provider

            return cloud_provider(settings, around.clock)
        case WebhookSettings():
            from muster.operate.providers.webhook import WebhookProvider

            return WebhookProvider(settings, around.clock)
        case TicketSettings():
            from muster.operate.providers.ticket import TicketProvider

            return TicketProvider(settings, around.clock)
        case ExternalSettings():
            from muster.operate.providers.external import ExternalProvider

            return ExternalProvider(settings)
        case PluginSettings():
            return _plugin(settings, around)
        case _ as never:
            assert_never(never)


def _plugin(settings: PluginSettings, around: Surroundings) -> Provider:
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    entry = found.get(settings.type)
    if entry is None:
        known = ", ".join(sorted(found)) or "none"
        raise BadInputError(
            f"Provider {settings.name}: no package offers the type {settings.type[:80]!r} (there is: {known})."
        )
    try:
        make = cast(MakePlugin, entry.load())
    except Exception as error:
        raise BadInputError(
            f"Provider {settings.name}: {entry.value} cannot be loaded ({type(error).__name__}: {error})."
        ) from error
    return make(settings.name, frozenset(settings.rungs) or None, settings.settings, around)


def _checked(settings: AnySettings, provider: Provider) -> Provider:
    beyond = sorted(set(settings.rungs) - provider.rungs)
    if beyond:
        raise BadInputError(f"Provider {settings.name} cannot do {beyond[0].value}; take it out of `rungs`.")
    return provider
