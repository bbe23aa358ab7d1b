"""All the faults, one row each. Nothing is mocked except the service, which impostors replace on its socket."""

from __future__ import annotations

from tests.cluster.service_faults import SERVICE_FAULTS
from tests.cluster.socket_faults import SOCKET_FAULTS
from tests.cluster.upkeep_faults import UPKEEP_FAULTS

FAULTS = (*SOCKET_FAULTS, *SERVICE_FAULTS, *UPKEEP_FAULTS)
