package lettasim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/spelling"
)

// A FaultKind is the name of a kind of fault.
type FaultKind string

// The faults of the transport and the service. They are recoverable: by default they hit only the
// first attempt.
const (
	// EngineDown answers with 500. The run fails, and its metadata.error and the step's error_data
	// contain the reason.
	EngineDown FaultKind = "engine-down"
	// DatabaseFull answers with the same 500, but the server creates no run.
	DatabaseFull FaultKind = "database-full"
	// Unavailable answers with 503.
	Unavailable FaultKind = "unavailable"
	// TooMany answers with 429 and a Retry-After header.
	TooMany FaultKind = "too-many"
	// Conflict answers with 409, as the server does after a concurrent update of the database.
	Conflict FaultKind = "conflict"
	// Reset resets the connection before the response begins. The run completes.
	Reset FaultKind = "reset"
	// Lost closes the connection before the send is accepted. The server creates no run.
	Lost FaultKind = "lost"
	// Drop closes the connection in the middle of the body. The run completes.
	Drop FaultKind = "drop"
	// Truncated sends only the first half of the body, with a matching Content-Length.
	Truncated FaultKind = "truncated"
	// Stalled stops writing in the middle of the body and waits until the client disconnects.
	Stalled FaultKind = "stalled"
	// Slow writes the body at a rate of Fault.Bytes per second.
	Slow FaultKind = "slow"
	// CreateFails answers the request that creates the agent with 500.
	CreateFails FaultKind = "create-fails"
	// DeleteFails answers the first request to delete the agent with 500. The agent is not deleted.
	DeleteFails FaultKind = "delete-fails"
	// Abort ends the last call in a send early, as an engine does during a weight update. The
	// answer has the stop reason end_turn. Only the trace shows the finish reason abort. Abort
	// requires a scripted agent.
	Abort FaultKind = "abort"
	// AbortEarly is like Abort, but ends the call before its first token. The answer has no turn
	// and no message for this call.
	AbortEarly FaultKind = "abort-early"
)

// The data faults. They are final: they hit every attempt at the sample. NoTurns and the faults
// below it require a scripted agent.
const (
	// PlainAgent creates the agent without the flags for token data, so the answers to its sends
	// have no turns.
	PlainAgent FaultKind = "plain-agent"
	// Huge pads the body to Fault.Bytes. Default 200 MiB.
	Huge FaultKind = "huge"
	// NullCall answers with 400, as the server does after a tool call with null arguments. The
	// answer has no turns, and the run fails.
	NullCall FaultKind = "null-call"
	// NoTurns answers with 200, but turns is null.
	NoTurns FaultKind = "no-turns"
	// LengthCall ends the first call in a send at the engine's token limit, right after a tool
	// call. The tool call hides the limit, and only the trace shows the finish reason length.
	LengthCall FaultKind = "length-call"
	// EmptyTurn omits one assistant turn. The steps and usage still count its tokens.
	EmptyTurn FaultKind = "empty-turn"
	// MissingTool omits one tool turn.
	MissingTool FaultKind = "missing-tool"
	// NullLogprobs replaces the list of log-probabilities in one turn with null.
	NullLogprobs FaultKind = "null-logprobs"
	// NaNLogprob replaces one log-probability with null. The step has no trace.
	NaNLogprob FaultKind = "nan-logprob"
	// ShortLogprobs omits the last log-probability in one turn.
	ShortLogprobs FaultKind = "short-logprobs"
	// SurplusLogprobs adds log-probabilities to one turn, so that it has more log-probabilities
	// than sampled ids.
	SurplusLogprobs FaultKind = "surplus-logprobs"
	// IDMismatch changes the id that belongs to one log-probability, so that it differs from the
	// sampled id.
	IDMismatch FaultKind = "id-mismatch"
	// WideID changes one sampled id to a number that does not fit in 32 bits.
	WideID FaultKind = "wide-id"
	// StopError, StopCancelled and StopUnknown end a send with status 200. Their stop reasons are
	// error, cancelled, and a reason that no server uses. The answer contains the turns so far.
	StopError     FaultKind = "stop-error"
	StopCancelled FaultKind = "stop-cancelled"
	StopUnknown   FaultKind = "stop-unknown"
)

// faultKinds contains every kind. By default, recoverable faults do not hit later attempts.
// Connection faults change how an answer is written, but not its contents. Data faults change the
// answer of a scripted agent. Agent faults do not hit sends.
var faultKinds = map[FaultKind]struct{ recoverable, ofConnection, ofData, ofAgent bool }{
	EngineDown: {recoverable: true}, DatabaseFull: {recoverable: true}, Unavailable: {recoverable: true}, TooMany: {recoverable: true},
	Conflict: {recoverable: true}, Lost: {recoverable: true}, CreateFails: {recoverable: true, ofAgent: true}, DeleteFails: {recoverable: true, ofAgent: true},
	Reset: {recoverable: true, ofConnection: true}, Drop: {recoverable: true, ofConnection: true}, Truncated: {recoverable: true, ofConnection: true},
	Stalled: {recoverable: true, ofConnection: true}, Slow: {recoverable: true, ofConnection: true}, Huge: {ofConnection: true},
	Abort: {recoverable: true, ofData: true}, AbortEarly: {recoverable: true, ofData: true}, PlainAgent: {ofAgent: true}, NullCall: {},
	LengthCall: {ofData: true}, NoTurns: {ofData: true}, EmptyTurn: {ofData: true}, MissingTool: {ofData: true}, NullLogprobs: {ofData: true},
	NaNLogprob: {ofData: true}, ShortLogprobs: {ofData: true}, SurplusLogprobs: {ofData: true}, IDMismatch: {ofData: true}, WideID: {ofData: true},
	StopError: {ofData: true}, StopCancelled: {ofData: true}, StopUnknown: {ofData: true},
}

// ofSend reports whether the fault applies to sends to a scripted agent or, if scripted is false,
// to a replayed agent.
func (k FaultKind) ofSend(scripted bool) bool {
	kind := faultKinds[k]
	return !kind.ofAgent && (scripted || !kind.ofData)
}

// FaultKinds returns all kinds, sorted.
func FaultKinds() []FaultKind { return slices.Sorted(maps.Keys(faultKinds)) }

// Recoverable reports whether the fault, by default, does not hit later attempts.
func (k FaultKind) Recoverable() bool { return faultKinds[k].recoverable }

// A Fault hits the attempts that Aim selects. If Aim is empty, the fault hits a random share of the
// samples, which the seed determines.
type Fault struct {
	Kind FaultKind
	// Rate is the share of samples, from 0 to 1. A recoverable fault is drawn separately for each
	// attempt up to Attempts. A final fault is drawn once for each sample.
	Rate float64
	// Aim, if not empty, replaces Rate.
	Aim []Aim
	// Attempts is the number of the last attempt that the fault can hit. 0 means 1 for a
	// recoverable fault and no limit for a final fault.
	Attempts int
	// Send is the index of the send to hit, from 0. -1 means every send. Faults that do not hit
	// sends ignore this field.
	Send int
	// After is the value of Retry-After. Default 1 s for TooMany; otherwise the header is omitted.
	After time.Duration
	// Bytes is the length of the body for Huge, and the number of bytes per second for Slow.
	// Default 200 MiB for Huge and 64 KiB for Slow.
	Bytes int64
}

// An Aim selects attempts. An empty Task means every task, and a negative Sample means every
// sample. Attempt 0 means every attempt up to Fault.Attempts.
type Aim struct {
	Task    string
	Sample  int
	Attempt int
}

// Faults is a list of faults. If several faults hit the same request, the first one applies.
type Faults []Fault

// ParseFault parses KIND=RATE, KIND@TASK, KIND@TASK/SAMPLE or KIND@TASK/SAMPLE/ATTEMPT. Only
// KIND=RATE can have options, for example too-many=0.2:after=89s,attempts=3,send=-1,bytes=100.
func ParseFault(s string) (Fault, error) {
	if kind, rate, ok := strings.Cut(s, "="); ok && !strings.Contains(kind, "@") {
		rate, options, _ := strings.Cut(rate, ":")
		r, err := strconv.ParseFloat(rate, 64)
		if err != nil {
			return Fault{}, fmt.Errorf("lettasim: fault %q: rate %q: want a number between 0 and 1", s, rate)
		}
		f := Fault{Kind: FaultKind(kind), Rate: r}
		if err := f.parseOptions(options); err != nil {
			return Fault{}, fmt.Errorf("lettasim: fault %q: %w", s, err)
		}
		return f, f.validate()
	}
	kind, aim, ok := strings.Cut(s, "@")
	if !ok {
		return Fault{}, fmt.Errorf("lettasim: fault %q: want KIND=RATE or KIND@TASK/SAMPLE/ATTEMPT", s)
	}
	a := Aim{Sample: -1}
	parts := strings.Split(aim, "/")
	if len(parts) > 3 {
		return Fault{}, fmt.Errorf("lettasim: fault %q: want KIND@TASK/SAMPLE/ATTEMPT", s)
	}
	a.Task = parts[0]
	for i, into := range []*int{&a.Sample, &a.Attempt} {
		if len(parts) > i+1 {
			n, err := strconv.Atoi(parts[i+1])
			if err != nil {
				return Fault{}, fmt.Errorf("lettasim: fault %q: %q is not a number", s, parts[i+1])
			}
			*into = n
		}
	}
	f := Fault{Kind: FaultKind(kind), Aim: []Aim{a}}
	return f, f.validate()
}

func (f *Fault) parseOptions(text string) (err error) {
	for option := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "":
		case "after":
			f.After, err = time.ParseDuration(value)
		case "attempts":
			f.Attempts, err = strconv.Atoi(value)
		case "send":
			f.Send, err = strconv.Atoi(value)
		case "bytes":
			f.Bytes, err = strconv.ParseInt(value, 10, 64)
		default:
			return fmt.Errorf("unknown option %q (want after, attempts, send or bytes)", name)
		}
		if err != nil {
			return fmt.Errorf("option %s: invalid value %q", name, value)
		}
	}
	return nil
}

func (f Fault) validate() error {
	if _, ok := faultKinds[f.Kind]; !ok {
		best, near := 3, ""
		var kinds []string
		for _, k := range FaultKinds() {
			kinds = append(kinds, string(k))
			if d := spelling.Distance(string(f.Kind), string(k)); d < best {
				best, near = d, "; did you mean "+string(k)+"?"
			}
		}
		if near == "" {
			near = "; want one of " + strings.Join(kinds, ", ")
		}
		return fmt.Errorf("lettasim: unknown fault kind %q%s", f.Kind, near)
	}
	if !(f.Rate >= 0 && f.Rate <= 1) {
		return fmt.Errorf("lettasim: fault %s: rate %g: must be between 0 and 1", f.Kind, f.Rate)
	}
	return nil
}

func (f *Fault) hits(seed uint64, w who) bool {
	last := f.Attempts
	if last == 0 && f.Kind.Recoverable() {
		last = 1
	}
	if len(f.Aim) > 0 {
		for _, a := range f.Aim {
			exact := a.Attempt > 0 && a.Attempt == w.attempt
			within := a.Attempt == 0 && (last == 0 || w.attempt <= last)
			if (a.Task == "" || a.Task == w.task) && (a.Sample < 0 || a.Sample == w.sample) && (exact || within) {
				return true
			}
		}
		return false
	}
	if f.Rate == 0 || last > 0 && w.attempt > last {
		return false
	}
	words := []string{"fault", string(f.Kind), w.task, strconv.Itoa(w.sample)}
	if f.Kind.Recoverable() {
		words = append(words, strconv.Itoa(w.attempt))
	}
	return draw(seed, words...).float() < f.Rate
}

// find returns the first fault that hits the attempt and whose kind is one of kinds, or nil. If
// send is negative, find ignores Fault.Send.
func (fs Faults) find(seed uint64, w who, send int, kinds func(FaultKind) bool) *Fault {
	for i := range fs {
		f := &fs[i]
		if kinds(f.Kind) && (send < 0 || f.Send < 0 || f.Send == send) && f.hits(seed, w) {
			return f
		}
	}
	return nil
}

// A who identifies the attempt that the agent's metadata names.
type who struct {
	task            string
	sample, attempt int
}
