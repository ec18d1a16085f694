package proxy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

// A mode says how an engine returns token ids for a chat completion that the client
// wants as a stream. All engines return the ids of a whole answer in the same way (see wholeAsks).
type mode int

const (
	modeBody   mode = iota // vLLM: a member of the body
	modeHeader             // SGLang: headers
	modeWhole              // the engine has no ids for streams, so the tap asks for a whole answer
	modeRender             // the tap renders the prompt and asks for a whole answer; see Config.Renderer
)

func (m mode) String() string {
	return [...]string{"body", "headers", "whole answers", "rendered prompts"}[m]
}

// These members and headers make an engine return ids and log-probabilities.
var (
	wholeAsks  = openai{}.asks(&request{path: chatPath})
	streamAsks = [...][]ask{
		modeBody:   {{"return_token_ids", "true"}, {"logprobs", "true"}},
		modeHeader: {{"logprobs", "true"}},
		modeWhole:  wholeAsks,
	}
	idHeaders = [...]string{"X-Sglext-Return-Input-Ids", "X-Sglext-Return-Output-Ids"}
)

// An ability describes an engine's chat completions.
type ability struct {
	models []string  // the engine's names for its models: its own model first, then for example adapters
	tokens int64     // the context length of its own model, or 0 if the engine does not state it
	colon  bool      // SGLang: the engine uses an adapter only if the name is MODEL:ADAPTER
	listed time.Time // when the read of models began
	mode   mode
	asks   []ask         // the members that make the engine return values from inside a call
	found  time.Time     // when the trial ended
	trust  time.Duration // an answer raises no doubt for this time, or for limits.TrustTime if that is longer
}

// same reports whether a and b, which can be nil, come from the same trial. They can have different lists
// of models.
func (a *ability) same(b *ability) bool { return b != nil && a.found.Equal(b.found) }

// A trial finds out an engine's ability with a few small calls.
type trial struct {
	able    atomic.Pointer[ability] // nil before the first successful trial, and after the engine was down
	doubted atomic.Pointer[ability] // if it is the same as able, the next call repeats the trial
	lists   lists
	busy    chan struct{} // has a value while a trial runs; protects the fields below

	failed error // the last trial's error; valid until
	until  time.Time
}

func newTrial() trial {
	return trial{busy: make(chan struct{}, 1), lists: lists{busy: make(chan struct{}, 1)}}
}

const (
	trialTimeout = time.Minute
	// A failed trial is not repeated within retrialAfter, so that many calls do not cause many
	// trials.
	retrialAfter = 2 * time.Second
	// After each trial that proves nothing, limits.TrustTime doubles for the engine, up to maxTrust,
	// because a trial is slow if the engine is busy.
	maxTrust = 10 * time.Minute
)

// Probe makes a few small calls to each engine to learn how it returns token ids for
// chat completions. It returns an error for each engine that cannot be reached or returns no ids.
// The error states the version of the engine that is needed. Sessions need the result; without
// Probe, the first call of a session to an engine finds it out. Probe blocks until all engines have
// answered, at most a few minutes.
func (p *Proxy) Probe(ctx context.Context) error {
	failed := make([]error, len(p.balance.engines))
	var all sync.WaitGroup
	for i, e := range p.balance.engines {
		all.Go(func() { _, failed[i] = p.able(ctx, e, nil) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// able returns the engine's ability. If it is unknown or in doubt, able finds it out. While another call
// checks a doubt, able returns the old ability. not is nil, or an ability that the caller doubts: then able
// waits for another one.
func (p *Proxy) able(ctx context.Context, e *engine, not *ability) (*ability, error) {
	t := &e.trial
	sure := func(a *ability) bool { return a != nil && !a.same(not) && !a.same(t.doubted.Load()) }
	a := t.able.Load()
	if sure(a) {
		return a, nil
	}
	select {
	case t.busy <- struct{}{}:
	default:
		if a != nil && not == nil {
			return a, nil
		}
		select {
		case t.busy <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer func() { <-t.busy }()
	before := t.able.Load()
	if sure(before) {
		return before, nil
	}
	if before == nil && t.failed != nil && time.Now().Before(t.until) {
		return nil, t.failed
	}
	limited, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	a, err := p.try(limited, e)
	before = t.able.Load() // it can have changed
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err == nil && before != nil && before.mode == modeWhole:
		a.mode = modeWhole // it can be the result of a downgrade
	case err != nil && before != nil && !errors.Is(err, ErrNoIDs):
		again := *before // the trial proved nothing
		a, err = &again, nil
		a.trust = min(2*max(a.trust, p.limits.TrustTime), maxTrust)
	}
	if err != nil {
		err = fmt.Errorf("engine %s: %w", e.name, withoutBody(err))
		t.failed, t.until = err, time.Now().Add(retrialAfter)
		t.able.Store(nil)
		return nil, err
	}
	t.failed = nil
	a.found = time.Now()
	t.able.Store(a)
	p.cfg.Log.Info("engine_ids", "engine", e.name, "model", a.own(), "ids_by", a.mode.String())
	return a, nil
}

// doubtful reports whether an answer that does not fit the ability raises a doubt: the engine can have
// been restarted with another version or another model. It returns false if the last trial was a short
// time ago.
func (p *Proxy) doubtful(e *engine, a *ability) bool {
	now := e.trial.able.Load()
	return now == nil || !now.same(a) || time.Since(a.found) >= max(a.trust, p.limits.TrustTime)
}

// ErrNoIDs means that an engine returns no token ids for chat completions.
var ErrNoIDs = errors.New("the engine returns no token ids for chat completions; use vLLM 0.10.2 or later, or SGLang 0.5.18 or later")

// try finds out the engine's ability.
func (p *Proxy) try(ctx context.Context, e *engine) (*ability, error) {
	a, err := p.models(ctx, e)
	if err != nil {
		return nil, err
	}
	if p.cfg.Renderer != nil {
		a.mode = modeRender
		return a, p.renderTrial(ctx, e, a)
	}
	switch ok, err := p.chatTrial(ctx, e, a.own(), modeWhole, nil, nil); {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrNoIDs
	}
	if a.asks = insideAsks(p.cfg.Inside); len(a.asks) > 0 { // streams lack some of these values
		a.mode = modeWhole
		_, err := p.chatTrial(ctx, e, a.own(), modeWhole, a.asks, nil)
		return a, err
	}
	for a.mode = modeBody; a.mode < modeWhole; a.mode++ {
		if ok, err := p.chatTrial(ctx, e, a.own(), a.mode, nil, nil); ok || err != nil {
			return a, err
		}
	}
	return a, nil
}

// chatTrial makes a small call in the given mode: a stream, except in modeWhole. It returns true if the
// number of ids in the answer is the engine's token count. It returns false if the numbers differ, or if
// the engine refuses the request. Any other status is an error, because it proves nothing about ids. If
// asks is not empty, the request also has these members, and an answer without the requested values is
// an error. If prompt is not nil, it is called with the ids of the engine's prompt. They are valid
// until it returns.
func (p *Proxy) chatTrial(ctx context.Context, e *engine, model string, m mode, asks []ask, prompt func([]int32)) (bool, error) {
	stream := m != modeWhole
	body := map[string]any{
		"model": model, "messages": []any{map[string]string{"role": "user", "content": "Hi"}}, "max_tokens": 4, "stream": stream,
	}
	if stream {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	for _, ask := range slices.Concat(streamAsks[m], asks) {
		body[ask.key] = json.RawMessage(ask.value)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url.JoinPath(chatPath).String(), bytes.NewReader(text))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	if m == modeHeader {
		askInHeader(req.Header)
	}
	status, text, err := p.small(req, e)
	switch {
	case err != nil:
		return false, fmt.Errorf("POST %s: %w", chatPath, err)
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		if len(asks) > 0 { // the engine refuses what it cannot return
			return false, lacks(p.cfg.Inside, new(tap.Call))
		}
		return false, nil
	case status != http.StatusOK:
		return false, fmt.Errorf("POST %s: %d %s", chatPath, status, http.StatusText(status))
	}
	r := newReader(openai{}, stream).keep(p.cfg.Inside)
	defer r.close()
	r.write(text)
	r.end()
	var c tap.Call
	r.call(&c, nil)
	if prompt != nil {
		prompt(c.Prompt)
	}
	if len(asks) > 0 {
		return true, lacks(p.cfg.Inside, &c)
	}
	return unsound(&c) == "" && len(c.Output) > 0, nil
}

func askInHeader(h http.Header) {
	for _, name := range idHeaders {
		h.Set(name, "1")
	}
}

// unsound returns no_ids if the ids in c are missing or are not as many as the engine counted.
func unsound(c *tap.Call) string {
	if c.Output == nil || len(c.Prompt) == 0 || int(c.OutputTokens) != len(c.Output) || int(c.PromptTokens) != len(c.Prompt) {
		return "no_ids"
	}
	return ""
}

const maxTrialBytes = 4 << 20

// small sends a request and reads the whole answer.
func (p *Proxy) small(req *http.Request, e *engine) (status int, body []byte, err error) {
	e.authorize(req)
	res, err := p.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, cmp.Or(context.Cause(req.Context()), err)
	}
	defer res.Body.Close() //nolint:errcheck // the body has been read
	body, err = io.ReadAll(io.LimitReader(res.Body, maxTrialBytes))
	return res.StatusCode, body, err
}
