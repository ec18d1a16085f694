package collector

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/enum"
)

// The sentinels define what a failure means to the run. Backends and sinks wrap them (fmt.Errorf
// with %w, or an Unwrap method). Classify maps each sentinel to a class.
//
// If the server requested a delay before the retry, an error in the chain returns that delay from a
// method
//
//	RetryDelay() time.Duration // 0: the server requested no delay
//
// After the errors from ErrBusy to ErrAborted, the sample is retried on a new agent. "Data retry"
// means another attempt charged to Config.DataRetries. If no data retry is left, the sample fails.
var (
	// ErrBusy: the server asks the client to come back later (429, lock conflicts). Retries are
	// free until Config.BusyMax.
	ErrBusy = errors.New("collector: server busy")
	// ErrUnavailable: the server, its database or its engine is not available (503, 502, an engine
	// that is down). Run also returns ErrUnavailable if no endpoint answers.
	ErrUnavailable = errors.New("collector: server unavailable")
	// ErrConnection: the connection was refused or reset, or it ended before the whole answer had
	// arrived.
	ErrConnection = errors.New("collector: connection failed")
	// ErrIdle: no byte arrived within the time limit.
	ErrIdle = errors.New("collector: idle timeout")
	// ErrTimeout: the attempt, or one of its requests, exceeded its total time limit.
	ErrTimeout = errors.New("collector: timeout")
	// ErrOutOfTime: the rollout exceeded its own time limit. This proves nothing about the server. The
	// error wraps ErrTimeout.
	ErrOutOfTime = fmt.Errorf("%w: the attempt exceeded its time limit", ErrTimeout)
	// ErrServer: the server failed for an unknown reason (a 500 that the server run does not
	// explain).
	ErrServer = errors.New("collector: server error")

	// ErrAborted: the engine aborted a model call, for example to update its weights, and the
	// server continued with the partial output.
	ErrAborted = errors.New("collector: engine aborted a call")

	// ErrRejected: the server understood the request and rejected it (4xx). The sample fails.
	ErrRejected = errors.New("collector: request rejected")
	// ErrMalformedCall: the model wrote a tool call that the server cannot parse. Data retry.
	ErrMalformedCall = errors.New("collector: malformed tool call")
	// ErrContextOverflow: the conversation exceeded the context window. Data retry.
	ErrContextOverflow = errors.New("collector: context window exceeded")
	// ErrAgent: the stop reason of an answer is a failure (error, cancelled, …). Data retry.
	ErrAgent = errors.New("collector: agent ended with an error")
	// ErrTool: a client-side tool failed. Data retry.
	ErrTool = errors.New("collector: client tool failed")
	// ErrNoCalls: the agent ended without an answered call to the model, although no call failed. The
	// sample is retried, but if the first samples all fail like this, the run ends.
	ErrNoCalls = errors.New("collector: the agent made no call to the model")
	// ErrEmptyAnswer: the agent ended without a final answer. Data retry.
	ErrEmptyAnswer = errors.New("collector: the agent's final answer is empty")
	// ErrForeign: no conversation of the agent contains the task's message. The sample fails.
	ErrForeign = errors.New("collector: no conversation of the agent contains the task")
	// ErrNoTurns: the answer has no token data. The sample fails.
	ErrNoTurns = errors.New("collector: reply without turns")

	// ErrGone: an attempt of an earlier process cannot be taken over, or would yield less data than
	// a new attempt. The sample gets another attempt at no cost.
	ErrGone = errors.New("collector: open attempt cannot be resumed")

	// ErrCensored: the tail policy or the task's deadline cut the rollout off. The sample counts as
	// skipped, and its remaining tokens are stored in a failure row.
	ErrCensored = errors.New("collector: cut by the tail policy")

	// ErrMoved: another process has the sample. Config.Admit and Sink.Append return this error. The run
	// no longer counts the sample, and its agent is removed.
	ErrMoved = errors.New("collector: another process has the sample")

	// ErrNoAnswer: the task has no reference answer. A Scorer returns this error. It does not count
	// as a failure of the Scorer.
	ErrNoAnswer = errors.New("collector: no reference answer")

	// ErrAuth: the server rejected the credentials. The run ends.
	ErrAuth = errors.New("collector: not authorized")
	// ErrUnusable: the server, model or agent cannot work for any request (an unknown model, an
	// agent that never returns turns). The run ends.
	ErrUnusable = errors.New("collector: server or model unusable")
	// ErrStorage: the sink or the journal failed. The run ends.
	ErrStorage = errors.New("collector: storage failed")
	// ErrTolerance: more samples failed or could not be scored than the Config allows. The run
	// ends.
	ErrTolerance = errors.New("collector: too many failures")
)

// An AttemptError is the error of a failed attempt. It identifies the attempt and its stage.
type AttemptError struct {
	Task    string // task id
	Index   int    // sample index
	Attempt int    // from 1
	Stage   Stage
	Err     error
}

func (e *AttemptError) Error() string {
	return fmt.Sprintf("task %s, sample %d, attempt %d: %s: %v", e.Task, e.Index, e.Attempt, e.Stage, e.Err)
}

func (e *AttemptError) Unwrap() error { return e.Err }

// outOfTime reports whether the rollout ended because it used up its time limit, and not because a
// request failed.
func outOfTime(err error) bool {
	return errors.Is(err, ErrOutOfTime) && stageOf(err) != StageOpen
}

func stageOf(err error) Stage {
	if e, ok := errors.AsType[*AttemptError](err); ok {
		return e.Stage
	}
	return StageRun
}

// A Stage is a step of an attempt. Its name is the value of the stage column in failures/.
type Stage uint8

// The stages, in order.
const (
	StageWait   Stage = iota // waits before an attempt
	StageOpen                // makes the agent
	StageRun                 // sends, and waits for the model
	StagePrompt              // fetches the prompts
	StageAlign               // builds and checks the rows
	StageScore               // scores the rollout
	StageAppend              // waits for the sink
	StageClose               // removes the agent
)

var stages = enum.List[Stage]{Noun: "stage", Words: []string{"wait", "open", "run", "prompt", "align", "score", "append", "close"}}

// Stages lists every stage.
func Stages() []Stage {
	all := make([]Stage, len(stages.Words))
	for i := range all {
		all[i] = Stage(i)
	}
	return all
}

func (s Stage) String() string { return stages.String(s) }

// ReasonOf returns the reason why the tokens of a sample that failed with err cannot be trusted. It
// returns ReasonNone if err has no such reason.
func ReasonOf(err error) tokenize.Reason {
	if a, ok := errors.AsType[*tokenize.AlignError](err); ok {
		return a.Reason
	}
	if errors.Is(err, ErrNoTurns) {
		return tokenize.ReasonNoTurns
	}
	return tokenize.ReasonNone
}

// maxErrorText bounds the size of Failure.Error in bytes, so that it stays small compared with a
// row.
const maxErrorText = 400

func line(err error) string {
	if e, ok := errors.AsType[*AttemptError](err); ok { // the task and the attempt are in separate columns
		err = e.Err
	}
	return shortened(err.Error())
}

// shortened returns the text as one short line of valid UTF-8.
func shortened(text string) string {
	s := strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD")
	if len(s) <= maxErrorText {
		return s
	}
	return cutText(s, maxErrorText-len("…")) + "…"
}

// Redacted returns the text of an error for places, such as a log, that must not contain text from
// a server, a model or a user. It returns "" if no text is known to be safe. It does not search for
// secrets.
//
// The first error in the chain with a method
//
//	Redacted() string // one line
//
// determines the text. The text of any other error is returned only if its class is connection,
// timeout_total, timeout_idle, cancelled or storage. Errors of these classes occur without an
// answer, so their text cannot quote an answer.
func Redacted(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[interface {
		error
		Redacted() string
	}](err); ok {
		return shortened(e.Redacted())
	}
	switch Classify(err) {
	case ClassConnection, ClassTimeoutTotal, ClassTimeoutIdle, ClassCancelled, ClassStorage:
		return line(err)
	default:
		return ""
	}
}

// A safeError is an error whose whole text is safe to show.
type safeError struct{ error }

func (e safeError) Redacted() string { return e.Error() }

func (e safeError) Unwrap() error { return e.error }
