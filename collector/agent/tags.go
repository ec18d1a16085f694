package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
)

// Clean deletes the agents that the run runID left on the server, or those of all runs
// where runID is empty, and returns how many. It looks at the tags of each agent itself and
// deletes none without them.
//
// It spares the agents that keep chooses: those of attempts that are to be taken over. keep
// sees id, name, tags, metadata and time of creation of an agent, and no more. Nil chooses
// none.
func Clean(ctx context.Context, c *letta.Client, runID string, keep func(*letta.AgentState) bool) (int, error) {
	deleted := 0
	err := EachAgentOf(ctx, c, runID, func(a *letta.AgentState) error {
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

// AttemptOf returns which attempt made an agent of ours, from its tags and metadata: the
// sample's key, and the number of the attempt, or 0.
func AttemptOf(a *letta.AgentState) (key string, attempt int) {
	for _, tag := range a.Tags {
		if k, ok := strings.CutPrefix(tag, TagKey("")); ok {
			key = k
		}
	}
	return key, attemptOf(a.Metadata)
}

// EachAgentOf calls f for every agent of a run, or of all runs where runID is empty. f may
// delete the agent. Errors of f do not stop it; EachAgentOf returns them joined.
func EachAgentOf(ctx context.Context, c *letta.Client, runID string, f func(*letta.AgentState) error) error {
	tag := TagAll
	if runID != "" {
		tag = TagRun(runID)
	}
	var errs []error
	const page = 100
	seen := map[string]bool{}
	// The whole list is read before any of its agents is deleted: a cursor that points at
	// a deleted agent is an error.
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
			// What is kept is copied: a page is long, and its fields are pieces of it.
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

// TagAll is on every agent that this program makes.
const TagAll = "rollout"

// TagRun returns the tag of every agent of a run.
func TagRun(runID string) string { return "rollout-run:" + runID }

// TagKey returns the tag of every agent of a sample.
func TagKey(key string) string { return "rollout-key:" + key }

// attemptOf returns the number of the attempt from the metadata of an agent, or 0.
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
