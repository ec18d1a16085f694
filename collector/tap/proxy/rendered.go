package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// A rendered is a chat completion whose prompt the tap renders (see Rendered prompts in the package comment).
// The engine gets only ids and returns only ids.
type rendered struct {
	p      *Proxy
	q      *renderedRequest
	sglang bool
	prompt []int32
	model  string
}

var (
	generateURL   = url.URL{Path: "/generate"}
	completionURL = url.URL{Path: completionPath}
)

// errRendered means that an engine returns no ids for a prompt of ids.
const errRendered noIDsError = "the engine returns no token ids for a prompt of token ids; use SGLang, or vLLM 0.10.2 or later, or turn rendering off"

// render reads the body of a chat completion for an engine with the given ability, and renders its prompt.
func (p *Proxy) render(body []byte, a *ability, model string) (r *rendered, err error) {
	desk := newDesk()
	defer desk.free()
	q, err := readRendered(desk.s, body, a.colon)
	if err != nil {
		return nil, err
	}
	r = &rendered{p: p, q: q, sglang: a.colon, model: model}
	r.prompt, err = p.promptOf(&q.conversation)
	return r, err
}

func (p *Proxy) promptOf(c *Conversation) (prompt []int32, err error) {
	if !p.guard("render", func() { prompt, err = p.cfg.Renderer.Render(c) }) {
		return nil, &refusal{http.StatusInternalServerError, "panic", errPanic.Error()}
	}
	if err == nil && len(prompt) == 0 {
		err = errors.New("the prompt is empty")
	}
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "not_rendered", "the chat template cannot render the messages: " + err.Error()}
	}
	return prompt, nil
}

// errNoRenderer means that the proxy cannot count tokens, because Config.Renderer is not set.
var errNoRenderer = &refusal{http.StatusNotFound, "not_found", "the tap counts tokens only if it renders prompts; set --render"}

// promptTokens returns the number of tokens in the prompt of a chat completion. The engine can get another
// number, because promptTokens does not apply Config.Continuity. An error wraps a refusal.
func (p *Proxy) promptTokens(body []byte) (int, error) {
	r, err := p.render(body, &ability{colon: p.sglang()}, "")
	if err != nil {
		return 0, err
	}
	return len(r.prompt), nil
}

// sglang reports whether an engine of the proxy is known to be SGLang.
func (p *Proxy) sglang() bool {
	return slices.ContainsFunc(p.balance.engines, func(e *engine) bool {
		a := e.trial.able.Load()
		return a != nil && a.colon
	})
}

// payload returns the request to the engine. It always contains the limit of the output, because the
// default is 128 tokens in SGLang and 16 in vLLM. The value null means that only the context length
// limits the output, as in a chat completion.
func (r *rendered) payload(adapter string) (*payload, *url.URL) {
	limit, ids := "max_tokens", "prompt"
	if r.sglang {
		limit, ids = "max_new_tokens", "input_ids"
	}
	sampling := maps.Clone(r.q.sampling)
	if sampling[limit] == nil {
		sampling[limit] = null
	}
	front := []byte{'{'}
	member := func(name string, value []byte) {
		front = append(append(append(front, quoted(name)...), ':'), value...)
		front = append(front, ',')
	}
	to := &completionURL
	if r.sglang {
		to = &generateURL
		front = append(front, `"sampling_params":{`...)
	}
	for _, name := range slices.Sorted(maps.Keys(sampling)) {
		member(name, sampling[name])
	}
	if r.sglang {
		front[len(front)-1] = '}'
		front = append(front, `,"return_logprob":true,`...)
		if adapter != "" {
			member("lora_path", quoted(adapter))
		}
	} else {
		front = append(front, `"logprobs":0,"return_token_ids":true,`...)
		member("model", quoted(r.model))
	}
	front = append(front, `"stream":false,"`+ids+`":`...)
	return &payload{front: front, list: packed(r.prompt), back: []byte{'}'}}, to
}

// answer returns an engine's answer in the form of the engine's chat completions with ids. After an
// error, unread is the reason why the answer is unusable.
func (r *rendered) answer(body []byte) (text []byte, unread string, err error) {
	t := newTray()
	defer t.free()
	a := newAnswer(false)
	a.tray = t
	t.s.ResetBytes(body)
	if r.sglang {
		err = sglang{}.answer(t.s, a)
	} else {
		err = openai{}.answer(t.s, a)
	}
	if err == nil {
		err = t.s.End()
	}
	switch {
	case err != nil:
		return nil, "malformed", &refusal{http.StatusBadGateway, "malformed", "the engine's answer cannot be parsed: " + err.Error()}
	case a.failed:
		return nil, "error", &refusal{http.StatusBadGateway, "engine_error", "the engine's answer reports an error"}
	case a.several:
		return nil, "several", &refusal{http.StatusBadGateway, "several", "the engine returned several outputs"}
	}
	output := a.output
	if output == nil && len(a.logIDs) == int(a.outputTokens) {
		output = a.logIDs
	}
	if output == nil {
		return nil, "no_ids", &refusal{http.StatusBadGateway, "no_ids", errRendered.Error()}
	}
	var message []byte
	calls := false
	if !r.p.guard("parse", func() {
		message, calls = r.p.cfg.Renderer.Parse(&Output{Prompt: r.prompt, IDs: output, Stop: a.stopText, Tools: r.q.callable, Single: r.q.single})
	}) {
		return nil, "panic", errPanic
	}
	finish := a.finish
	if calls && finish == "stop" {
		finish = "tool_calls"
	}
	var meta []byte
	if r.sglang {
		if meta, err = memberOf(body, "meta_info"); err != nil {
			return nil, "malformed", err
		}
	}
	return r.completion(a, output, message, finish, meta), "", nil
}

// memberOf returns the value of a member of an object that has been scanned.
func memberOf(body []byte, name string) (value []byte, err error) {
	desk := newDesk()
	defer desk.free()
	q := request{body: body}
	desk.s.ResetBytes(body)
	o, err := q.object(desk.s, func(key []byte) bool { return string(key) == name }, nil)
	return o.value(body, name), err
}

// completion returns a chat completion. meta is SGLang's meta_info, which contains the log-probabilities and
// the weight versions.
func (r *rendered) completion(a *answer, output []int32, message []byte, finish string, meta []byte) []byte {
	b := make([]byte, 0, len(message)+len(meta)+8*(len(output)+len(r.prompt))+1<<10)
	b = append(b, `{"id":"chatcmpl-`+rand.Text()+`","object":"chat.completion","created":`...)
	b = strconv.AppendInt(b, time.Now().Unix(), 10)
	b = append(append(b, `,"model":`...), quoted(r.model)...)
	b = append(append(b, `,"choices":[{"index":0,"message":`...), message...)
	b = append(append(b, `,"finish_reason":`...), quoted(finish)...)
	b = tokenize.AppendIDs(append(b, `,"token_ids":`...), output)
	if meta != nil {
		b = append(append(b, `,"logprobs":null,"meta_info":`...), meta...)
	} else {
		b = append(b, `,"logprobs":{"content":[`...)
		for i, v := range a.aligned() {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"logprob":`...)
			if v-v == 0 { // finite
				b = strconv.AppendFloat(b, float64(v), 'g', -1, 32)
			} else {
				b = append(b, null...)
			}
			b = append(b, '}')
		}
		b = append(b, `]}`...)
	}
	b = append(b, `,"stop_reason":`...)
	switch {
	case a.stopText != "":
		b = append(b, quoted(a.stopText)...)
	case a.matched >= 0:
		b = strconv.AppendInt(b, int64(a.matched), 10)
	default:
		b = append(b, null...)
	}
	prompt := r.prompt
	if len(a.plain) > 0 {
		prompt = a.plain // the ids that the engine returns are more reliable
	}
	b = tokenize.AppendIDs(append(b, `}],"prompt_token_ids":`...), prompt)
	b = append(b, `,"usage":{`...)
	if a.promptTokens >= 0 && a.outputTokens >= 0 {
		b = fmt.Appendf(b, `"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d`, a.promptTokens, a.outputTokens, a.promptTokens+a.outputTokens)
		if a.cached >= 0 {
			b = fmt.Appendf(b, `,"prompt_tokens_details":{"cached_tokens":%d}`, a.cached)
		}
	}
	return append(b, `}}`...)
}

// fitRendered does the same as fit for a rendered prompt.
func (c *chatCall) fitRendered() error {
	body := bytes.Join(split(c.q.body, append(c.q.edits(&c.p.cfg.Set, nil), c.splices...)), nil)
	r, err := c.p.render(body, c.able, c.model)
	if err != nil {
		return err
	}
	c.rendered = r
	c.x.hold(c.reserved + int64(4*len(r.prompt)))
	c.x.body, c.req.URL = r.payload(c.adapter())
	c.req.ContentLength, c.req.Header = c.x.body.size(), c.header
	c.whole.Store(c.streams)
	return nil
}

// complete replaces the engine's answer to a rendered prompt with a chat completion.
func (c *chatCall) complete(a *engineAnswer) {
	text, unread, err := c.rendered.answer(a.body)
	if a.body, a.err = text, err; err != nil {
		c.call.Unread = unread
	}
}

// renderTrial makes a small call with a rendered prompt. It returns ErrNoIDs if the answer lacks ids. If the
// engine's chat completion has another prompt, it logs a warning, because the engine could serve another
// model.
func (p *Proxy) renderTrial(ctx context.Context, e *engine, a *ability) error {
	r, err := p.render([]byte(`{"messages":[{"role":"user","content":"Hi"}],"max_tokens":4}`), a, a.own())
	if err != nil {
		return err
	}
	body, to := r.payload("")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url.JoinPath(to.Path).String(), body.send())
	if err != nil {
		return err
	}
	req.ContentLength = body.size()
	req.Header.Set("Content-Type", "application/json")
	status, text, err := p.small(req, e)
	switch {
	case err != nil:
		return fmt.Errorf("POST %s: %w", to.Path, err)
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity, status == http.StatusNotFound:
		return errRendered
	case status != http.StatusOK:
		return fmt.Errorf("POST %s: %d %s", to.Path, status, http.StatusText(status))
	}
	text, unread, err := r.answer(text)
	if err != nil && unread != "no_ids" {
		return err
	}
	var c tap.Call
	if err == nil {
		read := newReader(openai{}, false)
		defer read.close()
		read.write(text)
		read.end()
		read.call(&c, nil)
	}
	if unsound(&c) != "" || len(c.Output) == 0 {
		return errRendered
	}
	// Only the comparison needs chat completions. An engine without them can be used.
	_, _ = p.chatTrial(ctx, e, a.own(), modeWhole, nil, func(engine []int32) {
		if len(engine) > 0 && !slices.Equal(engine, r.prompt) {
			p.cfg.Log.Warn("prompts_differ", "engine", e.name, "reason", "the engine and the tap render a small prompt differently; check that the tap has the tokenizer and the chat template of the engine's model")
		}
	})
	return nil
}
