package lettasim

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A Config says what to simulate. Its zero value is a server of version 0.16.7
// without recorded cases, without latency and without faults.
type Config struct {
	// Seed makes everything that is drawn: replies, latencies, faults, ids.
	Seed uint64

	// Cases are the recorded lives that can be replayed; see [LoadCases].
	Cases []*Case
	// KeepIDs replays the ids of the recording too. A case then has one living
	// agent at a time: a second create is refused with 409.
	KeepIDs bool
	// InputIDs puts the prompt ids on assistant turns, as a newer server does, and into
	// the request_json of provider traces, so that a send whose answer was lost can be
	// taken from its traces as exactly as from its answer.
	InputIDs bool
	// BareTraces leaves the prompt ids out of traces all the same, as 0.16.7 does: what a
	// lost answer held of them is then nowhere.
	BareTraces bool

	// NoTraces is a server that keeps no traces (LETTA_TRACK_PROVIDER_TRACE=false).
	NoTraces bool
	// Face, if not nil, says what each look at a replayed agent shows. It is called
	// with a lock held, and must not block.
	Face func(Look) Face
	// Prompt makes of a recorded prompt the one that the model is given under a face; it
	// knows the model's tokenizer and template, which lettasim does not. Where it is set
	// [Server.Given] remembers every call.
	Prompt func(recorded []int32, f Face) []int32

	// Script shapes the scripted agents.
	Script Script
	// BodyCache, if positive, is the number of different scripts that exist: the
	// task and the sample choose one of them, and the large part of its answer is
	// built once and kept. It is for benchmarks: the messages sent then have no
	// influence on the answer.
	BodyCache int

	// Engine, if not empty, is the address of an engine that makes the calls of scripted
	// agents: http://HOST:PORT, whose /generate speaks SGLang's dialect. A send then makes
	// one call, unless Script.Calls says otherwise. It needs InputIDs, since no template
	// makes its prompts; see engine.go.
	Engine string
	// EngineFailed, if not nil, is told of every call that the engine failed. It must not
	// block.
	EngineFailed func(error)

	// Weights change while scripted agents are at work. Not with Engine, which has its own.
	Weights Weights

	// Latency is how long a send takes.
	Latency Latency
	// Capacity, if positive, is how many sends are worked on at a time. The others wait their
	// turn, and take their time after it. A process of the real server, which is bound by its
	// CPU, is one with a capacity of 1 and a latency of some 200 ms: 5 sends per second,
	// however many come.
	Capacity int
	// Database is what every request but those for its health needs.
	Database Database
	// RunTool, if not nil, runs a function that a client asks the server to run, and returns
	// its result and success or error. It may take its time. Without it, none can be run.
	RunTool func(name, source string, args []byte) (returned, status string)
	// BodyRate, if positive, is the speed in bytes per second at which every
	// answer to a send is written.
	BodyRate int64
	// Faults are what goes wrong; see [Fault].
	Faults Faults

	// Password, if not empty, is asked for as a server in secure mode does.
	Password string
	// Version is what the health route says; 0.16.7 if empty.
	Version string
	// Model is the handle of the one model that gives token data;
	// sglang//models/qwen3 if empty. A second model, of a provider that gives
	// none, is [PlainModel].
	Model string
	// ContextWindow is the model's, in tokens; 32000 if zero.
	ContextWindow int

	// KeepAnswers makes [Server.Answers] remember every answered send: some 200
	// bytes each, for ever.
	KeepAnswers bool
	// KeptTraces is how many traces of deleted agents are kept; 256 if zero. The
	// real server keeps them all.
	KeptTraces int

	// Logger gets one line per request at debug level; nil discards.
	Logger *slog.Logger
	// Now is the clock that decides whether a run is finished; time.Now if nil.
	Now func() time.Time
}

// A Database is PostgreSQL behind a server.
type Database struct {
	// Connections, if positive, is how many it has. A request that finds none is answered
	// with the real server's 500.
	Connections int
	// Takes is how long a request holds one.
	Takes time.Duration
}

// PlainModel is the handle of a model whose provider gives no token data: agents
// made with it answer without turns.
const PlainModel = "openai-proxy//models/qwen3"

// A Range is drawn from, both ends included. Large ranges are drawn skewed
// towards Min, as lengths of generations are.
type Range struct{ Min, Max int }

// Script shapes scripted agents. What they answer can be scored: a message that
// holds [answer:X], "Add 2 and 3" or "6 times 7" is answered with "The answer is
// X." at the end. Zero fields have the documented defaults.
type Script struct {
	// Calls is the number of model calls of a send; 1 to 4 if zero. All but the
	// last call a tool.
	Calls Range
	// Tokens is the number of sampled tokens of the last call, without its answer;
	// 24 to 400 if zero. Some 7,000 make an answer of one megabyte.
	Tokens Range
	// ThinkTokens is the number of sampled tokens before a tool call; 8 to 80 if
	// zero.
	ThinkTokens Range
	// Drift is the share of tool calls before which the model's text is gone from
	// the next prompt, as the real server does by default; such a prompt does not
	// continue the tokens before it. Agents whose llm_config.enable_reasoner is
	// true have no drift.
	Drift float64
	// Wrong is the share of sends whose answer is not what the message asks for.
	Wrong float64
	// Length is the share of sends that end with max_tokens_exceeded.
	Length float64
}

func (c Config) withDefaults() Config {
	if c.Version == "" {
		c.Version = "0.16.7"
	}
	if c.Model == "" {
		c.Model = "sglang//models/qwen3"
	}
	if c.ContextWindow == 0 {
		c.ContextWindow = 32000
	}
	if c.KeptTraces == 0 {
		c.KeptTraces = 256
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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

// Validate returns every complaint at once.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("lettasim: "+format, args...))
		}
	}
	for name, r := range map[string]Range{"calls": c.Script.Calls, "tokens": c.Script.Tokens, "think_tokens": c.Script.ThinkTokens} {
		check(r == Range{} || r.Min >= 0 && r.Min <= r.Max, "script.%s: %d..%d: must be min ≤ max, not negative", name, r.Min, r.Max)
	}
	check(c.Script.Calls == Range{} || c.Script.Calls.Min >= 1, "script.calls: %d..%d: a send makes at least one call", c.Script.Calls.Min, c.Script.Calls.Max)
	check(c.Script.Drift >= 0 && c.Script.Drift <= 1, "script.drift: %g: must be a share from 0 to 1", c.Script.Drift)
	check(c.Script.Wrong >= 0 && c.Script.Wrong <= 1, "script.wrong: %g: must be a share from 0 to 1", c.Script.Wrong)
	check(c.Script.Length >= 0 && c.Script.Length <= 1, "script.length: %g: must be a share from 0 to 1", c.Script.Length)
	check(c.BodyCache >= 0, "body_cache: %d: must be ≥ 0", c.BodyCache)
	check(c.Capacity >= 0, "capacity: %d: must be ≥ 0", c.Capacity)
	check(c.BodyRate >= 0, "body_rate: %d: must be ≥ 0", c.BodyRate)
	check(c.ContextWindow >= 0, "context_window: %d: must be ≥ 0", c.ContextWindow)
	if c.Engine != "" {
		errs = append(errs, checkEngine(c.Engine))
		check(c.InputIDs, "engine: the prompts of its calls are known from input_ids alone: set InputIDs (--input-ids)")
		check(!c.Weights.changing(), "engine: it has weights of its own: set no Weights")
		check(c.BodyCache == 0, "engine: body_cache keeps made-up answers: set one of the two")
		for _, f := range c.Faults {
			check(!f.Kind.ofData(), "engine: fault %s changes made-up answers; an engine's are given as they are", f.Kind)
		}
	}
	errs = append(errs, c.Weights.validate())
	seen := map[string]bool{}
	for _, cs := range c.Cases {
		check(!seen[cs.Name], "case %s: given twice", cs.Name)
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
