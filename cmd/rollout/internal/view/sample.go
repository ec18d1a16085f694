package view

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/sink"
)

// A sample is one sample as the page gets it. Times are in milliseconds since 1970 and in seconds.
type sample struct {
	N             int              `json:"n"`
	Key           string           `json:"key"`
	Task          string           `json:"task"`
	Group         string           `json:"group"`
	GroupSize     int32            `json:"group_size"`
	Index         int32            `json:"index"`
	Attempt       int32            `json:"attempt"`
	Status        string           `json:"status"`
	StopReason    string           `json:"stop_reason"`
	Reward        *float64         `json:"reward"`
	RewardDetails *string          `json:"reward_details"`
	Keep          *bool            `json:"keep"`
	KeepReason    *string          `json:"keep_reason"`
	Model         string           `json:"model"`
	Agent         string           `json:"agent"`
	RunIDs        []string         `json:"run_ids"`
	Steps         int32            `json:"steps"`
	PromptTokens  int64            `json:"prompt_tokens"`
	Completion    int64            `json:"completion_tokens"`
	Started       int64            `json:"started"`
	Seconds       float64          `json:"seconds"`
	Working       float64          `json:"working"`
	Sampling      map[string]any   `json:"sampling,omitempty"`
	Messages      *string          `json:"messages"`
	Metadata      *string          `json:"metadata"`
	Unshown       string           `json:"unshown"`
	Rows          []row            `json:"rows"`
	Failures      []failure        `json:"failures"`
	Vocab         map[int32]string `json:"vocab,omitempty"` // text by id, of the ids in the rows and failures
}

// A row is one row of a sample. Its lists have the lengths of the columns of the same names.
type row struct {
	Segment      int32           `json:"segment"`
	Chain        int32           `json:"chain"`
	ChainKind    string          `json:"chain_kind"`
	ParentChain  *int32          `json:"parent_chain"`
	ParentStep   *int32          `json:"parent_step"`
	IDs          []int32         `json:"ids"`
	Mask         []int8          `json:"mask"`
	Logprobs     floats          `json:"logprobs"`
	Versions     []int32         `json:"versions"`
	Offsets      []int32         `json:"offsets"`
	Roles        []int8          `json:"roles"`
	PromptLength int32           `json:"prompt_length"`
	Finish       []string        `json:"finish"`
	StepIDs      []string        `json:"step_ids"`
	Truncated    bool            `json:"truncated"`
	Grade        string          `json:"grade"`
	Source       string          `json:"source"`
	Divergence   json.RawMessage `json:"divergence"`
	Flags        []string        `json:"flags"`
	Unscored     int32           `json:"unscored"`
	Trimmed      int32           `json:"trimmed"`
	Text         [][]part        `json:"text,omitempty"` // the text of each span
	// Messages is the conversation, decoded from the tokens as rollout export does. If that is not possible, it
	// contains the stored messages of the sample in the first row, and is null in other rows.
	Messages json.RawMessage `json:"messages"`
}

// A failure is one failure of a sample.
type failure struct {
	Call   int32   `json:"call"`
	Class  string  `json:"class"`
	Stage  string  `json:"stage"`
	Reason string  `json:"reason"`
	Error  string  `json:"error"`
	IDs    []int32 `json:"ids"`
	Text   string  `json:"text"`
}

// floats encodes NaN, for which JSON has no number, as null.
type floats []float32

// MarshalJSON implements json.Marshaler.
func (f floats) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 8*len(f)+2), '[')
	for i, v := range f {
		if i > 0 {
			b = append(b, ',')
		}
		if v != v || math.IsInf(float64(v), 0) {
			b = append(b, "null"...)
			continue
		}
		b = strconv.AppendFloat(b, float64(v), 'g', -1, 32)
	}
	return append(b, ']'), nil
}

// sample reads sample n. It returns nil if there is no such sample.
func (v *View) sample(n int) (*sample, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := &v.state.index
	if n < 0 || n >= len(x.order) {
		return nil, nil
	}
	s := &sample{
		N: n, Key: x.order[n], Task: x.task.List[x.taskOf[n]], Group: x.group.List[x.groupOf[n]], Index: x.sampleIndex[n],
		Status: x.status.List[x.statusOf[n]], Rows: []row{}, Failures: []failure{},
	}
	if c, ok := v.state.unshown[s.Key]; ok {
		s.Unshown = c.String()
	}
	vocab := v.tokens.vocab()
	at := x.data[n]
	for i := range int64(at.n) {
		r, err := v.state.logs[at.log].Row(v.state.shards[at.shard], at.first+i)
		if err != nil {
			return nil, v.run.Error(err)
		}
		if r.SampleKey != s.Key {
			return nil, fmt.Errorf("row %d of %s belongs to sample %s, not %s", at.first+i, v.state.shards[at.shard].Path, r.SampleKey, s.Key)
		}
		if i == 0 {
			s.setRow(r)
		}
		vocab.add(r.InputIDs)
		s.Rows = append(s.Rows, v.row(r, vocab))
	}
	if len(s.Rows) > 0 && s.Rows[0].Messages == nil && s.Messages != nil {
		if stored, err := decode.Stored(*s.Messages); err == nil { // otherwise the page shows them as they are
			s.Rows[0].Messages = decode.AppendJSON(nil, stored)
		}
	}
	for _, at := range x.failures[int32(n)] { //nolint:gosec // n is a number of the index
		f, err := v.state.logs[at.log].Failure(v.state.shards[at.shard], at.first)
		if err != nil {
			return nil, v.run.Error(err)
		}
		if f.Call < 0 && len(s.Rows) > 0 {
			continue // an earlier attempt
		}
		if len(s.Rows) == 0 {
			s.setFailure(f)
		}
		vocab.add(f.OutputIDs)
		s.Failures = append(s.Failures, failure{f.Call, f.Class, f.Stage, f.Reason, f.Error, list(f.OutputIDs), f.Text})
	}
	s.Vocab = vocab.texts
	return s, nil
}

func (s *sample) setRow(r *sink.StoredRow) {
	s.GroupSize, s.Attempt, s.StopReason = r.GroupSize, r.Attempt, r.StopReason
	s.Reward, s.RewardDetails, s.Keep, s.KeepReason = r.Reward, r.RewardDetails, r.Keep, r.KeepReason
	s.Model, s.Agent, s.RunIDs, s.Steps = r.Model, r.AgentID, r.RunIDs, r.Steps
	s.PromptTokens, s.Completion, s.Messages, s.Metadata = r.PromptTokens, r.CompletionTokens, r.Messages, r.Metadata
	s.Started, s.Seconds, s.Working = r.StartedAt/1e3, float64(r.DurationMS)/1e3, float64(r.WorkingMS)/1e3
	s.Sampling = map[string]any{}
	if r.Temperature != nil {
		s.Sampling["temperature"] = *r.Temperature
	}
	if r.TopP != nil {
		s.Sampling["top_p"] = *r.TopP
	}
	if r.TopK != nil {
		s.Sampling["top_k"] = *r.TopK
	}
	if r.MaxNewTokens != nil {
		s.Sampling["max_new_tokens"] = *r.MaxNewTokens
	}
}

func (s *sample) setFailure(f *sink.StoredFailure) {
	s.GroupSize, s.Attempt, s.StopReason = f.GroupSize, f.Attempt, f.StopReason
	s.Model, s.Agent, s.RunIDs, s.Steps = f.Model, f.AgentID, f.RunIDs, f.Steps
	s.PromptTokens, s.Completion, s.Messages, s.Metadata = f.PromptTokens, f.CompletionTokens, f.Messages, f.Metadata
	s.Started, s.Seconds, s.Working = f.StartedAt/1e3, float64(f.DurationMS)/1e3, float64(f.WorkingMS)/1e3
}

func (v *View) row(r *sink.StoredRow, vocab *vocabulary) row {
	out := row{
		Segment: r.SegmentIndex, Chain: r.Chain, ChainKind: r.ChainKind, ParentChain: r.ParentChain, ParentStep: r.ParentStep,
		IDs: list(r.InputIDs), Mask: list(r.LossMask), Logprobs: r.Logprobs, Versions: r.Versions, Offsets: list(r.TurnOffsets), Roles: list(r.TurnRoles),
		PromptLength: r.PromptLength, Finish: list(r.FinishReasons), StepIDs: list(r.StepIDs), Truncated: r.Truncated,
		Grade: r.Verification, Source: r.PromptSource, Flags: list(r.Flags), Unscored: r.Unscored, Trimmed: r.Trimmed,
	}
	if _, err := show.ReadDivergence(r.Divergence); err == nil && r.Divergence != nil {
		out.Divergence = json.RawMessage(*r.Divergence)
	}
	if vocab.decoder == nil {
		return out
	}
	if len(r.TurnOffsets) != len(r.TurnRoles)+1 {
		return out // rollout verify reports it
	}
	for k := range r.TurnRoles {
		from, to := int(r.TurnOffsets[k]), int(r.TurnOffsets[k+1])
		if from < 0 || from > to || to > len(r.InputIDs) {
			out.Text = nil // as above
			return out
		}
		out.Text = append(out.Text, vocab.decoder.parts(r.InputIDs[from:to]))
	}
	out.Messages = vocab.decoder.conversation(r)
	return out
}

// list returns an empty list instead of nil, which JSON encodes as null.
func list[T any](of []T) []T {
	if of == nil {
		return []T{}
	}
	return of
}

// A part is a piece of the text of a span: either a special token or the text between two.
type part struct {
	Text    string `json:"t"`
	Special int    `json:"s,omitempty"` // 1 if the part is a special token
}

// appendText appends bytes as text. Bytes that are not UTF-8 become escapes such as \xe4.
func appendText(dst, b []byte) []byte {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			dst = fmt.Appendf(dst, `\x%02x`, b[0])
		} else {
			dst = append(dst, b[:size]...)
		}
		b = b[size:]
	}
	return dst
}
