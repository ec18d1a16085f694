package enginesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"
	"github.com/rollout-rl/rollout/tokenize"
)

// A generateRequest is the body of a request to /generate. Other members are ignored, as in SGLang.
type generateRequest struct {
	InputIDs []int32         `json:"input_ids"`
	Sampling json.RawMessage `json:"sampling_params"`
	Logprob  bool            `json:"return_logprob"`
	Stream   bool            `json:"stream"`
	Experts  bool            `json:"return_routed_experts"`
	Masks    bool            `json:"return_sampling_mask"`
	RID      string          `json:"rid"`
}

func (e *Engine) generate(w http.ResponseWriter, r *http.Request) {
	g := generation{call: Call{N: e.truth.begin(), Began: time.Now(), Path: "/generate"}}
	var body generateRequest
	err := readJSON(w, r, &body)
	if err == nil && body.InputIDs == nil {
		err = errors.New("input_ids: want one list of ids")
	}
	g.call.InputIDs, g.call.Sampling, g.call.Stream = body.InputIDs, body.Sampling, body.Stream
	if refusal := e.inside(&g, body.Experts, body.Masks, true); err == nil && refusal != "" {
		err = errors.New(refusal)
	}
	var limit int64
	if err == nil {
		limit, err = e.limit(body.Sampling, len(body.InputIDs))
	}
	if err != nil {
		e.fault(w, &g, http.StatusBadRequest, err.Error())
		return
	}
	if !e.run(r.Context(), w, &g, limit, false) {
		return
	}
	id := body.RID
	if id == "" {
		id = fmt.Sprintf("%016x%016x", PromptSeed(body.InputIDs), g.call.N)
	}
	n := len(g.call.OutputIDs)
	d := e.delivery(w, r, &g)
	if body.Stream {
		d.stream(func(yield func(event) bool) {
			for k := range chunks(n) {
				if !yield(event{e.generated(&g, id, body.Logprob, k), k}) {
					return
				}
			}
		})
	} else {
		d.whole(e.generated(&g, id, body.Logprob, n), n)
	}
	e.ended(&g, d)
}

// limit returns the maximum number of tokens to sample: the limit in the request or SGLang's default
// of 128, but never more than the rest of the context. The limit null means the rest of the context.
func (e *Engine) limit(sampling json.RawMessage, prompt int) (int64, error) {
	limit, err := firstLimit(sampling, 128, "max_new_tokens")
	if err != nil {
		return 0, err
	}
	if prompt >= e.cfg.MaxModelLen {
		return 0, fmt.Errorf("the input (%d tokens) is longer than the model's context length (%d tokens)", prompt, e.cfg.MaxModelLen)
	}
	return min(limit, int64(e.cfg.MaxModelLen-prompt)), nil
}

// firstLimit returns the first of the named parameters that is set, or the value other. If there is only one
// name, the value null means no limit.
func firstLimit(sampling json.RawMessage, other int64, names ...string) (int64, error) {
	var params map[string]json.RawMessage
	if sampling != nil && json.Unmarshal(sampling, &params) != nil {
		return 0, errors.New("sampling_params: want an object")
	}
	for _, name := range names {
		v, ok := params[name]
		if ok && string(v) == "null" && len(names) == 1 {
			return math.MaxInt64, nil
		}
		if ok && string(v) != "null" {
			var limit int64
			if json.Unmarshal(v, &limit) != nil || limit < 0 {
				return 0, fmt.Errorf("%s: want a number of tokens, got %s", name, v)
			}
			return limit, nil
		}
	}
	return other, nil
}

// generated returns an answer with the first n tokens of the output. Only the complete answer has a
// finish reason.
func (e *Engine) generated(g *generation, id string, logprobs bool, n int) []byte {
	c := &g.call
	text, finish := c.Text, []byte("null")
	if n < len(c.OutputIDs) {
		text, _ = e.text(c.OutputIDs[:n], true) // the ids come from the tokenizer
	} else {
		finish, _ = json.Marshal(c.Finish) // encoding strings and numbers cannot fail
	}
	body := sglang.Answer{
		Text: text, OutputIDs: tokenize.AppendIDs(nil, c.OutputIDs[:n]), ID: id, Version: c.Version, Finish: finish,
		PromptTokens: len(c.InputIDs), CompletionTokens: n, Seconds: c.Ended.Sub(c.Began).Seconds(),
	}
	body.More = e.appendInside(nil, g, n)
	if logprobs {
		list := []byte{'['}
		for i, id := range c.OutputIDs[:n] {
			if i > 0 {
				list = append(list, ',')
			}
			list = g.appendLogprob(append(list, '['), i, "NaN")
			list = append(strconv.AppendInt(append(list, ','), int64(id), 10), ",null]"...)
		}
		body.Logprobs = append(list, ']')
	}
	return body.Append(nil)
}

// appendLogprob appends the i-th log-probability as JSON. If text was planted there, it appends
// this text instead.
func (g *generation) appendLogprob(dst []byte, i int, notFinite string) []byte {
	if g.printed != nil && g.printed[i] != "" {
		return append(dst, g.printed[i]...)
	}
	return sglang.AppendFloat(dst, g.call.Logprobs[i], plainFrom, notFinite)
}

// A stream of n tokens sends an event whenever the output reaches one of the lengths that chunks
// yields. There are about 8 lengths, and the last length is n.
func chunks(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		step := max(1, n/8)
		for k := step; k < n; k += step {
			if !yield(k) {
				return
			}
		}
		yield(n)
	}
}
