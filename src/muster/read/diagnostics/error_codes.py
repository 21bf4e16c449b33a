"""Names of DCGM's error numbers, and the messages by which a text output tells the same errors.

The numbers are the enumeration `dcgmError_t` of DCGM 3 and 4 (dcgm_errors.h). What a code means for us is in the
fault catalogue; here are only the ways in which the tools write it.
"""

from __future__ import annotations

from muster.faults import catalogue
from muster.faults.catalogue import Dcgm

_IN_ORDER = """
UNKNOWN UNRECOGNIZED PCI_REPLAY_RATE VOLATILE_DBE_DETECTED VOLATILE_SBE_DETECTED PENDING_PAGE_RETIREMENTS
RETIRED_PAGES_LIMIT RETIRED_PAGES_DBE_LIMIT CORRUPT_INFOROM CLOCKS_EVENT_THERMAL POWER_UNREADABLE
CLOCKS_EVENT_POWER NVLINK_ERROR_THRESHOLD NVLINK_DOWN NVSWITCH_FATAL_ERROR NVSWITCH_NON_FATAL_ERROR
NVSWITCH_DOWN NO_ACCESS_TO_FILE NVML_API DEVICE_COUNT_MISMATCH BAD_PARAMETER CANNOT_OPEN_LIB DENYLISTED_DRIVER
NVML_LIB_BAD GRAPHICS_PROCESSES HOSTENGINE_CONN FIELD_QUERY BAD_CUDA_ENV PERSISTENCE_MODE LOW_BANDWIDTH
HIGH_LATENCY CANNOT_GET_FIELD_TAG FIELD_VIOLATION FIELD_THRESHOLD FIELD_VIOLATION_DBL FIELD_THRESHOLD_DBL
UNSUPPORTED_FIELD_TYPE FIELD_THRESHOLD_TS FIELD_THRESHOLD_TS_DBL THERMAL_VIOLATIONS THERMAL_VIOLATIONS_TS
TEMP_VIOLATION CLOCKS_EVENT_VIOLATION INTERNAL PCIE_GENERATION PCIE_WIDTH ABORTED TEST_DISABLED CANNOT_GET_STAT
STRESS_LEVEL CUDA_API FAULTY_MEMORY CANNOT_SET_WATCHES CUDA_UNBOUND ECC_DISABLED MEMORY_ALLOC CUDA_DBE
MEMORY_MISMATCH CUDA_DEVICE ECC_UNSUPPORTED ECC_PENDING MEMORY_BANDWIDTH TARGET_POWER API_FAIL API_FAIL_GPU
CUDA_CONTEXT DCGM_API CONCURRENT_GPUS TOO_MANY_ERRORS NVLINK_CRC_ERROR_THRESHOLD NVLINK_ERROR_CRITICAL
ENFORCED_POWER_LIMIT MEMORY_ALLOC_HOST GPU_OP_MODE NO_MEMORY_CLOCKS NO_GRAPHICS_CLOCKS HAD_TO_RESTORE_STATE
L1TAG_UNSUPPORTED L1TAG_MISCOMPARE ROW_REMAP_FAILURE UNCONTAINED_ERROR EMPTY_GPU_LIST
DBE_PENDING_PAGE_RETIREMENTS UNCORRECTABLE_ROW_REMAP PENDING_ROW_REMAP BROKEN_P2P_MEMORY_DEVICE
BROKEN_P2P_WRITER_DEVICE NVSWITCH_NVLINK_DOWN EUD_BINARY_PERMISSIONS EUD_NON_ROOT_USER EUD_SPAWN_FAILURE
EUD_TIMEOUT EUD_ZOMBIE EUD_NON_ZERO_EXIT_CODE EUD_TEST_FAILED FILE_CREATE_PERMISSIONS PAUSE_RESUME_FAILED
PCIE_H_REPLAY_VIOLATION GPU_EXPECTED_NVLINKS_UP NVSWITCH_EXPECTED_NVLINKS_UP XID_ERROR SBE_VIOLATION
DBE_VIOLATION PCIE_REPLAY_VIOLATION SBE_THRESHOLD_VIOLATION DBE_THRESHOLD_VIOLATION
PCIE_REPLAY_THRESHOLD_VIOLATION CUDA_FM_NOT_INITIALIZED SXID_ERROR
"""
_NAMES = tuple(_IN_ORDER.split())
"""Numbers 1 to 109 in order; higher ones moved between releases."""

_MESSAGES: tuple[tuple[str, str], ...] = (
    ("double bit", "DBE_VIOLATION"),
    ("double-bit", "DBE_VIOLATION"),
    ("uncorrectable ecc", "DBE_VIOLATION"),
    ("row remappings are pending", "PENDING_ROW_REMAP"),
    ("pending row remap", "PENDING_ROW_REMAP"),
    ("row remap failure", "ROW_REMAP_FAILURE"),
    ("remapping failed", "ROW_REMAP_FAILURE"),
    ("pending page retirement", "PENDING_PAGE_RETIREMENTS"),
    ("retired pages", "RETIRED_PAGES_LIMIT"),
    ("uncorrectable memory error", "UNCORRECTABLE_ROW_REMAP"),
    ("corrupt inforom", "CORRUPT_INFOROM"),
    ("corruption detected", "CORRUPT_INFOROM"),
    ("nvlinks are up out of the expected", "GPU_EXPECTED_NVLINKS_UP"),
    ("is currently down", "NVLINK_DOWN"),
    ("nvlink crc", "NVLINK_CRC_ERROR_THRESHOLD"),
    ("nvlink error", "NVLINK_ERROR_THRESHOLD"),
    ("xid", "XID_ERROR"),
    ("thermal violations", "THERMAL_VIOLATIONS"),
    ("power minimum", "TARGET_POWER"),
    ("stress level", "STRESS_LEVEL"),
    ("pcie link generation", "PCIE_GENERATION"),
    ("pcie link width", "PCIE_WIDTH"),
    ("persistence mode", "PERSISTENCE_MODE"),
    ("fabric manager", "CUDA_FM_NOT_INITIALIZED"),
    ("graphics process", "GRAPHICS_PROCESSES"),
    ("ecc is disabled", "ECC_DISABLED"),
    ("unable to allocate", "MEMORY_ALLOC"),
    ("couldn't allocate", "MEMORY_ALLOC"),
    ("could not allocate", "MEMORY_ALLOC"),
    ("cannot allocate", "MEMORY_ALLOC"),
    ("failed to allocate", "MEMORY_ALLOC"),
    ("memory allocation", "MEMORY_ALLOC"),
    ("out of memory", "MEMORY_ALLOC"),
    ("internal error", "INTERNAL"),
    ("busy or unavailable", "CUDA_API"),
    ("mcutil", "CONCURRENT_GPUS"),
    ("using cuda api", "CUDA_API"),
    ("api call", "API_FAIL"),
    ("cuda context", "CUDA_CONTEXT"),
    ("memory error", "FAULTY_MEMORY"),
    ("memory mismatch", "MEMORY_MISMATCH"),
    ("memory bandwidth", "MEMORY_BANDWIDTH"),
    ("temperature", "TEMP_VIOLATION"),
    ("bandwidth", "LOW_BANDWIDTH"),
    ("latency", "HIGH_LATENCY"),
)
"""Words of a message in lower case. What speaks of the hardware comes before what speaks of a failed call: a call may
fail because of an uncorrectable error. Messages end with advice, so its words (`utilization`) are not here."""


def code_of(number: int | None, message: str) -> str | None:
    """`DCGM_FR_...` of an error number, else of a message; None when neither is known."""
    if number is not None and 1 <= number <= len(_NAMES):
        return f"DCGM_FR_{_NAMES[number - 1]}"
    lowered = message.lower()
    name = next((name for words, name in _MESSAGES if words in lowered), None)
    return f"DCGM_FR_{name}" if name is not None else None


def meaning(code: str | None) -> Dcgm | None:
    """The catalogue's entry; None for an error without a code."""
    return catalogue.dcgm(code) if code is not None else None
