package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// Runs selects server runs by id, by agent, or by a tag of their agent. If all three lists are
// empty, it selects every server run.
type Runs struct {
	IDs, Agents, Tags []string
	// Since excludes the server runs that began before this time. The zero time excludes none.
	Since time.Time
}

// All reports whether Runs selects every server run that began after Since.
func (r *Runs) All() bool { return len(r.IDs)+len(r.Agents)+len(r.Tags) == 0 }

// lists returns the names of r's lists, in output order, and pointers to these lists by name.
func (r *Runs) lists() ([]string, map[string]*[]string) {
	return []string{"agent", "run", "tag"}, map[string]*[]string{"agent": &r.Agents, "run": &r.IDs, "tag": &r.Tags}
}

// add parses one selection, such as agent=ID.
func (r *Runs) add(text string) error {
	name, value, ok := strings.Cut(text, "=")
	names, lists := r.lists()
	names = append(names, "since")
	switch {
	case !ok || !slices.Contains(names, name):
		near := ""
		if n := format.Nearest(name, names); n != "" {
			near = "; did you mean " + n + "=…?"
		}
		return fmt.Errorf("%q is not one of agent=ID, run=ID, tag=TAG, since=TIME%s", termsafe.Text(text, 60), near)
	case name == "tag" && value == "":
		return fmt.Errorf("tag= has no value")
	case name == "agent" || name == "run":
		if !strings.HasPrefix(value, name+"-") || len(value) > 100 || strings.Trim(value[len(name)+1:], "0123456789abcdef-") != "" {
			return fmt.Errorf("%q is not a valid %s id (want %s- followed by a UUID)", termsafe.Text(value, 60), name, name)
		}
	}
	if list := lists[name]; list != nil {
		*list = append(*list, value)
		return nil
	}
	if !r.Since.IsZero() {
		return fmt.Errorf("since= is given twice")
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

// texts returns the selections in the form that add accepts. If the user passed a duration as
// since=, the result contains the corresponding time.
func (r *Runs) texts() []string {
	out := []string{}
	names, lists := r.lists()
	for _, name := range names {
		for _, v := range *lists[name] {
			out = append(out, name+"="+v)
		}
	}
	if !r.Since.IsZero() {
		out = append(out, "since="+r.Since.Format(time.RFC3339Nano))
	}
	return out
}

// runsSetting returns a setting whose value is a list of selections that add accepts. While the
// list is empty, *to is nil.
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

// checkRuns reports settings that conflict with tasks.from_runs.
func (c *Config) checkRuns(complain func(when bool, key, format string, args ...any)) {
	const key = "tasks.from_runs"
	if c.Tasks.FromRuns == nil {
		complain(c.Tasks.Follow && c.Tasks.FromSessions == "", "tasks.follow", "needs tasks.from_runs or tasks.from_sessions")
		return
	}
	complain(len(c.Server.URLs) > 1, key,
		"reads from only one server, but %d are configured; choose one (servers that share a database have the same runs)", len(c.Server.URLs))
	complain(c.Tasks.File != "", key, "cannot be used with tasks.file")
	complain(c.Tasks.Samples != 1, key, "cannot be used with tasks.samples, because each server run is one sample")
	complain(c.Groups(), key, "cannot be used with tasks.until_groups or reward.min_std, because each server run is its own group")
	complain(c.Tokens.Prompts == PromptsStored || c.Tokens.Prompts == PromptsLiteral, key,
		"cannot be used with tokens.prompts %s, because it needs the messages that were sent to the agent", c.Tokens.Prompts)
	v := &c.Tokens.PolicyVersion
	complain(v.Claimed || v.Traces || v.URL.Reveal() != "", key,
		"cannot be used with tokens.policy_version, because this process sends nothing; versions come from traces")
}
