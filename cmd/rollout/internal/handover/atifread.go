package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// sampledSpan reports whether a span with the role consists of sampled tokens.
func sampledSpan(role int8) bool { return tokenize.Role(role) == tokenize.RoleAssistant }

// A trajectory contains the parts of a trajectory that ReadATIF reads.
type trajectory struct {
	Version string `json:"schema_version"`
	Steps   []struct {
		Metrics *struct {
			Prompt     list[int32]   `json:"prompt_token_ids"`
			Completion list[int32]   `json:"completion_token_ids"`
			Logprobs   list[float32] `json:"logprobs"`
			Extra      struct {
				Mask     list[int8]    `json:"loss_mask"`
				Logprobs list[float32] `json:"logprobs"`
				Versions list[int32]   `json:"versions"`
			} `json:"extra"`
		} `json:"metrics"`
	} `json:"steps"`
	Extra struct {
		Rollout  json.RawMessage `json:"rollout"`
		Trailing list[int32]     `json:"trailing_token_ids"`
	} `json:"extra"`
}

// A list is an array of numbers. encoding/json would read null as 0.
type list[T int8 | int32 | float32] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *list[T]) UnmarshalJSON(text []byte) error {
	return rowjson.DecodeList(string(text), (*[]T)(l))
}

// ReadATIF reads the row of a trajectory that rollout exported. Every column has the same bits as before the
// export.
func ReadATIF(text string) (*sink.StoredSample, error) {
	var t trajectory
	if err := strictjson.Check(text, strictjson.Options{}); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return nil, err
	}
	if t.Version != schemaVersion {
		return nil, fmt.Errorf("the trajectory has schema_version %q, but import reads only %s, and only from rollout export --to atif", t.Version, schemaVersion)
	}
	if t.Extra.Rollout == nil {
		return nil, errors.New("the trajectory has no extra.rollout, so rollout did not export it: its loss mask, grade and identity are unknown")
	}
	r := new(sink.StoredRow)
	if err := rowjson.DecodeFacts(string(t.Extra.Rollout), r); err != nil {
		return nil, fmt.Errorf("extra.rollout: %w", err)
	}
	if err := t.fill(r); err != nil {
		return nil, err
	}
	return r.AsSample(), nil
}

// fill sets the columns of the row that have one entry per token.
func (t *trajectory) fill(r *sink.StoredRow) error {
	if len(r.TurnOffsets) != len(r.TurnRoles)+1 || !slices.IsSorted(r.TurnOffsets) || r.TurnOffsets[0] != 0 {
		return errors.New("extra.rollout: turn_offsets does not fit turn_roles")
	}
	n := int(r.TurnOffsets[len(r.TurnRoles)])
	step := len(t.Steps)
	for step > 0 && t.Steps[step-1].Metrics == nil {
		step--
	}
	if step == 0 {
		return errors.New("no step has metrics")
	}
	last := t.Steps[step-1].Metrics
	r.InputIDs = slices.Concat(last.Prompt, last.Completion, t.Extra.Trailing)
	if len(r.InputIDs) != n {
		return fmt.Errorf("the last step with metrics ends at token %d, but turn_offsets ends at %d", len(r.InputIDs), n)
	}
	r.LossMask, r.Logprobs = make([]int8, n), make([]float32, n)
	span := 0
	for i := range t.Steps {
		m := t.Steps[i].Metrics
		if m == nil {
			continue
		}
		for span < len(r.TurnRoles) && !sampledSpan(r.TurnRoles[span]) {
			span++
		}
		if span == len(r.TurnRoles) {
			return fmt.Errorf("step %d: there are more steps with metrics than assistant spans", i+1)
		}
		from, to := int(r.TurnOffsets[span]), int(r.TurnOffsets[span+1])
		if !slices.Equal(m.Prompt, r.InputIDs[:from]) || !slices.Equal(m.Completion, r.InputIDs[from:to]) {
			return fmt.Errorf("step %d: prompt_token_ids and completion_token_ids are not tokens 0 to %d of the row", i+1, to)
		}
		mask, logprobs := m.Extra.Mask, m.Extra.Logprobs
		if mask == nil {
			mask, logprobs = slices.Repeat(list[int8]{1}, to-from), m.Logprobs
		}
		if len(mask) != to-from || len(logprobs) != to-from || m.Extra.Versions != nil && len(m.Extra.Versions) != to-from {
			return fmt.Errorf("step %d: %d ids, %d masks, %d log-probabilities, %d versions", i+1, to-from, len(mask), len(logprobs), len(m.Extra.Versions))
		}
		copy(r.LossMask[from:to], mask)
		copy(r.Logprobs[from:to], logprobs)
		if m.Extra.Versions != nil {
			if r.Versions == nil {
				r.Versions = slices.Repeat([]int32{-1}, n)
			}
			copy(r.Versions[from:to], m.Extra.Versions)
		}
		span++
	}
	if slices.ContainsFunc(r.TurnRoles[min(span, len(r.TurnRoles)):], sampledSpan) {
		return errors.New("there are fewer steps with metrics than assistant spans")
	}
	return nil
}
