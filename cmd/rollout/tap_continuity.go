package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// model returns the model for --continuity and --render.
func (o *tapOptions) model() (*prompt.Model, error) {
	release, releases, err := parseTransformers("tap", o.transformers)
	if err != nil {
		return nil, err
	}
	m, err := model.Load("--tokenizer", o.tokenizer, o.experimental, releases)
	if err != nil {
		return nil, err
	}
	m.Transformers = release
	return m, nil
}

// continuer returns the Continuer for --continuity. With --render, it is nil if the template is not supported,
// because the sessions do not use it.
func (o *tapOptions) continuer(ctx context.Context, m *prompt.Model, engines []*url.URL, log *slog.Logger) (proxy.Continuer, error) {
	cfg := continuity.Config{Tokenizer: m.Tokenizer, Template: m.Template, Transformers: m.Transformers, MaxPrompt: o.maxPrompt}
	if cfg.MaxPrompt == 0 {
		for _, u := range engines {
			n, err := longestPrompt(ctx, u, o.set)
			if err != nil {
				log.Warn("an engine does not report its context length; set --max-prompt-tokens", "engine", u.Redacted(), "err", err)
			} else if cfg.MaxPrompt == 0 || n < cfg.MaxPrompt {
				cfg.MaxPrompt = n
			}
		}
	}
	table, err := continuity.New(cfg)
	switch {
	case err == nil:
		return table, nil
	case o.render:
		log.Warn("--continuity applies only to sessions", "err", err)
		err = nil
	default:
		err = exit.Hint(exit.With(exit.Usage, err), "without --continuity, the tap still records the calls")
	}
	return nil, err
}

// lettaMaxNewTokens is the value of max_new_tokens that the server sends on its native path,
// regardless of the agent's settings.
const lettaMaxNewTokens = 4096

// longestPrompt fetches the context length of an engine and subtracts the maximum length of an
// output. The result is at least 1.
func longestPrompt(ctx context.Context, engine *url.URL, set []string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, engine.JoinPath("v1", "models").String(), http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	var list struct {
		Data []struct {
			MaxModelLen int `json:"max_model_len"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&list); err != nil {
		return 0, fmt.Errorf("GET /v1/models returned %s, but its body cannot be decoded: %w", res.Status, err)
	}
	longest := 0
	for _, m := range list.Data {
		if n := m.MaxModelLen; n > 0 && (longest == 0 || n < longest) {
			longest = n
		}
	}
	if longest == 0 {
		return 0, fmt.Errorf("GET /v1/models returned %s, but its body has no max_model_len", res.Status)
	}
	output := lettaMaxNewTokens
	for _, s := range set {
		if value, ok := strings.CutPrefix(s, "max_new_tokens="); ok {
			if n, err := strconv.Atoi(value); err == nil {
				output = n
			}
		}
	}
	return max(longest-output, 1), nil
}

// recallFor is the maximum time for which a tap reads its spool before it starts serving.
const recallFor = 30 * time.Second

// recall reads the calls of earlier processes from the spool and adds them to the table, because
// rollouts continue after a restart of the tap. Without these calls, the table could mistake a call
// from one agent for a call from another agent with the same prompt. The spool is already open for
// writing.
func recall(ctx context.Context, table *continuity.Table, dir string, log *slog.Logger) {
	began := time.Now()
	r, err := tap.OpenReader(dir, "")
	if err == nil {
		defer r.Close()
		r.Since(began.Add(-continuity.DefaultMaxAge))
		err = recallFrom(ctx, table, r, began)
	}
	if err != nil {
		log.Warn("--continuity cannot use the calls recorded before the tap started", "err", err)
	}
}

func recallFrom(ctx context.Context, table *continuity.Table, r *tap.Reader, by time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, recallFor)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := r.Next(ctx)
			if err != nil {
				stop(err)
				return
			}
			table.Recall(c)
		}
	}()
	err := r.Await(ctx, by)
	stop(nil)
	<-ended
	return err
}
