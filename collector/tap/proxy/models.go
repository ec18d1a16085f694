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

// This file decides which model of the engine a call of a session gets. Most clients use any name, and
// get the engine's own model. But vLLM and SGLang also list the LoRA adapters that they have loaded, and
// programs load and unload adapters while the engine runs. A client that names an adapter must never get
// another model.

// models reads the names and the context length of the engine's models. The first one is the engine's
// own model.
func (p *Proxy) models(ctx context.Context, e *engine) (*ability, error) {
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
			Tokens int64  `json:"max_model_len"`
		} `json:"data"`
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("GET /v1/models: %d %s", status, http.StatusText(status))
	}
	if err := json.Unmarshal(body, &list); err != nil || len(list.Data) == 0 || list.Data[0].ID == "" {
		return nil, errors.New("GET /v1/models: the answer does not name a model; want a server with OpenAI's API, such as vLLM or SGLang")
	}
	a := &ability{tokens: max(0, list.Data[0].Tokens), found: time.Now()}
	for _, m := range list.Data {
		a.models = append(a.models, m.ID)
		p.listed.Store(m.ID, true)
	}
	return a, nil
}

// own returns the engine's name for its own model.
func (a *ability) own() string { return a.models[0] }

// serves reports whether the engine lists the model. SGLang also accepts MODEL:ADAPTER.
func (a *ability) serves(name string) bool {
	base, _, _ := strings.Cut(name, ":")
	return slices.Contains(a.models, name) || slices.Contains(a.models, base)
}

// An unlisted is a name that no engine listed at a time. It saves requests to the engines.
type unlisted struct {
	name string
	at   time.Time
}

// unlistedFor is how long the tap remembers that a name is not the name of a model.
const unlistedFor = time.Second

// model returns the name of the model that the engine must use, and the engine's ability, which can be
// newer than a. asked is the name that the client used, or "". If an engine listed the name at some
// time, but this engine does not list it now, model returns a refusal.
func (p *Proxy) model(ctx context.Context, e *engine, a *ability, asked string) (string, *ability, error) {
	if adapter, ok := strings.CutPrefix(asked, ModelName+":"); ok {
		asked = a.own() + ":" + adapter
	}
	switch u := e.trial.unlisted.Load(); {
	case a.serves(asked):
		return asked, a, nil
	case asked == "" || asked == ModelName, u != nil && u.name == asked && time.Since(u.at) < unlistedFor:
		return a.own(), a, nil
	}
	now, err := p.models(ctx, e)
	if err != nil {
		return "", a, fmt.Errorf("engine %s: %w", e.name, withoutBody(err))
	}
	if now.serves(asked) {
		now.mode, now.found = a.mode, a.found
		e.trial.able.CompareAndSwap(a, now)
		return asked, now, nil
	}
	if _, known := p.listed.Load(asked); known {
		return "", a, &refusal{http.StatusNotFound, "model_not_found", fmt.Sprintf("the engine %s does not serve the model %q any more", e.name, asked)}
	}
	e.trial.unlisted.Store(&unlisted{asked, time.Now()})
	return a.own(), a, nil
}
