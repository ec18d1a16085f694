package lettasim

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// A Config configures a Server. The zero value configures a server of version 0.16.7 without
// recorded cases, latency or faults.
type Config struct {
	// Seed determines all random choices: replies, latencies, faults and ids.
	Seed uint64

	// Cases contains the recorded lives to replay. See [LoadCases].
	Cases []*Case
	// KeepIDs makes replayed agents keep the recorded ids. Then only one agent for each case can
	// exist at a time. A request to create a second agent is answered with 409.
	KeepIDs bool
	// InputIDs adds the prompt ids to assistant turns, as a newer server does, and to request_json
	// in provider traces. A lost answer can then be recovered completely from the traces.
	InputIDs bool
	// BareTraces omits the prompt ids from traces even if InputIDs is set, as 0.16.7 does.
	BareTraces bool

	// NoTraces disables traces, as LETTA_TRACK_PROVIDER_TRACE=false does.
	NoTraces bool
	// Face, if not nil, returns the view of a replayed agent for each look. It is called with a
	// lock held and must not block.
	Face func(Look) Face
	// Prompt converts a recorded prompt into the prompt that the model sees with the given Face.
	// The conversion requires the model's tokenizer and template. If Prompt is set, every replayed
	// call is recorded for [Server.Given].
	Prompt func(recorded []int32, f Face) []int32

	// Script configures the scripted agents.
	Script Script
	// BodyCache is for benchmarks. If positive, it is the number of different scripts. The task and
	// the sample select the script, and the messages are ignored. For each script, the server
	// builds the large part of the answer only once.
	BodyCache int

	// Engine, if not empty, is the URL (http://HOST:PORT) of an engine that answers the calls of
	// scripted agents. The engine must serve /generate in SGLang's format (see engine.go).
	// Script.Calls then defaults to 1. Engine requires InputIDs, because the engine's prompts
	// cannot be rebuilt with a template.
	Engine string
	// EngineFailed, if not nil, is called for each failed call to the engine. It must not block.
	EngineFailed func(error)

	// Weights configures weight updates while scripted agents are working. It cannot be combined
	// with Engine, because the engine has its own weights.
	Weights Weights

	Latency Latency
	// Capacity, if positive, is the maximum number of concurrent sends. Further sends wait. One
	// process of the real server is CPU-bound. A Capacity of 1 and a latency of 200 ms, which allow
	// 5 sends per second, simulate such a process.
	Capacity int
	// Database simulates the database, which every request except a health check uses.
	Database Database
	// RunTool, if not nil, runs a function that a client asks the server to run. RunTool returns
	// the result and the status "success" or "error". It can block. If RunTool is nil, the server
	// cannot run functions.
	RunTool func(name, source string, args []byte) (returned, status string)
	// BodyRate, if positive, is the rate at which the server writes answers to sends, in bytes per
	// second.
	BodyRate int64
	Faults   Faults

	// Password, if not empty, is required in requests, as on a server in secure mode.
	Password string
	// Version is the version that the health route reports. Default 0.16.7.
	Version string
	// Model is the handle of the model with token data. Default sglang//models/qwen3. The server
	// also offers [PlainModel], a model without token data.
	Model string

	// KeepAnswers makes the server record every answered send for [Server.Answers]. Each record
	// takes about 200 bytes and is never deleted.
	KeepAnswers bool
	// KeptTraces is the maximum number of traces that are kept after their agents were deleted.
	// Default 256. The real server keeps all traces.
	KeptTraces int

	// Now is the clock that decides whether a run is finished. Default time.Now.
	Now func() time.Time
}

// contextWindow is the size of the models' context window, in tokens.
const contextWindow = 32000

// A Database simulates the PostgreSQL database behind a server.
type Database struct {
	// Connections, if positive, is the number of connections to the database. If all connections
	// are in use, a request is answered with 500.
	Connections int
	// Takes is the time for which each request occupies a connection.
	Takes time.Duration
}

// PlainModel is the handle of a model without token data. The answers of its agents have no turns.
const PlainModel = "openai-proxy//models/qwen3"

// A Range is an inclusive range from which a number is drawn. In large ranges, numbers near Min are
// more likely, as for the lengths of real generations.
type Range struct{ Min, Max int }

// A Script configures scripted agents. Their answers can be scored. If a message contains
// [answer:X], "Add 2 and 3" or "6 times 7", the reply ends with "The answer is X.", where X is the
// given answer or the result.
type Script struct {
	// Calls is the number of model calls in a send. Default 1 to 4. Every model call except the
	// last in a send contains a tool call.
	Calls Range
	// Tokens is the number of sampled tokens in the last call, excluding the sentence with the
	// answer. Default 24 to 400. With about 7,000 tokens, the body of the response is one megabyte
	// long.
	Tokens Range
	// ThinkTokens is the number of sampled tokens before a tool call. Default 8 to 80.
	ThinkTokens Range
	// Drift is the share of tool calls whose preceding text is missing from the next prompt, as on
	// the real server by default. Such a prompt does not continue the earlier tokens. Agents with
	// llm_config.enable_reasoner have no drift.
	Drift float64
	// Wrong is the share of sends that get a wrong answer.
	Wrong float64
	// Length is the share of sends that end with max_tokens_exceeded.
	Length float64
}

func (c Config) withDefaults() Config {
	c.Version = cmp.Or(c.Version, "0.16.7")
	c.Model = cmp.Or(c.Model, "sglang//models/qwen3")
	c.KeptTraces = cmp.Or(c.KeptTraces, 256)
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &c.Script
	if s.Calls == (Range{}) {
		s.Calls = Range{1, 4}
		if c.Engine != "" {
			s.Calls = Range{1, 1}
		}
	}
	if s.Tokens == (Range{}) {
		s.Tokens = Range{24, 400}
	}
	if s.ThinkTokens == (Range{}) {
		s.ThinkTokens = Range{8, 80}
	}
	return c
}

// Validate returns all errors in c, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("lettasim: "+format, args...))
		}
	}
	for name, r := range map[string]Range{"calls": c.Script.Calls, "tokens": c.Script.Tokens, "think_tokens": c.Script.ThinkTokens} {
		check(r == Range{} || r.Min >= 0 && r.Min <= r.Max, "script.%s: %d..%d: want 0 ≤ min ≤ max", name, r.Min, r.Max)
	}
	check(c.Script.Calls == Range{} || c.Script.Calls.Min >= 1, "script.calls: %d..%d: min must be ≥ 1", c.Script.Calls.Min, c.Script.Calls.Max)
	check(c.Script.Drift >= 0 && c.Script.Drift <= 1, "script.drift: %g: must be between 0 and 1", c.Script.Drift)
	check(c.Script.Wrong >= 0 && c.Script.Wrong <= 1, "script.wrong: %g: must be between 0 and 1", c.Script.Wrong)
	check(c.Script.Length >= 0 && c.Script.Length <= 1, "script.length: %g: must be between 0 and 1", c.Script.Length)
	check(c.BodyCache >= 0, "body_cache: %d: must be ≥ 0", c.BodyCache)
	check(c.Capacity >= 0, "capacity: %d: must be ≥ 0", c.Capacity)
	check(c.BodyRate >= 0, "body_rate: %d: must be ≥ 0", c.BodyRate)
	if c.Engine != "" {
		errs = append(errs, checkEngine(c.Engine))
		check(c.InputIDs, "engine: requires InputIDs (--input-ids), because only these ids show the prompts")
		check(!c.Weights.changing(), "engine and Weights cannot be combined")
		check(c.BodyCache == 0, "engine and body_cache cannot be combined")
		for _, f := range c.Faults {
			check(!faultKinds[f.Kind].ofData, "engine: fault %s applies only to scripted answers", f.Kind)
		}
	}
	errs = append(errs, c.Weights.validate())
	seen := map[string]bool{}
	for _, cs := range c.Cases {
		check(!seen[cs.Name], "case %s: duplicate name", cs.Name)
		seen[cs.Name] = true
	}
	if err := c.Latency.validate(); err != nil {
		errs = append(errs, err)
	}
	for _, f := range c.Faults {
		if err := f.validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
