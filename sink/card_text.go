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
	f.rewards(b)
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
| ` + "`parent_chain`, `parent_step`" + ` | the conversation and the call (an element of its ` + "`step_ids`" + `) that started a subagent; null for other rows and if not proven |
| ` + "`input_ids`, `loss_mask`, `logprobs`" + ` | length T: token ids; 1 if the policy sampled the token and it can be trained on; log-probabilities, 0 if the mask is 0 |
| ` + "`versions`" + ` | length T or null: policy version of each sampled token, -1 for other tokens and if unknown |
| ` + "`turn_offsets`, `turn_roles`" + ` | length K+1 and K: the spans and their roles (0 prompt, 1 assistant, 2 tool, 3 user) |
| ` + "`prompt_length`" + ` | tokens before the first sampled token |
| ` + "`reward`, `reward_details`" + ` | null if the sample was not scored. ` + "`rollout rescore`" + ` puts newer rewards into ` + "`scores/`" + `, not into these columns |
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

// rewards describes the newest complete scores set. Only the readers of rollout use it by themselves.
func (f *cardFacts) rewards(b *bytes.Buffer) {
	if f.scores == "" {
		return
	}
	fmt.Fprintf(b, cardScores, f.scores)
	if !f.arrow {
		fmt.Fprintf(b, cardJoin, f.scores)
	}
}

const cardScores = `
## Rewards

` + "`rollout rescore`" + ` scored the samples of this run again, and did not change the rows. Readers of the
files in ` + "`data/`" + `, such as ` + "`load_dataset`" + `, still get ` + "`reward`, `reward_details`, `keep` and `keep_reason`" + `
from the collection. When this card was written, the newest complete scores set was ` + "`%[1]s`" + `. The
package ` + "`rollout`" + ` uses the newest set by itself:

` + "```python" + `
import rollout
rows = rollout.log.table("path/to/this/folder", scores="%[1]s")
` + "```" + `
`

const cardJoin = `
Without the package, replace the columns with DuckDB or pyarrow. A sample without a score was
collected later, and has no reward:

` + "```sql" + `
SELECT r.* REPLACE (
  s.reward AS reward, s.reward_details AS reward_details,
  if(s.sample_key IS NULL, r.keep, s.keep) AS keep,
  if(s.sample_key IS NULL, r.keep_reason, s.keep_reason) AS keep_reason)
FROM 'path/to/this/folder/data/*.parquet' AS r
LEFT JOIN 'path/to/this/folder/scores/%[1]s/scores/*.parquet' AS s ON r.sample_key = s.sample_key
` + "```" + `

` + "```python" + `
import pyarrow.compute as pc
import pyarrow.parquet as pq
rows = pq.read_table("path/to/this/folder/data")
scores = pq.read_table("path/to/this/folder/scores/%[1]s/scores")
at = pc.index_in(rows["sample_key"], value_set=scores["sample_key"])
for name in ["reward", "reward_details", "keep", "keep_reason"]:
    new = scores[name].take(at)
    if name.startswith("keep"):
        new = pc.if_else(pc.is_valid(at), new, rows[name])
    rows = rows.set_column(rows.column_names.index(name), name, new)
` + "```" + `
`

const cardArrow = `
Failures are Parquet files in ` + "`failures/`" + `. They are not a configuration of this card, because the datasets library
reads all configurations of a card in one format. ` + "`rollout export RUN --kind failures`" + ` prints them.
`

const cardEnd = `
This card has no license. The owner of the data can add one.
`
