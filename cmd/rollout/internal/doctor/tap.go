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
		d.ok("tap", "the tap saw every call (prompts of %s tokens in total), so rows will be exact", format.Count(int64(tokens)))
		return true
	case stats.Calls == 0:
		d.report(state, "tap", "the tap saw no call; for a new agent, the server calls the model at "+d.endpoint, nil, moveHint)
	default:
		missing := slices.IndexFunc(d.tapped, func(c tokenize.Call) bool { return c.Grade != tokenize.Exact })
		text := fmt.Sprintf("the tap saw %d calls, including %d of the %d calls of this rollout", stats.Calls, seen, len(d.tapped))
		if missing >= 0 {
			text += fmt.Sprintf("; call %d: %s", missing, d.tapped[missing].Note)
		}
		d.report(state, "tap", text, nil, "set the base URL of the server's provider to the tap's URL, and check that the tap's clock and this machine's clock agree")
	}
	return false
}

const (
	moveHint = "set the base URL of the server's provider to the tap's URL. Changing the server's settings is not enough, because its database keeps the old URL (" + movePage + ")"
	movePage = "see “A tap for a server that has agents” in collector/tap/README.md"
)

// The number of agents that bypassing reads per page, the number that it reads in total, and the
// number that its message names.
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
	if len(taps) == 0 || ctx.Err() != nil { // a tap that is given by its spool folder has no known address
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
			d.ok("agents", "all %s agents that return token data call the tap", format.Count(int64(all)))
		}
		return
	}
	if past > len(named) {
		named = append(named, "…")
	}
	at := slices.MaxFunc(slices.Sorted(maps.Keys(endpoints)), func(a, b string) int { return cmp.Compare(endpoints[a], endpoints[b]) })
	d.report(Hint, "agents", fmt.Sprintf("%s of %s agents that return token data bypass the tap (%s); their most common endpoint is %s", format.Count(int64(past)), format.Count(int64(all)), strings.Join(named, ", "), at), nil,
		"with PATCH /v1/agents/ID, set model_endpoint in the agent's llm_config to the tap's URL plus /v1 ("+movePage+")")
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
