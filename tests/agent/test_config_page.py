"""The reference page of the agent's configuration is current, names every key, and its example is read."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import msgspec

from muster import yamlio
from muster.agent.config import AgentConfig, read
from muster.agent.config_page import page
from muster.resources.base import Model

PAGE = Path(__file__).parents[2] / "docs/reference/agent-config.md"


def test_the_page_is_fresh() -> None:
    command = "python -m muster.agent.config_page docs/reference/agent-config.md"
    assert PAGE.read_text(encoding="utf-8") == page(), f"stale: run {command}"


def test_the_example_is_read_and_says_something() -> None:
    block = "\n".join(line for line in page().splitlines() if line.startswith("    "))
    config = read(yamlio.loads(textwrap.dedent(block), "page"), "page")
    assert config.gpu.expected_count == 8
    assert config.network.expected_rate_gbps == 400
    assert config.host.filesystems.full_percent == 97


def test_every_section_and_key_has_a_row() -> None:
    sections = re.split(r"^#+ `(.+)`$", page(), flags=re.MULTILINE)
    rows = {
        name: set(re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE))
        for name, body in zip(sections[1::2], sections[2::2], strict=True)
    }
    assert rows.keys() >= set(AgentConfig.__struct_encode_fields__)
    for field in msgspec.structs.fields(AgentConfig):
        if isinstance(field.default, Model):
            assert rows[field.encode_name] == set(type(field.default).__struct_encode_fields__)
    assert "windowS" in rows["timing.flapping"]
    assert {"command", "okCodes"} <= rows["plugins.script"]
