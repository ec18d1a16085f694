package continuity_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// An effect is the number of rows and prefilled tokens of a rollout.
type effect struct {
	rows, prefilled int
}

// effectOf aligns calls with these prompts, and sums the tokens that an engine with a perfect
// prefix cache must process: the part of each prompt that no earlier call shares.
func effectOf(tb testing.TB, prompts, outputs [][]int32) effect {
	tb.Helper()
	var e effect
	calls := make([]tokenize.Call, len(prompts))
	for k := range prompts {
		shared := 0
		for j := range k {
			shared = max(shared, common(slices.Concat(prompts[j], outputs[j]), prompts[k]))
		}
		e.prefilled += len(prompts[k]) - shared
		calls[k] = tokenize.Call{
			PromptIDs: prompts[k], OutputIDs: outputs[k], Logprobs: make([]float32, len(outputs[k])),
			Source: tokenize.SourceTap, Grade: tokenize.Exact, Version: -1,
		}
	}
	rows, _, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align(calls)
	if err != nil {
		tb.Fatal(err)
	}
	e.rows = len(rows)
	return e
}

func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// recordings has the decision for every recorded prompt, and the rows without and with continuity.
const recordings = `
approval               rows 2 → 2  prefilled   329 →   329  changed  0  new new
approval-pending       rows 1 → 1  prefilled   270 →   270  changed  0  new
client-tool-return     rows 2 → 2  prefilled   448 →   448  changed  0  new new
compaction             rows 4 → 3  prefilled  9838 →  9811  changed  1  new text new new
conversation           rows 3 → 2  prefilled   575 →   635  changed  1  new text thought same
empty                  rows 1 → 1  prefilled   376 →   376  changed  0  new
http-500               rows 0 → 0  prefilled     0 →     0  changed  0  new
large                  rows 2 → 1  prefilled   461 →   434  changed  1  new text
length                 rows 1 → 1  prefilled   371 →   371  changed  0  new
max-steps              rows 1 → 1  prefilled   494 →   494  changed  0  new same same
multi                  rows 4 → 3  prefilled   505 →   565  changed  1  new thought text thought
nan                    rows 1 → 1  prefilled   372 →   372  changed  0  new
newlines               rows 1 → 1  prefilled   376 →   376  changed  0  new
override-model         rows 1 → 1  prefilled   495 →   495  changed  0  new same same
reasoner-on            rows 1 → 1  prefilled   492 →   492  changed  0  new same same
single                 rows 1 → 1  prefilled   371 →   371  changed  0  new
sixteen                rows 6 → 1  prefilled  1414 →  1286  changed 15  new text continued continued text continued continued text continued continued text continued continued text continued continued
tool                   rows 1 → 1  prefilled   437 →   437  changed  0  new same
tool-args-compact      rows 2 → 1  prefilled   455 →   434  changed  1  new call
tool-args-numbers      rows 2 → 1  prefilled   397 →   384  changed  1  new call
tool-fail              rows 1 → 1  prefilled   337 →   337  changed  0  new same
tool-list              rows 1 → 1  prefilled   343 →   343  changed  0  new same
tool-malformed         rows 2 → 2  prefilled   496 →   496  changed  0  new malformed
tool-null-args         rows 1 → 1  prefilled   374 →   374  changed  0  new
tool-parallel          rows 1 → 1  prefilled   486 →   486  changed  0  new same
tool-parallel-dropped  rows 2 → 2  prefilled   435 →   435  changed  0  new calls
tool-split             rows 2 → 1  prefilled   458 →   433  changed  1  new tokens
tool-text              rows 2 → 1  prefilled   463 →   438  changed  1  new text
tool-think-two         rows 3 → 1  prefilled   558 →   508  changed  2  new text text
tool-two               rows 1 → 1  prefilled   506 →   506  changed  0  new same same
tool-unicode           rows 1 → 1  prefilled   347 →   347  changed  0  new same
`

// TestRecorded replays every recorded conversation and compares with recordings. Do not update that
// table after a rule change without reading the case.
func TestRecorded(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, name := range lettatest.Names(t) {
		calls := recorded(t, name)
		if len(calls) == 0 {
			continue
		}
		table := newTable(t, qwen3(t))
		var reasons []string
		var asked, sent, outputs [][]int32
		changed := 0
		for _, c := range calls {
			s, reason := decide(t, table, c.Asked)
			reasons = append(reasons, reason.String())
			call := tap.Call{Status: c.Status, Prompt: c.Asked, Output: c.Output}
			if s != nil {
				changed++
				call.Prompt, call.Asked = s, c.Asked
				checkSplice(t, name, c.Asked, s, outputs)
			}
			table.Answered(&call)
			if len(c.Output) > 0 {
				asked, sent, outputs = append(asked, c.Asked), append(sent, call.Prompt), append(outputs, c.Output)
			}
		}
		without, with := effectOf(t, asked, outputs), effectOf(t, sent, outputs)
		lines = append(lines, fmt.Sprintf("%-22s rows %d → %d  prefilled %5d → %5d  changed %2d  %s\n", name,
			without.rows, with.rows, without.prefilled, with.prefilled, changed, strings.Join(reasons, " ")))
	}
	slices.Sort(lines)
	if got, want := strings.Join(lines, ""), recordings[1:]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
