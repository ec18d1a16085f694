package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

func (d *Doctor) findTapped(ctx context.Context, reply *collector.Reply, e *record.Rollout) error {
	if d.tap == nil {
		return nil
	}
	p, err := prompt.New(prompt.Config{Force: tokenize.SourceTap, Tap: d.tap, Model: d.model})
	if err == nil {
		d.tapped, err = p.Prompts(ctx, reply, e)
	}
	return err
}

func (d *Doctor) compareTapped() {
	for i := range d.calls {
		if x := &d.calls[i]; len(x.PromptIDs) == 0 && i < len(d.tapped) && d.tapped[i].Grade == tokenize.Exact {
			x.PromptIDs, x.Source = d.tapped[i].PromptIDs, tokenize.SourceTap
			x.Settle(d.model)
		}
	}
}

// tapSaw reports how many calls in the last reply the tap saw. It returns true if the tap saw all
// of them.
func (d *Doctor) tapSaw() bool {
	if d.tap == nil {
		return false
	}
	seen, tokens := 0, 0
	for i := range d.tapped {
		if d.tapped[i].Grade == tokenize.Exact {
			seen++
			tokens += len(d.tapped[i].PromptIDs)
		}
	}
	state := Hint
	if d.Config.Tokens.Prompts == config.PromptsTap {
		state = Bad
	}
	switch stats := d.tap.Stats(); {
	case seen == len(d.tapped) && seen > 0:
		d.seen = true
		d.ok("tap", "the tap saw every call, with prompts of %s tokens in total: rows will be exact", format.Count(int64(tokens)))
		return true
	case stats.Calls == 0:
		d.report(state, "tap", "the tap saw no call: the server calls the model of a new agent at "+d.endpoint, nil, moveHint)
	default:
		missing := slices.IndexFunc(d.tapped, func(c tokenize.Call) bool { return c.Grade != tokenize.Exact })
		text := fmt.Sprintf("the tap saw %d calls, among them %d of the %d calls of this rollout", stats.Calls, seen, len(d.tapped))
		if missing >= 0 {
			text += fmt.Sprintf("; call %d: %s", missing, d.tapped[missing].Note)
		}
		d.report(state, "tap", text, nil, "the base URL of the server's provider must be the tap's URL, and the clocks of both machines must agree")
	}
	return false
}

const (
	moveHint = "set the provider's base URL to the tap's URL; the server keeps the old URL in its database, even if its settings change: " + movePage
	movePage = "see A tap for a server that has agents, in collector/tap/README.md"
)

// The limits of bypassing: agents per page, agents in total, and agents that the message names.
const (
	agentsPage = 100
	agentsMost = 20000
	agentsName = 3
)

// bypassing reports agents whose calls bypass the tap. An agent keeps the model address that its
// provider had at the time the agent was created.
func (d *Doctor) bypassing(ctx context.Context, client *letta.Client) {
	taps := map[string]bool{}
	if d.seen {
		taps[hostPort(d.endpoint)] = true
	}
	for _, where := range d.Config.Tokens.Tap {
		if strings.Contains(where, "://") {
			taps[hostPort(where)] = true
		}
	}
	if len(taps) == 0 || ctx.Err() != nil { // the address of a tap that is given by its spool folder is unknown
		return
	}
	all, past := 0, 0
	var named []string
	endpoints := map[string]int{}
	for after := ""; all < agentsMost; {
		page, err := client.Agents(ctx, nil, after, agentsPage)
		if err != nil {
			d.failed("agents", preflight.Unusable(client.BaseURL(), err))
			return
		}
		if len(page) == 0 || page[len(page)-1].ID == after {
			break
		}
		for i := range page {
			a := &page[i]
			if !a.LLMConfig.ReturnTokenIDs {
				continue
			}
			all++
			if taps[hostPort(a.LLMConfig.ModelEndpoint)] {
				continue
			}
			past++
			endpoints[a.LLMConfig.ModelEndpoint]++
			if len(named) < agentsName {
				named = append(named, a.ID)
			}
		}
		after = page[len(page)-1].ID
	}
	if past == 0 {
		if all > 0 {
			d.ok("agents", "all %s agents with token data call the tap", format.Count(int64(all)))
		}
		return
	}
	if past > len(named) {
		named = append(named, "…")
	}
	at := slices.MaxFunc(slices.Sorted(maps.Keys(endpoints)), func(a, b string) int { return cmp.Compare(endpoints[a], endpoints[b]) })
	d.report(Hint, "agents", fmt.Sprintf("%s of %s agents with token data bypass the tap, most of them at %s: %s", format.Count(int64(past)), format.Count(int64(all)), at, strings.Join(named, ", ")), nil,
		"send PATCH /v1/agents/ID with the agent's llm_config, in which model_endpoint is the tap's URL plus /v1: "+movePage)
}

// hostPort returns the host and port of a URL. It replaces a loopback or unspecified address with
// localhost.
func hostPort(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	host, port := u.Hostname(), u.Port()
	if ip := net.ParseIP(host); ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		host = "localhost"
	}
	port = cmp.Or(port, map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return net.JoinHostPort(host, port)
}
