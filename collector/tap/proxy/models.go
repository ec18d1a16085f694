package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// This file decides which model of the engine a call of a session gets (see Sessions in the package
// comment). The proxy reads an engine's list again before it uses the list, if one of these is true:
//
//	the name is in the list              the list is older than limits.ListTime
//	an engine listed the name before     always, because otherwise the call is refused
//	no engine has ever listed the name   no call has used the name before, or the last read was more
//	                                     than limits.ListTime ago

// models reads the names and the context length of the engine's models. The first one is the engine's
// own model.
func (p *Proxy) models(ctx context.Context, e *engine) (*ability, error) {
	a := &ability{listed: time.Now()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url.JoinPath("/v1/models").String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	status, body, err := p.small(req, e)
	if err != nil {
		return nil, fmt.Errorf("GET /v1/models: %w", err)
	}
	var list struct {
		Data []struct {
			ID     string `json:"id"`
			Owner  string `json:"owned_by"`
			Tokens int64  `json:"max_model_len"`
		} `json:"data"`
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("GET /v1/models: %d %s", status, http.StatusText(status))
	}
	if err := json.Unmarshal(body, &list); err != nil || len(list.Data) == 0 || list.Data[0].ID == "" {
		return nil, errors.New("GET /v1/models: the answer does not name a model; want a server with OpenAI's API, such as vLLM or SGLang")
	}
	a.tokens, a.colon = max(0, list.Data[0].Tokens), list.Data[0].Owner == "sglang"
	for _, m := range list.Data {
		a.models = append(a.models, m.ID)
		p.listed.Store(m.ID, true)
	}
	return a, nil
}

// own returns the engine's name for its own model.
func (a *ability) own() string { return a.models[0] }

// meanings returns the names in a list that a client's name can mean: the name itself, or ADAPTER if the
// name has SGLang's form MODEL:ADAPTER. SGLang does not check MODEL.
func (a *ability) meanings(asked string) [2]string {
	adapter, ok := strings.CutPrefix(asked, a.own()+":") // the name of a model can contain a colon
	if !ok {
		_, adapter, _ = strings.Cut(asked, ":")
	}
	return [...]string{asked, adapter}
}

// find returns the name that the engine must get for a client's name. It returns "" if the engine does
// not list the client's name.
func (a *ability) find(asked string) string {
	for _, name := range a.meanings(asked) {
		switch i := slices.Index(a.models, name); {
		case name == "" || i < 0:
		case i > 0 && a.colon:
			return a.own() + ":" + name
		default:
			return name
		}
	}
	return ""
}

// known reports whether any engine has ever listed the client's name.
func (p *Proxy) known(a *ability, asked string) bool {
	for _, name := range a.meanings(asked) {
		if _, ok := p.listed.Load(name); ok && name != "" {
			return true
		}
	}
	return false
}

// maxAsked limits the names in lists.asked.
const maxAsked = 1000

// A lists contains the state of the reads of an engine's list of models.
type lists struct {
	busy   chan struct{} // has a value while the list is read; protects the fields below
	asked  map[sum]bool  // the names for which the list was read
	began  time.Time     // when the last read began
	failed error         // its error
}

// model returns the name of the model that the engine must use, and the engine's ability, which can be
// newer than a. asked is the name that the client used, or "". If an engine listed the name at some
// time, but this engine does not list it now, model returns a refusal.
func (p *Proxy) model(ctx context.Context, e *engine, a *ability, asked string) (string, *ability, error) {
	if asked == "" || asked == ModelName {
		return a.own(), a, nil
	}
	a, err := p.relist(ctx, e, a, asked)
	name := a.find(asked)
	switch known := name != "" || p.known(a, asked); {
	case known && err != nil:
		return "", a, fmt.Errorf("engine %s: %w", e.name, withoutBody(err))
	case !known:
		return a.own(), a, nil
	case name == "":
		return "", a, &refusal{http.StatusNotFound, "model_not_found", fmt.Sprintf("the engine %s does not serve the model %q any more", e.name, asked)}
	}
	return name, a, nil
}

// relist returns the engine's ability with a list of models that is new enough for the client's name.
// Calls that need the list at the same time share one read. After an error, relist returns the ability
// with an older list.
func (p *Proxy) relist(ctx context.Context, e *engine, a *ability, asked string) (*ability, error) {
	enough := func() bool { return a.find(asked) != "" && time.Since(a.listed) < p.limits.ListTime }
	if enough() {
		return a, nil
	}
	l, able := &e.trial.lists, &e.trial.able
	arrived := time.Now()
	select {
	case l.busy <- struct{}{}:
		defer func() { <-l.busy }()
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
	if now := able.Load(); now != nil {
		a = now
	}
	switch {
	case enough(), a.listed.After(arrived):
		return a, nil
	case l.failed != nil && l.began.After(arrived):
		return a, l.failed
	case p.known(a, asked):
	case l.asked[sumOf(asked)] && time.Since(l.began) < p.limits.ListTime:
		return a, nil
	}
	limited, cancel := context.WithTimeout(ctx, p.limits.ListTime)
	defer cancel()
	l.began = time.Now()
	read, err := p.models(limited, e)
	if ctx.Err() != nil {
		l.began = time.Time{}
		return a, context.Cause(ctx)
	}
	if len(l.asked) >= maxAsked || l.asked == nil {
		l.asked = map[sum]bool{}
	}
	l.asked[sumOf(asked)], l.failed = true, err
	if err != nil {
		return a, err
	}
	now := *a
	now.models, now.tokens, now.colon, now.listed = read.models, read.tokens, read.colon, read.listed
	able.CompareAndSwap(a, &now)
	return &now, nil
}
