package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
)

// Clean deletes the agents that the run with the given id left on the server, and returns the
// number of deleted agents. If runID is empty, it deletes the agents of all runs. Clean checks the
// tags of each agent itself and never deletes an agent without the tag that it searched for.
//
// If keep is not nil, Clean skips the agents for which keep returns true. Callers use keep to
// preserve the agents of attempts that will be taken over. keep receives only the id, name, tags,
// metadata and creation time of an agent.
func Clean(ctx context.Context, c *letta.Client, runID string, keep func(*letta.AgentState) bool) (int, error) {
	deleted := 0
	err := EachAgent(ctx, c, runID, func(a *letta.AgentState) error {
		if keep != nil && keep(a) {
			return nil
		}
		if err := c.DeleteAgent(ctx, a.ID); err != nil {
			return fmt.Errorf("agent %s: %w", a.ID, err)
		}
		deleted++
		return nil
	})
	return deleted, err
}

// AttemptOf returns the sample key and the number of the attempt that created an agent. It reads
// them from the agent's tags and metadata. attempt is 0 if unknown.
func AttemptOf(a *letta.AgentState) (key string, attempt int) {
	for _, tag := range a.Tags {
		if k, ok := strings.CutPrefix(tag, TagKey("")); ok {
			key = k
		}
	}
	return key, attemptOf(a.Metadata)
}

// EachAgent calls f for every agent of a run, or of all runs if runID is empty. f can delete the
// agent. If f returns an error, EachAgent continues with the next agent. It returns all errors
// joined.
func EachAgent(ctx context.Context, c *letta.Client, runID string, f func(*letta.AgentState) error) error {
	tag := TagAll
	if runID != "" {
		tag = TagRun(runID)
	}
	var errs []error
	const page = 100
	seen := map[string]bool{}
	// List all agents before f deletes any, because the server rejects a cursor at a deleted agent.
	var found []letta.AgentState
	for after := ""; ; {
		agents, err := c.Agents(ctx, []string{tag}, after, page)
		if err != nil {
			return Translate(err)
		}
		fresh := 0
		for i := range agents {
			a := &agents[i]
			if seen[a.ID] {
				continue
			}
			fresh++
			// Clone the strings, because otherwise they keep the whole page in memory.
			id := strings.Clone(a.ID)
			seen[id] = true
			if slices.Contains(a.Tags, tag) {
				tags := make([]string, len(a.Tags))
				for k := range tags {
					tags[k] = strings.Clone(a.Tags[k])
				}
				found = append(found, letta.AgentState{
					ID: id, Name: strings.Clone(a.Name), Tags: tags,
					CreatedAt: letta.Time(strings.Clone(string(a.CreatedAt))), Metadata: letta.RawJSON(strings.Clone(string(a.Metadata))),
				})
			}
		}
		if fresh == 0 || len(agents) < page {
			break
		}
		after = agents[len(agents)-1].ID
	}
	for i := range found {
		if err := ctx.Err(); err != nil {
			return Translate(errors.Join(append(errs, context.Cause(ctx))...))
		}
		if err := f(&found[i]); err != nil {
			errs = append(errs, err)
		}
	}
	return Translate(errors.Join(errs...))
}

// TagAll is the tag of every agent that this program creates.
const TagAll = "rollout"

// TagRun returns the tag of every agent of a run.
func TagRun(runID string) string { return "rollout-run:" + runID }

// TagKey returns the tag of every agent of a sample.
func TagKey(key string) string { return "rollout-key:" + key }

func attemptOf(metadata letta.RawJSON) int {
	var m struct {
		Rollout struct {
			Attempt int `json:"attempt"`
		} `json:"rollout"`
	}
	if metadata.Decode(&m) != nil {
		return 0
	}
	return m.Rollout.Attempt
}
