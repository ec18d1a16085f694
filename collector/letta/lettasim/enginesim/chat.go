package enginesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A chatRequest is the body of a request to /v1/chat/completions.
type chatRequest struct {
	Model    string            `json:"model"`
	Messages []json.RawMessage `json:"messages"`
	Tools    json.RawMessage   `json:"tools"`
	Logprobs bool              `json:"logprobs"`
	Stream   bool              `json:"stream"`
	Options  struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	TokenIDs    bool `json:"return_token_ids"`
	TokensAsIDs bool `json:"return_tokens_as_token_ids"`
	PromptIDs   bool `json:"return_prompt_token_ids"`
	MetaInfo    bool `json:"return_meta_info"`
	ExtInput    bool `json:"return_input_ids_in_sglext"`
	ExtOutput   bool `json:"return_output_ids_in_sglext"`
	Experts     bool `json:"return_routed_experts"`
	Masks       bool `json:"return_sampling_mask"`
}

func (e *Engine) chat(w http.ResponseWriter, r *http.Request) {
	g := generation{call: Call{N: e.truth.begin(), Began: time.Now(), Path: "/v1/chat/completions"}, chat: true}
	c := &g.call
	var raw json.RawMessage
	var body chatRequest
	err := readJSON(w, r, &raw)
	if err == nil {
		err = json.Unmarshal(raw, &body)
	}
	if err == nil {
		c.Sampling, c.Stream = withoutTexts(raw), body.Stream
		c.describe(&body)
		if e.cfg.StrictModel && body.Model != e.cfg.Model {
			e.fault(w, &g, http.StatusNotFound, fmt.Sprintf("The model `%s` does not exist.", body.Model))
			return
		}
		c.InputIDs, err = e.render(&body)
	}
	var asked asking
	if err == nil {
		var refusal string
		if asked, refusal = e.cfg.Dialect.ids(&body, r.Header); refusal == "" && e.cfg.Dialect.sglang() {
			refusal = e.inside(&g, body.Experts, body.Masks, body.MetaInfo)
		}
		if refusal != "" {
			err = errors.New(refusal)
		}
	}
	var limit int64
	if err == nil {
		limit, err = e.restLimit(c, int64(e.cfg.MaxModelLen), "max_completion_tokens", "max_tokens")
	}
	if err != nil {
		e.fault(w, &g, http.StatusBadRequest, err.Error())
		return
	}
	if t := e.harness(&body); t != nil {
		if message := t.unknown(); message != "" {
			e.fault(w, &g, http.StatusBadRequest, message)
			return
		}
		g.turn, g.unique = t, true
		c.Marker, c.Fault = t.marker, e.faults.take(t)
		c.Script, c.Seed, c.Step = t.Script, t.Params["seed"], t.Step
		if e.refused(w, &g, t, limit) {
			return
		}
	}
	summary := len(body.Messages) > 0 && bytes.Contains(body.Messages[0], []byte("ummar")) && !hasTools(body.Tools)
	if !e.run(r.Context(), w, &g, limit, summary) {
		return
	}
	a := chatAnswer{e: e, g: &g, body: &body, asked: asked, id: fmt.Sprintf("chatcmpl-%016x%04x", PromptSeed(c.InputIDs), c.N)}
	a.read()
	d := e.delivery(w, r, &g)
	if c.Fault == faultCut {
		d.cut = g.turn.cutAfter()
	}
	if body.Stream {
		d.stream(a.events())
	} else {
		d.whole(a.whole(), a.listed(len(c.OutputIDs)))
	}
	e.ended(&g, d)
}

// restLimit returns the maximum number of tokens to sample: the result of firstLimit, but never more than the
// rest of the context.
func (e *Engine) restLimit(c *Call, other int64, names ...string) (int64, error) {
	limit, err := firstLimit(c.Sampling, other, names...)
	if err != nil {
		return 0, err
	}
	rest := e.cfg.MaxModelLen - len(c.InputIDs)
	if rest <= 0 {
		return 0, errors.New(e.cfg.Dialect.tooLong(len(c.InputIDs), e.cfg.MaxModelLen, limit))
	}
	return min(limit, int64(rest)), nil
}

func hasTools(tools json.RawMessage) bool {
	return len(tools) > 0 && string(tools) != "null" && string(tools) != "[]"
}

// withoutTexts returns the body without messages and tools, so that the sampling settings remain.
func withoutTexts(raw json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	delete(all, "messages")
	delete(all, "tools")
	b, _ := json.Marshal(all) // cannot fail, because all values were decoded from JSON
	return b
}
