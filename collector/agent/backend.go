package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Backend makes the agents of a run on one server. It implements
// collector.Backend.
type Backend struct {
	client *letta.Client
	cfg    Config

	room *replyRoom
	// replies are arenas between two attempts.
	replies sync.Pool
}

// NewBackend returns a backend that makes agents through client.
func NewBackend(client *letta.Client, cfg Config) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Backend{client: client, cfg: cfg, room: newReplyRoom(cfg.MaxHeldBytes)}, nil
}

// Client is the client that the backend uses.
func (b *Backend) Client() *letta.Client { return b.client }

// Open makes an agent for the attempt: from the configuration with the task's
// overrides, or by importing the agent file. The agent bears the tags TagAll,
// TagRun and TagKey, and says in its metadata, under rollout, which attempt it is.
//
// An agent that will give no turns is deleted again and refused with a
// *NoTurnsError. What fails halfway leaves no agent behind, unless the answer
// that would have named it was lost; Client.Clean finds those by their tags.
func (b *Backend) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	g, err := b.open(ctx, a)
	if err != nil {
		return nil, Translate(err)
	}
	return g, nil
}

func (b *Backend) open(ctx context.Context, a collector.Attempt) (*agent, error) {
	cfg, err := b.cfg.overridden(a.Task.Agent)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", collector.ErrRejected, err)
	}
	version, err := b.client.Version(ctx)
	if err != nil {
		return nil, err
	}
	state, err := b.create(ctx, cfg, a)
	if err != nil {
		if isNull(a.Task.Agent) && lacksModel(err) {
			err = &classed{collector.ErrUnusable, err} // for every other sample as well
		}
		return nil, err
	}
	if state.ID == "" {
		return nil, fmt.Errorf("%w: the server made an agent and did not say which", collector.ErrServer)
	}
	g := &agent{backend: b, client: b.client, cfg: cfg, attempt: a, state: state, version: version}
	if err := g.prepare(ctx); err != nil {
		return nil, b.abandon(ctx, state.ID, err)
	}
	return g, nil
}

// lacksModel says that the server does not know the handle of the model.
func lacksModel(err error) bool {
	e := (*letta.APIError)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound && strings.HasPrefix(e.Detail, "NOT_FOUND: Handle")
}

// removeTimeout bounds the deletion of an agent that was never used.
const removeTimeout = 10 * time.Second

// remove deletes an agent that was never used, also when ctx is done.
func (b *Backend) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	return b.client.DeleteAgent(ctx, id)
}

// abandon deletes an agent that cannot be used because of err. Only err says what
// the failure is; that the agent could not be deleted is told beside it.
func (b *Backend) abandon(ctx context.Context, id string, err error) error {
	if left := b.remove(ctx, id); left != nil {
		return fmt.Errorf("%w (agent %s is left on the server: %s)", err, id, left.Error())
	}
	return err
}

// create makes the agent, or imports it.
func (b *Backend) create(ctx context.Context, cfg Config, a collector.Attempt) (*letta.AgentState, error) {
	if len(cfg.File) == 0 {
		body, err := cfg.createBody(a)
		if err != nil {
			return nil, err
		}
		return b.client.CreateAgent(ctx, body)
	}
	fields := map[string]string{"append_copy_suffix": "false", "name": agentName(a)}
	if cfg.Model != "" {
		fields["model"] = cfg.Model
	}
	ids, err := b.client.ImportAgent(ctx, cfg.File, fields)
	if err != nil {
		return nil, err
	}
	if len(ids) != 1 {
		err := fmt.Errorf("%w: import agent: the file made %d agents, and one is needed", collector.ErrUnusable, len(ids))
		for _, id := range ids {
			err = b.abandon(ctx, id, err)
		}
		return nil, err
	}
	// The state after the change is read anew: the answer to a change need not
	// show all that the agent has.
	_, err = b.client.PatchAgent(ctx, ids[0], map[string]any{"tags": cfg.tags(a), "metadata": metadata(a)})
	var state *letta.AgentState
	if err == nil {
		state, err = b.client.Agent(ctx, ids[0])
	}
	if err != nil {
		return nil, b.abandon(ctx, ids[0], err)
	}
	return state, nil
}

// createBody is the body of a create call.
func (c *Config) createBody(a collector.Attempt) (json.RawMessage, error) {
	all := map[string]any{"agent_type": "letta_v1_agent", "include_base_tools": false, "memory_blocks": []any{}, "timezone": "UTC"}
	var create map[string]json.RawMessage
	if !isNull(c.Create) {
		if err := json.Unmarshal(c.Create, &create); err != nil {
			return nil, fmt.Errorf("agent: create: %w", err)
		}
	}
	for k, v := range create {
		all[k] = v
	}
	all["name"] = agentName(a)
	if c.Model != "" {
		all["model"] = c.Model
	}
	if c.System != "" {
		all["system"] = c.System
	}
	if len(c.Tools) > 0 {
		all["tools"] = c.Tools
	}
	if len(c.ToolIDs) > 0 {
		all["tool_ids"] = c.ToolIDs
	}
	if c.ContextWindow > 0 {
		all["context_window_limit"] = c.ContextWindow
	}
	if c.Temperature != nil {
		// Sending the object at all brings its other defaults (temperature 0.7,
		// strict, parallel calls) unless they are said as well: schemas/agent.py.
		settings := map[string]any{"provider_type": "sglang", "parallel_tool_calls": false, "strict": false}
		if err := json.Unmarshal(orObject(create["model_settings"]), &settings); err != nil {
			return nil, fmt.Errorf("agent: create: model_settings: %w", err)
		}
		settings["temperature"] = *c.Temperature
		all["model_settings"] = settings
	}
	tags := c.tags(a)
	var more []string
	if err := json.Unmarshal(orNull(create["tags"]), &more); err != nil {
		return nil, fmt.Errorf("agent: create: tags: %w", err)
	}
	all["tags"] = append(tags, more...)
	meta := map[string]any{}
	if err := json.Unmarshal(orObject(create["metadata"]), &meta); err != nil {
		return nil, fmt.Errorf("agent: create: metadata: %w", err)
	}
	maps.Copy(meta, metadata(a))
	all["metadata"] = meta
	return letta.Marshal(all)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

func orObject(raw json.RawMessage) json.RawMessage {
	if isNull(raw) {
		return json.RawMessage("{}")
	}
	return raw
}

func (c *Config) tags(a collector.Attempt) []string {
	return append([]string{TagAll, TagRun(a.RunID), TagKey(a.Key)}, c.Tags...)
}

func metadata(a collector.Attempt) map[string]any {
	return map[string]any{"rollout": map[string]any{
		"run": a.RunID, "key": a.Key, "task_id": a.Task.ID, "sample_index": a.Index, "attempt": a.N,
	}}
}

// agentName is a name that the server accepts, ^[\w '\-]+$: another character
// gives a 500.
func agentName(a collector.Attempt) string {
	key := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, a.Key)
	if len(key) > 24 {
		key = key[:24]
	}
	return fmt.Sprintf("rollout-%s-%d", key, a.N)
}

// Preflight tries everything that a run needs of the server, in the order in which
// a person would want to hear of it: that the server answers, that it lets us in,
// that it has the model, and that an agent on it will give token data. One agent
// is made and deleted, and so are those that earlier preflights left behind.
func (b *Backend) Preflight(ctx context.Context) error { return Translate(b.preflight(ctx)) }

func (b *Backend) preflight(ctx context.Context) error {
	if _, err := b.client.Health(ctx); err != nil {
		return fmt.Errorf("server %s: %w", b.client.BaseURL(), err)
	}
	found, err := b.client.FindModel(ctx, b.cfg.Model)
	if err != nil {
		return fmt.Errorf("server %s: %w", b.client.BaseURL(), err)
	}
	if err := b.checkModel(found); err != nil {
		return err
	}
	task := &collector.Task{ID: preflight, Messages: []string{""}}
	g, err := b.open(ctx, collector.Attempt{Task: task, Key: preflight, GroupSize: 1, N: 1, RunID: preflight})
	if err != nil {
		// A refusal here is a refusal for every sample.
		if errors.Is(Translate(err), collector.ErrRejected) {
			return fmt.Errorf("%w: %w", collector.ErrUnusable, err)
		}
		return err
	}
	if err := b.remove(ctx, g.state.ID); err != nil {
		return err
	}
	b.clearPreflights(ctx)
	return nil
}

// preflight is the key and the run of the agents that Preflight makes.
const preflight = "preflight"

// preflightAge is the age at which such an agent belongs to nobody: it is made and
// deleted within seconds.
const preflightAge = 10 * time.Minute

// clearPreflights deletes the agents of preflights that were killed in the middle, or
// whose create lost its answer: no run looks for them. That it fails says nothing about
// the run that is to begin.
func (b *Backend) clearPreflights(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	ahead, _ := b.client.Clock()
	before := time.Now().Add(ahead - preflightAge)
	_, _ = CleanRun(ctx, b.client, preflight, func(a *letta.AgentState) bool {
		if a.CreatedAt == "" {
			return true
		}
		at, err := a.CreatedAt.Time()
		return err != nil || at.After(before)
	})
}

// checkModel says that the server does not list the model, and which it may have
// been.
func (b *Backend) checkModel(found *letta.FoundModel) error {
	handle := b.cfg.Model
	switch {
	case handle == "" || found.Model != nil:
		return nil
	case found.Count == 0:
		return fmt.Errorf("%w: model %q: the server lists no models; make a provider of type sglang, or refresh it", collector.ErrUnusable, handle)
	case found.Nearest != "":
		return fmt.Errorf("%w: model %q: the server does not list it; did you mean %q", collector.ErrUnusable, handle, b.client.Redact(found.Nearest))
	}
	return fmt.Errorf("%w: model %q: the server does not list it among its %d models", collector.ErrUnusable, handle, found.Count)
}

// maxPooledBytes keeps the arenas of the rare huge reply from staying for ever.
const maxPooledBytes = 16 << 20

func (b *Backend) reply() *tokenize.Reply {
	if r, ok := b.replies.Get().(*tokenize.Reply); ok {
		return r
	}
	return new(tokenize.Reply)
}

func (b *Backend) recycle(r *tokenize.Reply) {
	if r.Bytes > maxPooledBytes {
		return
	}
	r.Reset()
	b.replies.Put(r)
}
