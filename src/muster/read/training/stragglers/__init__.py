"""Reports about slow ranks, as training frameworks print them: one module per layout.

Each reader takes the lines of a log one by one (`feed`) and says at the end what they mean (`finish`). `marks` are
words that the layout cannot do without.
"""

from __future__ import annotations

from muster.read.training.stragglers.data_loading import DataLoading
from muster.read.training.stragglers.extremes import Extremes
from muster.read.training.stragglers.node_check import NodeCheck
from muster.read.training.stragglers.reader import Reader
from muster.read.training.stragglers.scores import Scores
from muster.read.training.stragglers.sections import Sections


def readers() -> tuple[Reader, ...]:
    """A fresh reader of each layout."""
    return (DataLoading(), Scores(), Sections(), Extremes(), NodeCheck())
