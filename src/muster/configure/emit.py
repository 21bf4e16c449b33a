"""Write YAML that every reader understands alike.

Go and Python disagree on what a plain scalar means (`y`, `1e3`, `0o17`, `12:30`), so text that is not an ordinary
word is quoted. The layout is fixed: same value, same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*|/[A-Za-z0-9_./-]*", re.ASCII)
_WORDS_WITH_MEANING = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


@cache
def _dumper() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature of PyYAML
            return True

    def text(dumper: Any, value: str) -> Any:
        if "\n" in value and re.fullmatch(r"[\x20-\x7e\n]*", value) and not re.search(r"[ ]\n|^\s", value):
            return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|")
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS_WITH_MEANING
        simple = value.isascii() and value.isprintable()
        return dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style=None if plain else "'" if simple else '"'
        )

    Dumper.add_representer(str, text)
    return Dumper


def yaml_text(value: Any) -> str:
    """One document, keys in the given order, block style, one trailing newline."""
    return yaml_documents([value], marker=False)


def yaml_documents(values: Iterable[Any], marker: bool = True) -> str:
    """Several documents, each introduced by `---`."""
    import yaml

    written: str = yaml.dump_all(
        list(values),
        Dumper=_dumper(),
        sort_keys=False,
        allow_unicode=False,
        width=10**9,
        default_flow_style=False,
        explicit_start=marker,
    )
    return written
