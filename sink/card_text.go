package sink

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
)

func (f *cardFacts) body(b *bytes.Buffer) {
	fmt.Fprintf(b, "# Rollouts of run %s\n\n", f.runID)
	if f.seq == 0 {
		b.WriteString("The run has no commit yet.\n")
		return
	}
	fmt.Fprintf(b, "As of commit %d, %s. The card can lag behind the commit log in `_commits/`, which is authoritative.\n\n",
		f.seq, f.created.UTC().Format(time.RFC3339))
	b.WriteString("| | |\n|---|---:|\n")
	line := func(what string, n int64) { fmt.Fprintf(b, "| %s | %d |\n", what, n) }
	line("samples in the data", f.samples)
	line("rows", f.rows[KindData])
	line("tokens", f.tokens.Total)
	line("tokens with loss mask 1", f.tokens.Trainable)
	for _, grade := range slices.Sorted(maps.Keys(f.graded)) {
		line("rows with verification `"+grade+"`", f.graded[grade])
	}
	line("failure rows", f.rows[KindFailures])
	b.WriteString(cardRows)
	b.WriteString(cardKeep)
	if f.arrow && len(f.paths[KindFailures]) > 0 {
		b.WriteString(cardArrow)
	}
	b.WriteString(cardEnd)
}

const cardRows = `
` + "```python" + `
from datasets import load_dataset
rows = load_dataset("path/to/this/folder", split="train")
` + "```" + `

A row is one training sequence of T tokens, unshifted and unpadded. The rows of one sample
share ` + "`sample_key`" + ` and are numbered by ` + "`segment_index`" + ` of ` + "`segment_count`" + `; samples of one task share
` + "`group_id`" + `. Null means unknown, never zero.

| columns | |
|---|---|
| ` + "`chain`, `chain_kind`" + ` | the number of the conversation within the sample, 0 for the main one, and its kind: main, subagent or auxiliary |
| ` + "`input_ids`, `loss_mask`, `logprobs`" + ` | length T: token ids; 1 if the policy sampled the token and it can be trained on; log-probabilities, 0 if the mask is 0 |
| ` + "`versions`" + ` | length T or null: policy version of each sampled token, -1 for other tokens and if unknown |
| ` + "`turn_offsets`, `turn_roles`" + ` | length K+1 and K: the spans and their roles (0 prompt, 1 assistant, 2 tool, 3 user) |
| ` + "`prompt_length`" + ` | tokens before the first sampled token |
| ` + "`reward`, `reward_details`" + ` | null if the sample was not scored |
| ` + "`status`, `stop_reason`, `finish_reasons`, `truncated`" + ` | how the row and its sample ended |
| ` + "`verification`, `prompt_source`" + ` | how the tokens were verified, and the source of the prompt ids |
| ` + "`flags`, `divergence`, `n_unscored`, `n_trimmed`" + ` | other facts about the row |
`

const cardKeep = `
A filter excluded the rows with ` + "`keep=false`" + `, for the reason in ` + "`keep_reason`" + `. ` + "`rollout.Dataset`" + ` skips
them. Other readers must filter:

` + "```python" + `
rows = rows.filter(lambda keep: keep is not False, input_columns="keep")
` + "```" + `
`

const cardArrow = `
Failures are Parquet files in ` + "`failures/`" + `. They are not a configuration of this card, because the datasets library
reads all configurations of a card in one format. ` + "`rollout export RUN --kind failures`" + ` prints them.
`

const cardEnd = `
This card has no license. The owner of the data can add one.
`
