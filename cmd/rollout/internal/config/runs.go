package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

// Runs selects server runs: by id, by agent, or by a tag of their agent. If all three lists are
// empty, it selects every server run.
type Runs struct {
	IDs, Agents, Tags []string
	// Since excludes server runs that began before it. The zero time excludes none.
	Since time.Time
}

// All reports whether Runs names no server run, agent or tag.
func (r *Runs) All() bool { return len(r.IDs)+len(r.Agents)+len(r.Tags) == 0 }

var runsNames = []string{"agent", "run", "since", "tag"}

// add parses a text such as agent=ID.
func (r *Runs) add(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || !slices.Contains(runsNames, name) {
		near := ""
		if n := human.Nearest(name, runsNames); n != "" {
			near = "; did you mean " + n + "=…?"
		}
		return fmt.Errorf("%q is not one of agent=ID, run=ID, tag=TAG, since=TIME%s", tame.Text(text, 60), near)
	}
	id := func(to *[]string) error {
		if !strings.HasPrefix(value, name+"-") || len(value) > 100 || strings.Trim(value[len(name)+1:], "0123456789abcdef-") != "" {
			return fmt.Errorf("%q is not the id of a server's %s (want %s- and a UUID)", tame.Text(value, 60), name, name)
		}
		*to = append(*to, value)
		return nil
	}
	switch name {
	case "agent":
		return id(&r.Agents)
	case "run":
		return id(&r.IDs)
	case "tag":
		if value == "" {
			return fmt.Errorf("tag=: names no tag")
		}
		r.Tags = append(r.Tags, value)
		return nil
	}
	if !r.Since.IsZero() {
		return fmt.Errorf("since=: was given before")
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if ago, no := time.ParseDuration(value); err != nil && no == nil && ago > 0 {
		at, err = time.Now().Add(-ago).UTC().Truncate(time.Second), nil
	}
	if err != nil || at.Year() < 1970 || at.Year() > 9998 {
		return fmt.Errorf("%q is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 24h", tame.Text(value, 60))
	}
	r.Since = at
	return nil
}

// texts returns texts that add accepts. A duration has become a time.
func (r *Runs) texts() []string {
	out := []string{}
	for _, list := range []struct {
		name   string
		values []string
	}{{"agent", r.Agents}, {"run", r.IDs}, {"tag", r.Tags}} {
		for _, v := range list.values {
			out = append(out, list.name+"="+v)
		}
	}
	if !r.Since.IsZero() {
		out = append(out, "since="+r.Since.Format(time.RFC3339Nano))
	}
	return out
}

// runsSetting returns the setting of a list of such texts. *to is nil while the list is empty.
func runsSetting(key string, to **Runs) *Setting {
	return &Setting{
		Key: key, arg: "TEXT",
		reset: func() { *to = nil },
		set: func(text string) error {
			r := *to
			if r == nil {
				r = new(Runs)
			}
			if err := r.add(text); err != nil {
				return err
			}
			*to = r
			return nil
		},
		get: func() any {
			if *to == nil {
				return []string{}
			}
			return (*to).texts()
		},
	}
}

// checkRuns reports conflicts with tasks.from_runs.
func (c *Config) checkRuns(complain func(key, format string, args ...any)) {
	if c.Tasks.FromRuns == nil {
		if c.Tasks.Follow {
			complain("tasks.follow", "waits for server runs: give tasks.from_runs too")
		}
		return
	}
	const key = "tasks.from_runs"
	if len(c.Server.URLs) > 1 {
		complain(key, "reads the runs of one server, and %d are given: choose one; several that share a database show the same runs", len(c.Server.URLs))
	}
	if c.Tasks.File != "" {
		complain(key, "the server runs are the tasks: leave tasks.file out")
	}
	if c.Tasks.Samples != 1 {
		complain(key, "each server run is one sample: leave tasks.samples out")
	}
	if c.Groups() {
		complain(key, "each server run is a group of its own: leave tasks.until_groups and reward.min_std out")
	}
	if c.Tokens.Prompts == PromptsStored || c.Tokens.Prompts == PromptsLiteral {
		complain(key, "tokens.prompts %s needs what was sent to the agent: give another source", c.Tokens.Prompts)
	}
	if v := &c.Tokens.PolicyVersion; v.Claimed || v.Traces || v.URL.Reveal() != "" {
		complain(key, "tokens.policy_version tells the version of what this process sends, and it sends nothing: leave it out; traces tell it")
	}
}
