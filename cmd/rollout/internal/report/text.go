package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// Text returns a short form of the report for a terminal.
func Text(r *Report) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		termsafe.Fprintf(&b, "%-11s %s\n", name, strings.ReplaceAll(fmt.Sprintf(format, args...), nbsp, " "))
	}
	c := r.Coverage
	line("run", "%s, %s", r.RunID, r.State)
	line("planned", "%9s", count(c.Planned))
	line("committed", "%9s  %s", count(c.Committed), share(c.Committed, c.Planned))
	if c.Filtered > 0 {
		line("filtered", "%9s  %s, with keep=false: %s", count(c.Filtered), share(c.Filtered, c.Planned), reasons(r.Filtered))
	}
	line("failed", "%9s  %s", count(c.Failed), share(c.Failed, c.Planned))
	line("skipped", "%9s  %s", count(c.Skipped), share(c.Skipped, c.Planned))
	durable := ""
	if n := c.Durable; n != nil && *n > 0 {
		durable = ", " + count(*n) + " of them durable but not yet in a shard"
	}
	line("remaining", "%9s  %s%s", count(c.Remaining), share(c.Remaining, c.Planned), durable)
	for _, f := range r.Failures.Classes {
		line("", "%9s  %s: %s", count(f.Samples), f.Class, f.Advice)
	}
	if d := r.Rewards.All; d != nil {
		line("reward", "mean %s, std %s over %s samples; %s not scored", value(d.Mean), value(d.Std), count(d.Count), count(r.Rewards.Unscored))
		line("", "%s (a pass is a reward of at least %s)", r.Rewards.passText(), value(r.Rewards.Pass))
		line("groups", "%s of %s scored groups have equal rewards", count(r.Groups.ZeroVariance), count(r.Groups.Scored))
	} else {
		line("reward", "none: no sample was scored")
	}
	if r.Scores != "" {
		line("", "the rewards come from scores set %s (rollout rescore)", r.Scores)
	}
	if l := r.Lag; l != nil && len(l.Groups) > 0 {
		line("lag", "%s", l.text())
	}
	spread := func(name string, d *Distribution, show func(float64) string) {
		if d != nil {
			line(name, "p50 %s, p90 %s, p99 %s, max %s", show(d.P50), show(d.P90), show(d.P99), show(d.Max))
		}
	}
	spread("row tokens", r.Lengths.Sequence, amount)
	spread("sampled", r.Lengths.Completion, amount)
	spread("time", r.Time.Total, seconds)
	spread("working", r.Time.Working, seconds)
	if s := r.Throughput; s != nil && s.TokensPerSecond > 0 {
		line("rate", "%s sampled tokens/s from the start of the first sample to the end of the last sample", amount(s.TokensPerSecond))
	}
	if b := r.Balance; b != nil {
		line("balance", "%s sampled tokens = %s", format.Count(b.Sampled), format.Balance(b))
	}
	for i, text := range r.Truncation.ends() {
		line([]string{"ends", ""}[min(i, 1)], "%s", text)
	}
	line("data", "%s in %s shards, %s tokens", size(r.Storage.DataBytes), count(r.Storage.DataShards), count(r.Storage.Tokens))
	for _, n := range Notes(r) {
		if n.Mood != "good" {
			line("note", "%s", n.Text)
		}
	}
	return b.String()
}

// passText lists pass@k.
func (r *Rewards) passText() string {
	var all []string
	for _, k := range r.PassAtK {
		all = append(all, fmt.Sprintf("pass@%d %.3f", k.K, k.Value))
	}
	return strings.Join(all, ", ")
}

// maxName is the maximum displayed length of a name that can come from a server.
const maxName = 120

// reasons lists the reasons for filtering, the most frequent reason first.
func reasons(by map[string]int) string {
	var all []string
	for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) }) {
		all = append(all, cmp.Or(termsafe.Text(name, maxName), "–")+" "+count(by[name]))
	}
	return strings.Join(all, ", ")
}
