package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
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
		if n := format.Nearest(name, runsNames); n != "" {
			near = "; did you mean " + n + "=…?"
		}
		return fmt.Errorf("%q is not one of agent=ID, run=ID, tag=TAG, since=TIME%s", termsafe.Text(text, 60), near)
	}
	id := func(to *[]string) error {
		if !strings.HasPrefix(value, name+"-") || len(value) > 100 || strings.Trim(value[len(name)+1:], "0123456789abcdef-") != "" {
			return fmt.Errorf("%q is not the id of a server's %s (want %s- and a UUID)", termsafe.Text(value, 60), name, name)
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
			return fmt.Errorf("tag=: is empty")
		}
		r.Tags = append(r.Tags, value)
		return nil
	}
	if !r.Since.IsZero() {
		return fmt.Errorf("since=: given twice")
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if ago, no := time.ParseDuration(value); err != nil && no == nil && ago > 0 {
		at, err = time.Now().Add(-ago).UTC().Truncate(time.Second), nil
	}
	if err != nil || at.Year() < 1970 || at.Year() > 9998 {
		return fmt.Errorf("%q is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 24h", termsafe.Text(value, 60))
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
			complain("tasks.follow", "needs tasks.from_runs")
		}
		return
	}
	const key = "tasks.from_runs"
	if len(c.Server.URLs) > 1 {
		complain(key, "reads from one server, but %d are configured: choose one; servers that share a database have the same runs", len(c.Server.URLs))
	}
	if c.Tasks.File != "" {
		complain(key, "cannot be used with tasks.file")
	}
	if c.Tasks.Samples != 1 {
		complain(key, "cannot be used with tasks.samples, because each server run is one sample")
	}
	if c.Groups() {
		complain(key, "cannot be used with tasks.until_groups or reward.min_std, because each server run is its own group")
	}
	if c.Tokens.Prompts == PromptsStored || c.Tokens.Prompts == PromptsLiteral {
		complain(key, "cannot be used with tokens.prompts %s, which needs the messages to the agent", c.Tokens.Prompts)
	}
	if v := &c.Tokens.PolicyVersion; v.Claimed || v.Traces || v.URL.Reveal() != "" {
		complain(key, "cannot be used with tokens.policy_version, because this process sends nothing; versions come from traces")
	}
}
