package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

func (b *Backend) create(ctx context.Context, cfg *Config, a collector.Attempt) (*letta.AgentState, error) {
	how := b.createNew
	if len(cfg.File) > 0 {
		how = b.importFile
	}
	state, err := how(ctx, cfg, a)
	switch {
	case err != nil && letta.RawJSON(a.Task.Agent).IsNull() && lacksModel(err):
		return nil, &classed{collector.ErrUnusable, err} // every other sample would fail in the same way
	case err != nil:
		return nil, err
	case state.ID == "":
		return nil, fmt.Errorf("%w: the server created an agent but returned no id", collector.ErrServer)
	}
	return state, nil
}

func lacksModel(err error) bool {
	e := (*letta.APIError)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound && strings.HasPrefix(e.Detail, "NOT_FOUND: Handle")
}

func (b *Backend) createNew(ctx context.Context, cfg *Config, a collector.Attempt) (*letta.AgentState, error) {
	body, err := cfg.createBody(a)
	if err != nil {
		return nil, err
	}
	return b.client.CreateAgent(ctx, body)
}

func (b *Backend) importFile(ctx context.Context, cfg *Config, a collector.Attempt) (*letta.AgentState, error) {
	fields := map[string]string{"append_copy_suffix": "false", "name": agentName(a)}
	if cfg.Model != "" {
		fields["model"] = cfg.Model
	}
	ids, err := b.client.ImportAgent(ctx, cfg.File, fields)
	if err != nil {
		return nil, err
	}
	if len(ids) != 1 {
		err := fmt.Errorf("%w: import agent: the server created %d agents from the file, want 1", collector.ErrUnusable, len(ids))
		for _, id := range ids {
			err = b.deleteUnusable(ctx, id, err)
		}
		return nil, err
	}
	// After the PATCH, fetch the state, because the answer to a PATCH might not contain all fields
	// of the agent.
	_, err = b.client.PatchAgent(ctx, ids[0], map[string]any{"tags": cfg.tags(a), "metadata": metadata(a)})
	var state *letta.AgentState
	if err == nil {
		state, err = b.client.Agent(ctx, ids[0])
	}
	if err != nil {
		return nil, b.deleteUnusable(ctx, ids[0], err)
	}
	return state, nil
}

const removeTimeout = 10 * time.Second

// remove deletes an unused agent, even if ctx is done.
func (b *Backend) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	return b.client.DeleteAgent(ctx, id)
}

// deleteUnusable deletes an agent that is unusable because of err. It returns err, and adds a note
// if the deletion fails.
func (b *Backend) deleteUnusable(ctx context.Context, id string, err error) error {
	if left := b.remove(ctx, id); left != nil {
		return fmt.Errorf("%w (agent %s was not deleted: %s)", err, id, left.Error())
	}
	return err
}

func (c *Config) createBody(a collector.Attempt) (json.RawMessage, error) {
	all := map[string]any{"agent_type": "letta_v1_agent", "include_base_tools": false, "memory_blocks": []any{}, "timezone": "UTC"}
	var create map[string]json.RawMessage
	if !letta.RawJSON(c.Create).IsNull() {
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
		// Set these fields too, because the server resets the missing fields of a model_settings
		// object to their defaults (temperature 0.7, strict, parallel calls; schemas/agent.py).
		settings := map[string]any{"provider_type": "sglang", "parallel_tool_calls": false, "strict": false}
		if err := unmarshalGiven(create["model_settings"], &settings); err != nil {
			return nil, fmt.Errorf("agent: create: model_settings: %w", err)
		}
		settings["temperature"] = *c.Temperature
		all["model_settings"] = settings
	}
	tags := c.tags(a)
	var more []string
	if err := unmarshalGiven(create["tags"], &more); err != nil {
		return nil, fmt.Errorf("agent: create: tags: %w", err)
	}
	all["tags"] = append(tags, more...)
	meta := map[string]any{}
	if err := unmarshalGiven(create["metadata"], &meta); err != nil {
		return nil, fmt.Errorf("agent: create: metadata: %w", err)
	}
	maps.Copy(meta, metadata(a))
	all["metadata"] = meta
	return letta.Marshal(all)
}

// unmarshalGiven decodes raw into v. It leaves v unchanged if raw is null or absent.
func unmarshalGiven(raw json.RawMessage, v any) error {
	if letta.RawJSON(raw).IsNull() {
		return nil
	}
	return json.Unmarshal(raw, v)
}

func (c *Config) tags(a collector.Attempt) []string {
	return append([]string{TagAll, TagRun(a.RunID), TagKey(a.Key)}, c.Tags...)
}

// metadata returns the agent metadata that identifies the attempt. The function attemptOf reads
// this metadata.
func metadata(a collector.Attempt) map[string]any {
	return map[string]any{"rollout": map[string]any{
		"run": a.RunID, "key": a.Key, "task_id": a.Task.ID, "sample_index": a.Index, "attempt": a.N,
	}}
}

// agentName returns an agent name that matches the server's pattern ^[\w '\-]+$. The server answers
// 500 to other names.
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
