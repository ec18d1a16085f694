"""The types that the readers return and that the rest of the package accepts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from rollout import _text

Path = str | os.PathLike[str]


class Row(dict[str, Any]):
    """One row, as a dict of columns. The documentation of the Go package sink lists all columns.

    Per-token columns are numpy arrays of length T, unshifted and unpadded:

        input_ids   int32    the whole sequence
        loss_mask   int8     1 if the policy sampled the token and its log-probability is known
        logprobs    float32  entry i belongs to token i; exactly 0.0 if the token's mask is 0
        versions    int32    policy version per token, -1 if not sampled or unknown; or None

    Optional columns are None unless the run stores them:

        routed_experts          int8 or int16 [T, layers, top_k]; -1 if the engine returned none
        sampling_mask           int32, the ids among which each token was sampled, one list after the other
        sampling_mask_lengths   int32 [T], the number of these ids per token; 0 if unknown or not sampled
        weight_versions         list of names of weight versions, "" if not sampled or unknown
        weight_version_ends     int32; name k belongs to the tokens from ends[k-1] (or 0) to ends[k]

    turn_offsets (int32, K+1) and turn_roles (int8, K; 0 prompt, 1 assistant, 2 tool, 3 user) divide
    the row into spans. chain (an int, 0 is the main conversation) and chain_kind ("main", "subagent"
    or "auxiliary") identify the row's conversation within its sample. parent_chain and parent_step
    (ints or None) are the chain and the element of step_ids of the call that started a subagent. reward
    is a float, or None if the sample was not scored. It is the same in all rows of a sample. Arrays can
    be read-only views of a mapped file.
    """

    __slots__ = ("run",)

    run: str
    """The run's folder, as in Group.run. Rows of a group have it. Rows of rollout.log and copies do not."""

    def messages(self, tokenizer: Any = None) -> list[dict[str, Any]]:
        """Return the conversation of the row, decoded from its tokens, as in OpenAI's Chat Completions API:
        {"role": "assistant", "content": "...", "reasoning_content": "...", "tool_calls": [...]}.

        The roles are system, user, assistant and tool. The marks that the chat template puts around
        messages are removed, and each assistant span is one message. Text has the role "unknown" if
        no mark begins it, or if the chat template is not known. A call that cannot be parsed stays
        in the content. Calls and results get the ids call_1, call_2 and so on. `rollout export --to
        openai-messages` writes the same messages. The column messages, if the run has it, is what
        the server or the harness returned. If the run has no tokenizer or its chat template is not
        known, the first row of a sample returns the messages of this column, in the same form. For
        the tokenizer and the errors, see rollout.decode.
        """
        return _text.messages(self, tokenizer)


@dataclass(frozen=True)
class Group:
    """All samples of one task. Advantages are computed per group.

    size is the sum of failed, empty, missing, left_out and the number of samples with rows.
    """

    run: str
    """The run's folder, as passed to the dataset."""
    id: str
    """The column group_id."""
    size: int
    """The column group_size: the number of samples that were requested."""
    rows: list[Row] = field(repr=False)
    """The rows of all samples, sorted by sample_index and then by segment_index. repr() omits
    this field."""
    failed: int = 0
    """The number of samples that failed permanently. These samples have rows only in failures/."""
    empty: int = 0
    """The number of samples that were committed without a row, because they have no trainable token."""
    missing: int = 0
    """The number of samples that are not in the log, because they were skipped, cut, or not yet
    collected."""
    left_out: int = 0
    """The number of samples whose rows were all dropped by filters (see Where)."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if isinstance(row, Row):
                row.run = self.run
