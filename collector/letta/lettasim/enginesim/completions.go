package enginesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A completionRequest is the body of a request to /v1/completions with a prompt of ids.
type completionRequest struct {
	Prompt   []int32 `json:"prompt"`
	Logprobs *int    `json:"logprobs"`
	TokenIDs bool    `json:"return_token_ids"`
	Stream   bool    `json:"stream"`
}

// completions answers as vLLM does.
func (e *Engine) completions(w http.ResponseWriter, r *http.Request) {
	g := generation{call: Call{N: e.truth.begin(), Began: time.Now(), Path: "/v1/completions"}, chat: true}
	c := &g.call
	var raw json.RawMessage
	var body completionRequest
	err := readJSON(w, r, &raw)
	if err == nil {
		err = json.Unmarshal(raw, &body)
	}
	if err == nil && (body.Prompt == nil || body.Stream) {
		err = errors.New("want a prompt of ids and no stream")
	}
	c.InputIDs, c.Sampling = body.Prompt, withoutTexts(raw)
	var limit int64
	if err == nil {
		limit, err = e.restLimit(c, 16, "max_tokens") // vLLM's default
	}
	if err != nil {
		e.fault(w, &g, http.StatusBadRequest, err.Error())
		return
	}
	if !e.run(r.Context(), w, &g, limit, false) {
		return
	}
	a := chatAnswer{e: e, g: &g, id: fmt.Sprintf("cmpl-%016x%04x", PromptSeed(c.InputIDs), c.N)}
	listed := 0
	choice := map[string]any{"index": 0, "text": c.Text, "finish_reason": c.Finish.Type, "stop_reason": nil, "logprobs": nil, "token_ids": nil, "prompt_token_ids": nil}
	if body.TokenIDs {
		choice["token_ids"], choice["prompt_token_ids"], listed = c.OutputIDs, c.InputIDs, len(c.OutputIDs)
	}
	if body.Logprobs != nil {
		all := []json.RawMessage{}
		for i := range c.OutputIDs {
			all = append(all, g.appendLogprob(nil, i, "-9999.0"))
		}
		choice["logprobs"] = map[string]any{"token_logprobs": all}
	}
	out := a.head("text_completion")
	out["choices"], out["usage"] = []any{choice}, a.usage()
	d := e.delivery(w, r, &g)
	d.whole(object(out), listed)
	e.ended(&g, d)
}
