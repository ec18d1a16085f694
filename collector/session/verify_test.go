package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/tokenize"
)

// build builds the rollout of the session, verifies it, and returns it with its rows.
func (h *harness) build(tb testing.TB, cfg session.Config) (*session.Rollout, []tokenize.Row) {
	tb.Helper()
	out, err := session.Build(&h.record, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	rows, err := verify(&h.record, out)
	if err != nil {
		tb.Fatalf("%v\n%s", err, summary(out))
	}
	return out, rows
}

// verify is an independent check of the rules that do not depend on what a harness meant.
func verify(r *session.Record, out *session.Rollout) ([]tokenize.Row, error) {
	byNumber := map[int]*session.Call{}
	for i := range r.Calls {
		byNumber[r.Calls[i].Number] = &r.Calls[i]
	}
	var sum session.Tally
	seen, leftOut := map[int]bool{}, false
	for i := range out.Calls {
		c, raw := &out.Calls[i], byNumber[out.Number[i]]
		if raw == nil || seen[out.Number[i]] {
			return nil, fmt.Errorf("call %d is unknown or occurs twice", out.Number[i])
		}
		seen[out.Number[i]] = true
		if !slices.Equal(c.OutputIDs, raw.Output) || !slices.Equal(c.PromptIDs, raw.Prompt) {
			return nil, fmt.Errorf("call %d: other tokens than in the record", raw.Number)
		}
		if (c.Reason == tokenize.ReasonNone) != (c.Grade == tokenize.Exact) || c.Source != tokenize.SourceTap {
			return nil, fmt.Errorf("call %d: reason %v, grade %v, source %v", raw.Number, c.Reason, c.Grade, c.Source)
		}
		if c.Reason != tokenize.ReasonNone && !strings.Contains(c.Note, fmt.Sprintf("request %d ", raw.Number)) {
			return nil, fmt.Errorf("call %d: note %q", raw.Number, c.Note)
		}
		if leftOut && c.Reason == tokenize.ReasonNone {
			return nil, fmt.Errorf("call %d follows calls that are left out", raw.Number)
		}
		leftOut = c.Reason != tokenize.ReasonNone
		if i > 0 && leftOut == (out.Calls[i-1].Reason != tokenize.ReasonNone) {
			last := &out.Calls[i-1]
			if !leftOut && last.Chain > c.Chain || (leftOut || last.Chain == c.Chain) && out.Number[i-1] > out.Number[i] {
				return nil, fmt.Errorf("call %d is out of order", raw.Number)
			}
		}
		n := len(raw.Output)
		sum.Sampled += n
		switch c.Reason {
		case tokenize.ReasonNone:
			sum.Trained += n
			if raw.Cut && n == 0 {
				return nil, fmt.Errorf("call %d: trained without a token", raw.Number)
			}
		case tokenize.ReasonAuxiliary:
			sum.Auxiliary += n
		case tokenize.ReasonSuperseded:
			sum.Superseded += n
		case tokenize.ReasonCutAnswer:
			sum.Cut += n
		default:
			sum.Quarantined += n
		}
	}
	if sum != out.Tally || sum.Sampled != sum.Trained+sum.Auxiliary+sum.Superseded+sum.Cut+sum.Quarantined {
		return nil, fmt.Errorf("tally %+v, want %+v", out.Tally, sum)
	}
	if len(out.Calls)+out.Failed != len(r.Calls) {
		return nil, fmt.Errorf("%d calls and %d failed requests of %d", len(out.Calls), out.Failed, len(r.Calls))
	}
	placed := 0
	for n, x := range out.Chains {
		for k, i := range x.Calls {
			if int(out.Calls[i].Chain) != n || out.Calls[i].ChainKind != x.Kind || k > 0 && out.Number[x.Calls[k-1]] >= out.Number[i] {
				return nil, fmt.Errorf("chain %d does not match its call %d", n, out.Number[i])
			}
			placed++
		}
		if (x.Kind == tokenize.ChainMain) != (n == 0) && x.From < 0 {
			return nil, fmt.Errorf("chain %d has kind %v", n, x.Kind)
		}
	}
	if placed != len(out.Calls) {
		return nil, fmt.Errorf("%d of %d calls are in a chain", placed, len(out.Calls))
	}

	rows, al, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align(out.Calls)
	if err != nil {
		return nil, err
	}
	if al.Sampled != sum.Sampled || al.Lost != sum.Sampled-sum.Trained || al.Trained+al.Unscored != sum.Trained {
		return nil, fmt.Errorf("alignment %+v, tally %+v", al, sum)
	}
	return rows, contexts(out.Calls, rows)
}

// contexts verifies that each trained output is in one row, after exactly the prompt of its call,
// and that no row contains calls of two chains.
func contexts(calls []tokenize.Call, rows []tokenize.Row) error {
	trained := map[int]bool{}
	for i := range rows {
		row := &rows[i]
		k := int(row.FirstCall)
		for s, role := range row.TurnRoles {
			if tokenize.Role(role) != tokenize.RoleAssistant {
				continue
			}
			for len(calls[k].OutputIDs) == 0 {
				k++
			}
			c := &calls[k]
			lo, hi := row.TurnOffsets[s], row.TurnOffsets[s+1]
			if c.Reason != tokenize.ReasonNone || trained[k] || c.Chain != row.Chain || c.ChainKind != row.ChainKind {
				return fmt.Errorf("row %d of chain %d contains call %d of chain %d: %v", i, row.Chain, k, c.Chain, c.Reason)
			}
			if !slices.Equal(row.InputIDs[:lo], c.PromptIDs) || !slices.Equal(row.InputIDs[lo:hi], c.OutputIDs) {
				return fmt.Errorf("row %d: call %d has another context or output", i, k)
			}
			trained[k] = true
			k++
		}
	}
	return nil
}
