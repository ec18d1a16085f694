package tokenize_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// A tape turns fuzzed bytes into choices.
type tape struct{ b []byte }

func (p *tape) next(n int) int {
	if len(p.b) == 0 {
		return 0
	}
	v := int(p.b[0])
	p.b = p.b[1:]
	return v % n
}

// callsFrom makes calls whose prompts continue the row, differ, are cut, follow a lost call or begin a chain.
func callsFrom(p *tape) (tokenize.AlignConfig, []tokenize.Call) {
	cfg := tokenize.AlignConfig{
		Drift:        tokenize.Drift(p.next(3)),
		RealignMax:   p.next(6),
		MaxRowTokens: p.next(2) * (1 + p.next(60)),
	}
	literal := p.next(4) == 3
	versions := p.next(2) == 1
	serial := int32(100) // sampled ids are distinct, so that a test can find each one
	for range p.next(4) {
		cfg.StopIDs = append(cfg.StopIDs, serial+int32(p.next(30)))
	}
	cfg.MaskAfterStop = p.next(2) == 1
	if p.next(2) == 1 {
		cfg.TokenizerSize = 100 + p.next(40)
	}
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(p.next(4))
		}
		return out
	}
	var calls []tokenize.Call
	var seen []int32
	chain := int32(0)
	for k := range p.next(8) {
		c := tokenize.Call{Source: tokenize.SourceTurns, Version: -1, StepID: fmt.Sprint(k)}
		c.After = []tokenize.Role{tokenize.RoleTool, tokenize.RoleUser, tokenize.RolePrompt}[p.next(3)]
		if p.next(6) == 5 { // even if the prompt continues the row
			chain += 1 + int32(p.next(2))
		}
		if c.Chain = chain; chain > 0 {
			c.ChainKind, c.Parent = tokenize.ChainSubagent, tokenize.Parent{Chain: chain - 1, Step: chain}
		}
		prompt := slices.Clone(seen)
		switch p.next(8) {
		case 0, 1, 2, 3: // continues the row
			prompt = append(prompt, ids(p.next(4))...)
		case 4: // differs at some position
			if len(prompt) > 0 {
				prompt[p.next(len(prompt))] = 99
			}
			prompt = append(prompt, ids(p.next(3))...)
		case 5: // differs near the end
			if len(prompt) > 0 {
				prompt[len(prompt)-1-p.next(min(6, len(prompt)))] = 98
			}
			prompt = append(prompt, ids(p.next(3))...)
		case 6: // a prefix of the row, or equal to it
			prompt = prompt[:len(prompt)-p.next(len(prompt)+1)]
		case 7:
			prompt = ids(1 + p.next(5))
		}
		if len(prompt) == 0 {
			prompt = []int32{1}
		}
		for range p.next(6) {
			c.OutputIDs = append(c.OutputIDs, serial)
			serial++
			v := -float32(p.next(16)) / 8
			switch p.next(12) {
			case 0:
				v = float32(math.NaN())
			case 1:
				v = float32(math.Inf(-1))
			case 2:
				v = 0.5
			case 3:
				v = float32(math.Copysign(0, -1))
			case 4:
				v = []float32{-1000, -1000.0625, -9999, -math.MaxFloat32}[p.next(4)]
			}
			c.Logprobs = append(c.Logprobs, v)
		}
		if versions && p.next(3) > 0 {
			c.Version = int32(p.next(3))
			if p.next(3) == 0 {
				c.Version = -1
				for range c.OutputIDs {
					c.Versions = append(c.Versions, int32(p.next(3))-1)
				}
			}
		}
		if n := len(c.OutputIDs); n > 0 && p.next(4) == 0 {
			c.StopID = new(c.OutputIDs[p.next(n)])
		}
		if p.next(5) == 0 {
			c.FinishReason = "length"
		}
		if p.next(6) == 0 {
			c.Flags = tokenize.FlagSurplusLogprobs
		}
		if literal {
			c.Source, c.Grade, c.Context, c.PromptIDs = tokenize.SourceLiteral, tokenize.Unverified, ids(p.next(4)), nil
			prompt = append(slices.Clone(seen), c.Context...)
		} else {
			c.PromptIDs = prompt
			if p.next(4) == 0 {
				c.Source, c.Grade = tokenize.SourceStored, tokenize.CountVerified
			}
		}
		if p.next(10) == 0 {
			c.Grade, c.Reason = tokenize.Quarantined, tokenize.ReasonNoPrompt
		}
		seen = append(slices.Clone(prompt), c.OutputIDs...)
		calls = append(calls, c)
	}
	return cfg, calls
}

// checkAlignment verifies the invariants of an alignment without the reference.
func checkAlignment(calls []tokenize.Call, cfg tokenize.AlignConfig, rows []tokenize.Row, sum tokenize.Alignment) error {
	if sum.Sampled != sum.Trained+sum.Unscored+sum.Trimmed+sum.Cut+sum.Lost {
		return fmt.Errorf("sums do not add up: %+v", sum)
	}
	trained := map[int32]float32{}
	for i := range rows {
		r := &rows[i]
		for _, c := range calls[r.FirstCall:r.LastCall] {
			if c.Chain != r.Chain || c.ChainKind != r.ChainKind || c.Parent != r.Parent {
				return fmt.Errorf("row %d is of %s chain %d and has a call of %s chain %d", i, r.ChainKind, r.Chain, c.ChainKind, c.Chain)
			}
		}
		if err := r.Check(0); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		if cfg.MaxRowTokens > 0 && len(r.InputIDs) > cfg.MaxRowTokens {
			return fmt.Errorf("row %d has %d tokens, more than %d", i, len(r.InputIDs), cfg.MaxRowTokens)
		}
		if text := r.AppendDivergence(nil); len(text) > 0 && !json.Valid(text) {
			return fmt.Errorf("row %d: divergence is not JSON", i)
		}
		for j, m := range r.LossMask {
			if m == 0 {
				continue
			}
			if _, twice := trained[r.InputIDs[j]]; twice {
				return fmt.Errorf("token %d is trained twice", r.InputIDs[j])
			}
			trained[r.InputIDs[j]] = r.Logprobs[j]
		}
	}
	if len(trained) != sum.Trained {
		return fmt.Errorf("%d tokens are trained, the sum is %d", len(trained), sum.Trained)
	}
	for k, c := range calls {
		for j, id := range c.OutputIDs {
			v, ok := trained[id]
			if ok && math.Float32bits(v) != math.Float32bits(c.Logprobs[j]) {
				return fmt.Errorf("call %d token %d: log-probability %v, want %v", k, j, v, c.Logprobs[j])
			}
			gone := slices.Contains(sum.LostCalls, int32(k)) || slices.Contains(sum.CutCalls, int32(k))
			if ok && gone {
				return fmt.Errorf("call %d is lost or cut, and its token %d is trained", k, j)
			}
			if !ok && !gone && sum.Unscored+sum.Trimmed == 0 {
				return fmt.Errorf("call %d token %d is trained nowhere", k, j)
			}
		}
	}
	return nil
}

// alignmentText has all fields of the result of Align.
func alignmentText(t *testing.T, rows []tokenize.Row, sum tokenize.Alignment) string {
	t.Helper()
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	err := lines.Encode(sum)
	for i := range rows {
		err = errors.Join(err, lines.Encode(rows[i]))
	}
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// FuzzAlign checks that Align equals the reference and that its result passes checkAlignment.
func FuzzAlign(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 3, 0, 0, 3, 1, 2, 3, 3, 4, 4, 4, 4})
	f.Add([]byte{1, 5, 0, 0, 1, 7, 0, 5, 2, 5, 5, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
	f.Add([]byte{2, 0, 1, 9, 1, 7, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4})
	for seed := range 40 {
		b := make([]byte, 400)
		x := uint32(seed + 1)
		for i := range b {
			x = x*1664525 + 1013904223
			b[i] = byte(x >> 24)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		cfg, calls := callsFrom(&tape{b})
		wantRows, wantSum, ok := reference(cfg, calls)
		rows, sum, err := tokenize.NewAligner(cfg).Align(calls)
		if !ok {
			if !errors.Is(err, tokenize.ErrPrefix) {
				t.Fatalf("error %v, want drift", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		got, want := alignmentText(t, rows, sum), alignmentText(t, wantRows, wantSum)
		if got != want {
			t.Fatalf("%+v\n got %s\nwant %s", cfg, got, want)
		}
		if err := checkAlignment(calls, cfg, rows, sum); err != nil {
			t.Fatalf("%v\n%s", err, want)
		}
	})
}
