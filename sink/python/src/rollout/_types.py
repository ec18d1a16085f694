"""What the reader gives and the rest of the package takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
"""One row by column name, see package sink of the program for all columns.

The columns with an entry per token are numpy arrays of length T, unshifted and
unpadded:

    input_ids   int32    the whole sequence
    loss_mask   int8     1 where the policy sampled the token
    logprobs    float32  of token i at [i]; exactly 0.0 where the mask is 0
    versions    int32    policy version per token, -1 where not sampled; or None

turn_offsets (int32, K+1) and turn_roles (int8, K; 0 prompt, 1 assistant, 2 tool,
3 user) cut the row into spans. reward is a float, or None where it was not scored.
Arrays may be read-only views of a mapped file.
"""


@dataclass(frozen=True)
class Group:
    """All samples of one task, whole: what advantages are computed over.

    size == samples with rows + failed + empty + missing + left_out.
    """

    run: str
    """The run's folder, as it was given to the dataset."""
    id: str
    """The column group_id."""
    size: int
    """How many samples were asked for: the column group_size."""
    rows: list[Row] = field(repr=False)
    """The rows of all its samples, by sample_index and then segment_index; repr leaves them out."""
    failed: int = 0
    """Samples that failed for good: they have rows in failures/ only."""
    empty: int = 0
    """Samples that were committed without a row: nothing in them is trainable."""
    missing: int = 0
    """Samples that the log does not hold: not collected yet, skipped, or cut."""
    left_out: int = 0
    """Samples of which a filter left out every row, see Where."""
