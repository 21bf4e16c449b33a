"""Archives: what is packed comes back, the same files are the same bytes, and bytes that are none are refused."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from muster.configure.registry.archive import pack, unpack
from muster.configure.registry.tree import TreeFile, read_tree, write_tree
from muster.errors import BadInputError

PARTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="/\\"), min_size=1, max_size=12
)
NAMES = st.lists(PARTS.filter(lambda part: part not in (".", "..")), min_size=1, max_size=4).map("/".join)
FILES = st.builds(TreeFile, st.binary(max_size=200), st.booleans())
# One folder for each file, so that no file is a folder of another.
TREES = st.dictionaries(NAMES, FILES, max_size=6).map(
    lambda tree: {f"d{at}/{name}": tree[name] for at, name in enumerate(sorted(tree))}
)


@given(TREES)
def test_what_is_packed_comes_back(tree: dict[str, TreeFile]) -> None:
    packed = pack(tree)
    assert unpack(packed, "test") == tree
    assert pack(dict(reversed(tree.items()))) == packed


@given(TREES)
def test_what_is_written_is_read(tree: dict[str, TreeFile]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_tree(tree, Path(folder) / "new")
        assert read_tree(Path(folder) / "new") == tree


@given(st.binary(max_size=2000), st.booleans())
def test_other_bytes_are_refused_or_empty(data: bytes, zipped: bool) -> None:
    assert _sentence_or_tree(gzip.compress(data) if zipped else data) in ({}, "test")


def _sentence_or_tree(packed: bytes) -> object:
    """What was unpacked, or the first word of the refusal."""
    try:
        return unpack(packed, "test")
    except BadInputError as error:
        return str(error).split(" ")[0]
