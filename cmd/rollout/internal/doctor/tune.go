package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// This file checks for settings that make a server slow or fragile. Each check reports the effect
// of a setting, either measured on this server or as a reference value.
//
//	sandbox    runs a no-op tool, measures its cost, and reads a few of the server's settings
//	pool       checks one of these settings
//	database   makes parallel reads, doubling their number up to the connections that a run needs
//	others     check settings of the run and of the server, and facts about its release

// reference names the source of figures that were not measured on this server.
const reference = "reference: release 0.16.7 on 2 cores"

// tune runs the checks in this file for one server. The server's settings are known only if the
// server's sandbox runs on the server's machine.
func (d *Doctor) tune(ctx context.Context, at int, client *letta.Client) {
	own, known := d.sandbox(ctx, client)
	d.pool(own, known)
	d.database(ctx, at, own)
	d.reasoning()
	d.agents(ctx, client)
	d.sampling(ctx, client)
	d.traces(own, known)
	d.timeouts(own)
	d.processes()
}

func effect(format string, args ...any) []string {
	return []string{"effect: " + fmt.Sprintf(format, args...)}
}

// pool reports whether the server opens a new PostgreSQL connection each time it needs one.
func (d *Doctor) pool(own settings, known bool) {
	const name = "pool"
	const gain = "a send takes 0.14 s instead of 0.26–0.34 s, and one process completes 7 rollouts per second instead of 4.7 (" + reference + ")"
	const cure = "set LETTA_DISABLE_SQLALCHEMY_POOLING=false LETTA_PG_POOL_SIZE=50 LETTA_PG_MAX_OVERFLOW=50, and add ?ssl=disable to LETTA_PG_URI if PostgreSQL has no TLS"
	switch disabled, given := own.flag("LETTA_DISABLE_SQLALCHEMY_POOLING"); {
	case !known:
		d.report(Hint, name, "it is unknown whether the server pools its PostgreSQL connections; by default, it does not", effect("with a pool, %s", gain), cure)
	case given && !disabled:
		d.ok(name, "the server pools its PostgreSQL connections")
	default:
		d.report(Hint, name, "the server opens a new PostgreSQL connection every time it needs one", effect("with a pool, %s", gain), cure)
	}
}

// reasoning reports whether the server drops the text before a tool call when it builds the next
// prompt.
func (d *Doctor) reasoning() {
	const name = "reasoning"
	if d.Config.Agent.KeepReasoning {
		d.ok(name, "text before a tool call stays in the prompt (agent.keep_reasoning)")
		return
	}
	text := "with agent.keep_reasoning, 31 of 38 prompts began with all tokens of the previous call; without it, 42 of 86 (" + reference + ")"
	if all, continued := d.continued(); all > 0 {
		text = fmt.Sprintf("on this server, %d of %d prompts began with all tokens of the previous call. For comparison: 31 of 38 did with agent.keep_reasoning, and 42 of 86 did without it ("+reference+")", continued, all)
	}
	d.report(Hint, name, "the server omits text before a tool call, including think blocks, from the next prompt. This ends the row and causes a miss in the engine's prefix cache", effect("%s", text),
		"set agent.keep_reasoning: true, unless the policy should be trained without seeing its think blocks")
}

// continued examines the prompts of the last rollout. The result all is the number of known prompts
// that follow another call. The result continued is the number of these prompts that begin with all
// tokens of the previous call.
func (d *Doctor) continued() (all, continued int) {
	for i := 1; i < len(d.calls); i++ {
		before, now := promptOf(&d.calls[i-1]), promptOf(&d.calls[i])
		if before == nil || now == nil {
			continue
		}
		all++
		before = append(slices.Clip(before), d.calls[i-1].OutputIDs...)
		if len(now) >= len(before) && slices.Equal(now[:len(before)], before) {
			continued++
		}
	}
	return all, continued
}

// promptOf returns the prompt of a call, or nil if the prompt is unknown.
func promptOf(x *prompt.Examined) []int32 {
	switch {
	case len(x.PromptIDs) > 0:
		return x.PromptIDs
	case x.Stored.Err == nil && int64(len(x.Stored.IDs)) == x.Counted:
		return x.Stored.IDs
	case x.Trace.Err == nil && int64(len(x.Trace.IDs)) == x.Counted:
		return x.Trace.IDs
	}
	return nil
}

// If a server has more than manyAgents agents created by rollout, the agents are probably never
// deleted.
const manyAgents = 1000

func (d *Doctor) agents(ctx context.Context, client *letta.Client) {
	const name = "agents"
	all, err := client.CountAgents(ctx)
	if err != nil {
		d.report(Hint, name, "cannot count the agents: "+oneLine(err), nil, "")
		return
	}
	ours, err := client.CountAgents(ctx, agent.TagAll)
	if err != nil {
		d.report(Hint, name, "cannot count the agents: "+oneLine(err), nil, "")
		return
	}
	text := fmt.Sprintf("%d on the server, %d of them created by rollout", all, ours)
	grows := effect("the PostgreSQL tables grow with every rollout, and deleting an agent does not delete its traces (prune the table provider_traces)")
	switch {
	case d.Config.Agent.Keep:
		d.report(Hint, name, text+"; agent.keep keeps all agents of a run", grows, "set agent.keep: false, and remove the existing agents with rollout clean")
	case ours >= manyAgents:
		d.report(Hint, name, text, grows, "run rollout clean RUN for each finished run")
	default:
		d.ok(name, "%s", text)
	}
}

// Values that Letta 0.16 sends to an engine regardless of the agent's settings.
const (
	fixedTopP   = 0.9
	fixedTokens = 4096
)

// sampling reports the sampling parameters that a tap saw. If no tap saw any, it reports the values
// that the server always sends.
func (d *Doctor) sampling(ctx context.Context, client *letta.Client) {
	const name = "sampling"
	const cure = "run rollout tap --set top_p=1.0 --set max_new_tokens=N between the server and its engines"
	harm := effect("log-probabilities might not match the distribution that the tokens were sampled from, and answers end at %d tokens (reference: source of 0.16.7)", fixedTokens)
	for i := range d.tapped {
		s := d.tapped[i].Sampling
		if s == nil {
			continue
		}
		text := "the engine received " + describeSampling(s) + " (measured by the tap)"
		if s.TopP != nil && *s.TopP == fixedTopP || s.MaxNewTokens != nil && *s.MaxNewTokens == fixedTokens {
			d.report(Hint, name, text, harm, cure)
		} else {
			d.ok(name, "%s", text)
		}
		return
	}
	version, err := client.Version(ctx)
	if err != nil || !strings.HasPrefix(version, "0.16.") {
		return // for other releases, the values are unknown
	}
	d.report(Hint, name, fmt.Sprintf("the server always sends top_p %v and max_new_tokens %d; only the temperature comes from the agent", fixedTopP, fixedTokens),
		harm, cure+", unless a tap is already in place")
}

func describeSampling(s *tokenize.Sampling) string {
	var words []string
	add := func(name string, value any) { words = append(words, fmt.Sprintf("%s %v", name, value)) }
	if s.Temperature != nil {
		add("temperature", *s.Temperature)
	}
	if s.TopP != nil {
		add("top_p", *s.TopP)
	}
	if s.MaxNewTokens != nil {
		add("max_new_tokens", *s.MaxNewTokens)
	}
	if len(words) == 0 {
		return "no temperature, top_p or max_new_tokens"
	}
	return strings.Join(words, ", ")
}

// traces reports whether the server stores the requests that it sends to the engine.
func (d *Doctor) traces(own settings, known bool) {
	const name = "traces"
	if on, given := own.flag("LETTA_TRACK_PROVIDER_TRACE"); known && given && !on {
		d.report(Hint, name, "the server does not store traces", effect("lost answers cannot be recovered, prompts of agents with several tools are unproven, and policy versions are unknown"),
			"set LETTA_TRACK_PROVIDER_TRACE=true, or use rollout tap")
		return
	}
	for i := range d.calls {
		if d.calls[i].Trace.Err == nil {
			d.ok(name, "the server stores traces; its table provider_traces grows without limit")
			return
		}
	}
	if known {
		d.ok(name, "the server is configured to store traces; its table provider_traces grows without limit")
	}
}

// leastTimeout is the longest stall that was observed. A timeout must be longer, because otherwise
// it can interrupt a send.
const leastTimeout = time.Minute

func (d *Doctor) timeouts(own settings) {
	const name = "timeouts"
	s := &d.Config.Server
	stalls := effect("in 900 rollouts, a server stalled for 60 s twice; a server waits up to 300 s for an engine call, and does not limit the duration of a send (" + reference + ")")
	switch {
	case s.Timeout <= leastTimeout:
		d.report(Hint, name, fmt.Sprintf("server.timeout limits a send to %v", s.Timeout), stalls, "set server.timeout to several minutes or more, and to at least agent.max_steps × the duration of the engine's slowest answer")
	case d.Config.Run.AttemptTimeout < s.Timeout:
		d.report(Hint, name, fmt.Sprintf("run.attempt_timeout %v is shorter than server.timeout %v", d.Config.Run.AttemptTimeout, s.Timeout), nil,
			"set run.attempt_timeout above server.timeout")
	case own.below("LETTA_UVICORN_TIMEOUT_KEEP_ALIVE", 5):
		d.report(Hint, name, "the server closes idle connections after "+own["LETTA_UVICORN_TIMEOUT_KEEP_ALIVE"]+" s", effect("rollout keeps idle connections for 4 s; a send on a connection that the server has already closed is lost"),
			"set LETTA_UVICORN_TIMEOUT_KEEP_ALIVE=5 or more")
	default:
		d.ok(name, "%v for a send, %v for an attempt", s.Timeout, d.Config.Run.AttemptTimeout)
	}
}

// processes reports the throughput of one server process.
func (d *Doctor) processes() {
	const name = "processes"
	n := len(d.Config.Server.URLs)
	text := "one server process completes 4–7 rollouts per second, regardless of the number in flight (" + reference + ")"
	if n == 1 {
		d.report(Hint, name, "one server", effect("%s", text), "run more Letta server processes on the same database, each on its own port, and pass --server URL once for each process")
		return
	}
	d.ok(name, "%d servers; %s", n, text)
}

// short formats a duration, including durations far below a second.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	}
	return format.Duration(d)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

type settings map[string]string

// flag returns the value of a Boolean setting. The result given is false if the setting is not set.
func (s settings) flag(name string) (on, given bool) {
	switch strings.ToLower(s[name]) {
	case "":
		return false, false
	case "0", "false", "f", "no", "n", "off":
		return false, true
	}
	return true, true
}

func (s settings) below(name string, n float64) bool {
	v, err := strconv.ParseFloat(s[name], 64)
	return err == nil && v < n
}

// probe is a tool that reports only the cost of starting it and a few of the server's settings.
// None of these settings is a secret. If the sandbox runs on the server's machine, the probe sees
// the server's environment.
var probe = letta.ToolRun{
	Name: "rollout_probe",
	Args: map[string]any{"x": 1}, // the tool has an argument, as in a model's call
	JSONSchema: json.RawMessage(`{"name": "rollout_probe", "description": "Report the cost of running this.",` +
		` "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}`),
	SourceCode: `def rollout_probe(x: int) -> str:
    """Report the cost of running this.

    Args:
        x (int): Nothing.
    """
    import json, os, sys
    t = os.times()
    names = ["LETTA_DISABLE_SQLALCHEMY_POOLING", "LETTA_PG_POOL_SIZE", "LETTA_PG_MAX_OVERFLOW", "LETTA_TRACK_PROVIDER_TRACE", "LETTA_UVICORN_TIMEOUT_KEEP_ALIVE"]
    return json.dumps({
        "cpu": t.user + t.system,
        "letta": "letta" in sys.modules,
        "local": "LETTA_PG_URI" in os.environ,
        "settings": {name: os.environ[name] for name in names if name in os.environ},
    })
`,
}

type probed struct {
	CPU      float64  `json:"cpu"`   // seconds
	Letta    bool     `json:"letta"` // all of Letta was imported
	Local    bool     `json:"local"` // the tool ran with the server's environment
	Settings settings `json:"settings"`
	took     time.Duration
}

const (
	probes = 3
	// slowTool is the duration above which tool calls take most of the time of a rollout.
	slowTool = time.Second
)

// sandbox runs the probe a few times. It returns the server's settings that the probe reported. The
// result known is false if the settings are not available.
func (d *Doctor) sandbox(ctx context.Context, client *letta.Client) (own settings, known bool) {
	const name = "sandbox"
	const venv = "a tool in a small environment takes 0.1–0.25 s (" + reference + ")"
	const cure = "set TOOL_EXEC_DIR=DIR TOOL_EXEC_VENV_NAME=NAME TOOL_EXEC_AUTORELOAD_VENV=false, where NAME is a Python environment in DIR that has pydantic but not letta. Note: the server then no longer coerces tool arguments to their declared types"
	var all []probed
	for range probes {
		p, err := runProbe(ctx, client)
		if err != nil {
			if letta.IsNotFound(err) {
				err = fmt.Errorf("the server does not have this endpoint: %w", err)
			}
			d.report(Hint, name, "cannot run a no-op tool: "+oneLine(err), effect("a tool call that imports all of Letta takes 3.5 s of CPU time; %s", venv), cure)
			return nil, false
		}
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b probed) int { return int(a.took - b.took) })
	p := all[len(all)/2]
	cpu := time.Duration(p.CPU * float64(time.Second))
	text := fmt.Sprintf("a no-op tool takes %s, including %s of CPU time (median of %d runs)", short(p.took), short(cpu), probes)
	switch {
	case p.Letta || cpu >= slowTool:
		d.report(Hint, name, text, effect("every tool call starts a Python process that imports all of Letta; %s", venv), cure)
	case p.took >= slowTool:
		d.report(Hint, name, text, effect("the server's machine is busy, or the server runs its tools elsewhere; %s", venv), "give the server and its tools more CPU cores")
	default:
		d.ok(name, "%s", text)
	}
	return p.Settings, p.Local
}

func runProbe(ctx context.Context, client *letta.Client) (*probed, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	ran, err := client.RunTool(ctx, &probe)
	if err != nil {
		return nil, err
	}
	p := &probed{took: time.Since(began)}
	if ran.Status != "success" {
		return nil, fmt.Errorf("%s", termsafe.Text(ran.Return, 200))
	}
	if err := json.Unmarshal([]byte(ran.Return), p); err != nil {
		return nil, fmt.Errorf("the tool returned %q", termsafe.Text(ran.Return, 60))
	}
	return p, nil
}

const (
	// perRollout is the maximum number of PostgreSQL connections that a rollout uses if there is no
	// pool.
	perRollout = 4
	// mostReads is the maximum number of parallel reads.
	mostReads = 256
	firstRead = 8
)

type burst struct {
	n      int
	failed int
	median time.Duration // median time of the successful reads
	took   time.Duration
	err    error // error of one failed read
}

// database measures how the server handles parallel reads. Each read requests the number of agents,
// which is cheap. It makes one read, then firstRead parallel reads, and then doubles their number.
// It stops at the number of connections that a run with max_in_flight samples needs. It also stops
// at the first failure, because other clients might be using the server.
func (d *Doctor) database(ctx context.Context, at int, own settings) {
	const name = "database"
	cfg, err := connect.ClientConfig(d.Config, &d.Config.Server.URLs[at], nil)
	var client *letta.Client
	if cfg.ReadRetries = -1; err == nil {
		client, err = letta.NewClient(cfg)
	}
	if err != nil {
		d.failed(name, err)
		return
	}
	defer client.CloseIdle()
	inFlight := d.Config.InFlight(&d.Config.Server.URLs[at])
	need := perRollout * inFlight
	one := d.burst(ctx, client, 1)
	last := one
	for n := min(firstRead, need, mostReads); last.failed == 0 && n > last.n && ctx.Err() == nil; n = min(2*n, need, mostReads) {
		if b := d.burst(ctx, client, n); b.failed > 0 {
			d.exhausted(name, b, last, inFlight, own)
			return
		} else {
			last = b
		}
	}
	if one.failed > 0 {
		d.report(Hint, name, "a read failed: "+oneLine(one.err), nil, "")
		return
	}
	text := fmt.Sprintf("%d parallel reads succeeded, %.0f per second (one read alone took %s; the median of %d parallel reads is %s)",
		last.n, float64(last.n)/last.took.Seconds(), short(one.median), last.n, short(last.median))
	if last.n < need {
		text += fmt.Sprintf("; %d samples in flight can need up to %d PostgreSQL connections", inFlight, need)
	}
	d.ok(name, "%s", text)
}

// exhausted prints the hint for a burst in which some reads failed. The parameter before is the
// last burst without failures.
func (d *Doctor) exhausted(name string, b, before burst, inFlight int, own settings) {
	text := fmt.Sprintf("%d of %d parallel reads failed (%s); with %d at a time, none failed", b.failed, b.n, oneLine(b.err), before.n)
	fit := max(before.n/perRollout, 1)
	cure := fmt.Sprintf("set PostgreSQL's max_connections above %d × server.max_in_flight (%d) for each server process, use a pool (see the pool check), or collect with --max-in-flight %d", perRollout, inFlight, fit)
	if disabled, given := own.flag("LETTA_DISABLE_SQLALCHEMY_POOLING"); given && !disabled {
		cure = fmt.Sprintf("set PostgreSQL's max_connections above the total of all pools (LETTA_PG_POOL_SIZE + LETTA_PG_MAX_OVERFLOW per process), or collect with --max-in-flight %d", fit)
	}
	d.report(Hint, name, text, effect("without a pool, a rollout uses 3–4 connections and fails with HTTP status 500 if none is free; with PostgreSQL's limit of 100 connections, 3 of 32 and 48 of 64 parallel sends failed (%s)", reference), cure)
}

func (d *Doctor) burst(ctx context.Context, client *letta.Client, n int) burst {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var (
		mu    sync.Mutex
		all   sync.WaitGroup
		times []time.Duration
		b     = burst{n: n}
	)
	began := time.Now()
	for range n {
		all.Go(func() {
			began := time.Now()
			_, err := client.CountAgents(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				b.failed++
				if b.err == nil || errors.Is(err, letta.ErrServer) { // prefer this error, because it describes the cause best
					b.err = err
				}
				return
			}
			times = append(times, time.Since(began))
		})
	}
	all.Wait()
	b.took = time.Since(began)
	if len(times) > 0 {
		slices.Sort(times)
		b.median = times[len(times)/2]
	}
	return b
}
