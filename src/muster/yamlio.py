"""Reading YAML that people wrote, and writing YAML that people read.

Input is hostile until parsed: sizes are bounded, aliases are refused (a few lines of them expand to gigabytes) and
duplicate keys are errors instead of a silent last one wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from muster.errors import BadInputError

MAX_BYTES = 10 * 1024 * 1024
MAX_NODES = 1_500_000
"""Values and keys of one stream. Each takes some 700 bytes while it is read; a snapshot of 10 MiB has fewer."""
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*|/[A-Za-z0-9_./-]*", re.ASCII)
_WORDS_WITH_MEANING = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


def _refuse_aliases(root: Any) -> None:
    """An alias makes one node reachable twice; nothing is expanded yet at this point."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            raise yaml.constructor.ConstructorError(None, None, "aliases are not accepted", node.start_mark)
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            waiting.extend(part for pair in node.value for part in pair)


def _refuse_too_many(text: str | bytes, source: str) -> None:
    # A node takes a byte at least, so a short text needs no count.
    if len(text) <= MAX_NODES:
        return
    count = 0
    for event in yaml.parse(text, Loader=_Base):
        count += isinstance(event, yaml.NodeEvent)
        if count > MAX_NODES:
            raise BadInputError(f"{source} holds more than {MAX_NODES} values; split the file.")


class _StrictLoader(_Base):  # type: ignore[misc]
    def construct_document(self, node: Any) -> Any:
        _refuse_aliases(node)
        return super().construct_document(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float, bool)) and key is not None:
                raise yaml.constructor.ConstructorError(None, None, "a key must be a scalar", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_TEXT = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})
# Dates stay text: a chart version or a tag that looks like a date must survive a round trip. So does a lone "=".
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXT]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}


def _number(loader: Any, node: Any) -> Any:
    """A number; `12:30` is text, as it is to Helm and kubectl, and not the 750 that YAML 1.1 makes of it."""
    if ":" in node.value:
        return loader.construct_scalar(node)
    return loader.construct_yaml_int(node) if node.tag.endswith(":int") else loader.construct_yaml_float(node)


_StrictLoader.yaml_constructors = {
    tag: constructor
    for tag, constructor in _Base.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] not in ("binary", "omap", "pairs", "set", "timestamp")
}
"""What JSON has; other tags are refused."""
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _number)
# `1e3` and `1.5e3` are numbers to Helm and kubectl; YAML 1.1 asks for a sign and a dot.
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+\Z", re.ASCII),
    list("-+.0123456789"),
)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _number)


def loads(text: str | bytes, source: str) -> Any:
    """Parse one YAML document. `source` names it in errors. Raises BadInputError with line and column."""
    return loads_all(text, source, at_most=1)[0]


def loads_all(text: str | bytes, source: str, at_most: int = 1000) -> list[Any]:
    """Parse every document of a stream (at least one entry: an empty stream is `[None]`)."""
    if len(text) > MAX_BYTES:
        raise BadInputError(f"{source} is larger than {MAX_BYTES // 1024 // 1024} MiB; give a smaller YAML file.")
    try:
        _refuse_too_many(text, source)
        documents: list[Any] = []
        for document in yaml.load_all(text, Loader=_StrictLoader):
            documents.append(document)
            if len(documents) > at_most:
                raise BadInputError(f"{source} holds more than {at_most} YAML document(s); split the file.")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise BadInputError(f"{source} is not valid YAML{where}: {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        first_line = str(error).splitlines()[0]
        raise BadInputError(f"{source} is not valid YAML: {first_line}.") from error
    except RecursionError as error:
        raise BadInputError(f"{source} is not valid YAML: it nests too deeply; flatten it.") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{source} is not valid YAML: it is no UTF-8 text.") from error
    except (ValueError, KeyError) as error:
        raise BadInputError(
            f"{source} is not valid YAML: it holds a number or truth value that cannot be read; put text in quotes."
        ) from error
    return documents or [None]


def load(path: Path) -> Any:
    """Parse the file at `path`, which must hold one document. Raises BadInputError in one sentence."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"Cannot read {path}: {error.strerror or error}.") from error
    return loads(data, str(path))


class _Writer(_Dumper):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature of PyYAML
        return True


def _represent_text(writer: Any, value: str) -> Any:
    if "\n" in value and re.fullmatch(r"[\x20-\x7e\n]*", value) and not re.search(r"[ ]\n|^\s", value):
        return writer.represent_scalar("tag:yaml.org,2002:str", value, style="|")
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS_WITH_MEANING
    simple = value.isascii() and value.isprintable()
    return writer.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else "'" if simple else '"')


_Writer.add_representer(str, _represent_text)


def dumps(value: Any) -> str:
    """One document that every reader understands alike: keys in the given order, block style, no aliases.

    Go and Python disagree on what a plain scalar means (`y`, `1e3`, `0o17`, `12:30`), so text that is not an ordinary
    word is quoted. The layout is fixed: same value, same bytes, one trailing newline.
    """
    return dumps_all([value], marker=False)


def dumps_all(values: Iterable[Any], marker: bool = True) -> str:
    """Several documents, each introduced by `---`."""
    written: str = yaml.dump_all(
        list(values),
        Dumper=_Writer,
        sort_keys=False,
        allow_unicode=False,
        width=10**9,
        default_flow_style=False,
        explicit_start=marker,
    )
    return written
