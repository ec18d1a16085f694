package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/spelling"
)

// overridden returns c with the overrides of a task applied. The overrides are a JSON object with
// members from overrideMembers. The member "tags" is appended to c.Tags, and the member "create" is
// merged into c.Create.
func (c Config) overridden(task json.RawMessage) (Config, error) {
	if letta.RawJSON(task).IsNull() {
		return c, nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(task, &given); err != nil {
		return c, errors.New("the task's agent: must be a JSON object")
	}
	var tags []string
	var create map[string]json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(overrideMembers[:], name) {
			return c, fmt.Errorf("the task's agent: %s: unknown setting%s; want one of %s", name, nearMember(name), strings.Join(overrideMembers[:], ", "))
		}
		if letta.RawJSON(given[name]).IsNull() {
			continue
		}
		into, want := c.member(name, &tags, &create)
		if err := json.Unmarshal(given[name], into); err != nil {
			return c, fmt.Errorf("the task's agent: %s: must be %s", name, want)
		}
	}
	c.Tags = append(slices.Clip(c.Tags), tags...)
	if len(create) > 0 {
		merged, err := mergeObjects(c.Create, given["create"])
		if err != nil {
			return c, fmt.Errorf("the task's agent: create: %w", err)
		}
		c.Create = merged
	}
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("the task's %w", err) // the text of err begins with "agent: "
	}
	return c, nil
}

// CheckOverrides validates the overrides of a task. It returns the same error as [Backend.Open],
// but makes no request. The error reports an unknown member, a wrong type, or an invalid
// combination of values.
func (c Config) CheckOverrides(task json.RawMessage) error {
	_, err := c.overridden(task)
	return err
}

var overrideMembers = [...]string{
	"model", "system", "tools", "tool_ids", "tags", "temperature", "context_window", "create",
	"keep_reasoning", "max_steps", "override_system", "override_model", "approvals",
}

// member returns a pointer that receives the value of the named member, and a description of the
// member's type.
func (c *Config) member(name string, tags *[]string, create *map[string]json.RawMessage) (into any, want string) {
	const text, list, count = "a string", "a list of strings", "an integer"
	switch name {
	case "model":
		return &c.Model, text
	case "system":
		return &c.System, text
	case "tools":
		c.Tools = nil // do not write into the list that other tasks share
		return &c.Tools, list
	case "tool_ids":
		c.ToolIDs = nil
		return &c.ToolIDs, list
	case "tags":
		return tags, list
	case "temperature":
		c.Temperature = new(float64)
		return &c.Temperature, "a number"
	case "context_window":
		return &c.ContextWindow, count
	case "create":
		return create, "a JSON object"
	case "keep_reasoning":
		return &c.KeepReasoning, "true or false"
	case "max_steps":
		return &c.MaxSteps, count
	case "override_system":
		return &c.OverrideSystem, text
	case "override_model":
		return &c.OverrideModel, text
	case "approvals":
		return &c.Approvals, "one of " + strings.Join(approvals.Words, ", ")
	}
	return nil, ""
}

func nearMember(name string) string {
	for _, m := range overrideMembers {
		if spelling.Distance(name, m) <= 2 {
			return " (did you mean " + m + "?)"
		}
	}
	return ""
}

// mergeObjects returns an object with the members of a and b. If a and b share a member, the result
// has the value from b.
func mergeObjects(a, b json.RawMessage) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, o := range []json.RawMessage{a, b} {
		if letta.RawJSON(o).IsNull() {
			continue
		}
		if err := json.Unmarshal(o, &all); err != nil {
			return nil, err
		}
	}
	return letta.Marshal(all)
}
