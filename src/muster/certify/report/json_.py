"""The report as JSON, and the schema that it keeps to (`certify/data/report.schema.json`). Pure."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from muster.certify.report.model import SCHEMA_VERSION, ReportModel

SCHEMA_FILE = "report.schema.json"
"""In `certify/data/`; written with `python -m muster.certify.report.json_`."""


def json_text(report: ReportModel) -> str:
    """The report as JSON, indented, keys in the order of the model. Same report, same bytes."""
    return json.dumps(msgspec.to_builtins(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what `json_text` writes: every field is there, and no other."""
    (top,), definitions = msgspec.json.schema_components((ReportModel,), ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if definition.get("type") == "object" and "properties" in definition:
            definition["required"] = list(definition["properties"])
            definition["additionalProperties"] = False
            for field in definition["properties"].values():
                field.pop("default", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{SCHEMA_VERSION}.json",
        "title": "Report of a Muster certification",
        **top,
        "$defs": definitions,
    }


def schema_text() -> str:
    """The schema as it is shipped."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
