"""The contract on the simplest provider: what fails here is wrong in the controller or in the contract itself."""

from __future__ import annotations

from tests.providers.contract import ProviderContract
from tests.providers.stand_in import StandInBench


class TestStandIn(ProviderContract):
    bench = StandInBench
