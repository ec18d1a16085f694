package lettasim

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// A Config configures a Server. Its zero value is a server of version 0.16.7 without recorded
// cases, latency or faults.
type Config struct {
	// Seed determines everything random: replies, latencies, faults, ids.
	Seed uint64

	// Cases are the recorded lives to replay; see [LoadCases].
	Cases []*Case
	// KeepIDs replays the recorded ids too. Then only one agent of a case can exist at a time; a
	// second create gets 409.
	KeepIDs bool
	// InputIDs adds the prompt ids to assistant turns, as a newer server does, and to the
	// request_json of provider traces. Then traces recover a lost answer completely.
	InputIDs bool
	// BareTraces omits the prompt ids from traces anyway, as 0.16.7 does.
	BareTraces bool

	// NoTraces keeps no traces (LETTA_TRACK_PROVIDER_TRACE=false).
	NoTraces bool
	// Face, if not nil, returns the view of a replayed agent for each look. It is called with a
	// lock held, and must not block.
	Face func(Look) Face
	// Prompt returns the model's prompt under a face, from the recorded prompt. It needs the
	// model's tokenizer and template. If it is set, [Server.Given] records every call.
	Prompt func(recorded []int32, f Face) []int32

	// Script configures the scripted agents.
	Script Script
	// BodyCache, if positive, is the number of different scripts, which task and sample select. The
	// server then builds the large part of each answer only once, and ignores messages. BodyCache
	// is for benchmarks.
	BodyCache int

	// Engine, if not empty, is the URL of an engine that makes the calls of scripted agents:
	// http://HOST:PORT, with /generate in SGLang's dialect (engine.go). Script.Calls then defaults
	// to 1. It needs InputIDs, because no template renders its prompts.
	Engine string
	// EngineFailed, if not nil, is called for each call that the engine failed. It must not block.
	EngineFailed func(error)

	// Weights configures weight updates while scripted agents work. It cannot be combined with
	// Engine, which has its own weights.
	Weights Weights

	Latency Latency
	// Capacity, if positive, is the number of concurrent sends; others wait. One process of the
	// real server is CPU-bound. It behaves like a capacity of 1 and a latency of 200 ms: 5 sends
	// per second.
	Capacity int
	// Database is used by every request except health checks.
	Database Database
	// RunTool, if not nil, runs a function that a client asks the server to run. It returns the
	// result and a status, success or error. It can block. If nil, no function can be run.
	RunTool func(name, source string, args []byte) (returned, status string)
	// BodyRate, if positive, is the write speed of every answer to a send, in bytes per second.
	BodyRate int64
	Faults   Faults

	// Password, if not empty, is required as by a server in secure mode.
	Password string
	// Version is the version of the health route; default 0.16.7.
	Version string
	// Model is the handle of the model with token data; default sglang//models/qwen3. The server
	// also has [PlainModel], a model without token data.
	Model string

	// KeepAnswers makes [Server.Answers] record every answered send forever, at about 200 bytes.
	KeepAnswers bool
	// KeptTraces is the number of traces of deleted agents that are kept; default 256. The real
	// server keeps all.
	KeptTraces int

	// Now is the clock that decides whether a run is finished; default time.Now.
	Now func() time.Time
}

// contextWindow is the context window of the models, in tokens.
const contextWindow = 32000

// A Database simulates the PostgreSQL behind a server.
type Database struct {
	// Connections, if positive, is the number of connections. A request that finds none free gets a
	// 500.
	Connections int
	// Takes is how long a request holds a connection.
	Takes time.Duration
}

// PlainModel is the handle of a model without token data. Its agents answer without turns.
const PlainModel = "openai-proxy//models/qwen3"

// A Range is an inclusive range to draw from. Large ranges are skewed towards Min, like the lengths
// of generations.
type Range struct{ Min, Max int }

// A Script configures scripted agents. Their answers can be scored: a message that contains
// [answer:X], "Add 2 and 3" or "6 times 7" gets "The answer is X." at the end of the answer.
type Script struct {
	// Calls is the number of model calls of a send; default 1 to 4. All but the last call a tool.
	Calls Range
	// Tokens is the number of sampled tokens of the last call, without its answer; default 24 to
	// 400. About 7,000 make an answer of one megabyte.
	Tokens Range
	// ThinkTokens is the number of sampled tokens before a tool call; default 8 to 80.
	ThinkTokens Range
	// Drift is the share of tool calls whose preceding text is missing from the next prompt, as on
	// the real server by default. Such a prompt does not continue the tokens before it. Agents with
	// llm_config.enable_reasoner have no drift.
	Drift float64
	// Wrong is the share of sends with a wrong answer.
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

// Validate returns all errors of c, joined.
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
		check(c.InputIDs, "engine: requires InputIDs (--input-ids), because only they show the prompts")
		check(!c.Weights.changing(), "engine: cannot be combined with Weights")
		check(c.BodyCache == 0, "engine: cannot be combined with body_cache")
		for _, f := range c.Faults {
			check(!faultKinds[f.Kind].ofData, "engine: fault %s applies only to scripted answers", f.Kind)
		}
	}
	errs = append(errs, c.Weights.validate())
	seen := map[string]bool{}
	for _, cs := range c.Cases {
		check(!seen[cs.Name], "case %s: duplicate", cs.Name)
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
