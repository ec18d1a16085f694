package collector

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize"
)

// The sentinels say what a failure means to the run. Backends and sinks wrap them (fmt.Errorf
// with %w, or an Unwrap method). Only Classify reads them. An error that wraps none of them is
// ClassInternal.
//
// An error that knows how long the server asked to wait returns it from a method
//
//	RetryDelay() time.Duration // 0: the server named no delay
//
// anywhere in its chain. The delay counts for the retry of that attempt only.
//
// "Data retry" means another attempt out of Config.DataRetries, which is 0 by default; then
// the sample fails.
var (
	// ErrBusy: the server lives and asks to come back later (429, lock conflicts). Retried on
	// a new agent; up to Config.BusyMax that costs none of the retries.
	ErrBusy = errors.New("collector: server busy")
	// ErrUnavailable: the server, its database or its engine does not serve (503,
	// 502, an engine that is down). Retried on a new agent. Run returns it as well
	// when no endpoint makes any progress.
	ErrUnavailable = errors.New("collector: server unavailable")
	// ErrConnection: the connection was refused, reset, or ended before the whole
	// answer was there. Retried on a new agent.
	ErrConnection = errors.New("collector: connection failed")
	// ErrIdle: no byte came for longer than allowed. Retried on a new agent.
	ErrIdle = errors.New("collector: nothing received in time")
	// ErrTimeout: the attempt, or one request of it, took longer than allowed in
	// all. Retried on a new agent.
	ErrTimeout = errors.New("collector: took too long")
	// ErrServer: the server failed and gave no better reason (a 500 whose server
	// run explains nothing). Retried on a new agent.
	ErrServer = errors.New("collector: server error")

	// ErrAborted: the engine gave a call of the model up in the middle, for example to update
	// its weights, and the server went on with what there was. Retried on a new agent.
	ErrAborted = errors.New("collector: the engine aborted a call")

	// ErrRejected: the server understood the request and refuses it (4xx). The
	// sample fails; another attempt would be refused as well.
	ErrRejected = errors.New("collector: request rejected")
	// ErrMalformedCall: the model wrote a tool call that the server cannot read, so the
	// server gave up the rollout. Data retry.
	ErrMalformedCall = errors.New("collector: malformed tool call")
	// ErrContextOverflow: the conversation outgrew the context window. Data retry.
	ErrContextOverflow = errors.New("collector: context window exceeded")
	// ErrAgent: the server answered and says that the rollout went wrong (stop reason error,
	// cancelled, …). Data retry.
	ErrAgent = errors.New("collector: agent ended with an error")
	// ErrTool: a tool on our side of the wire failed. Data retry.
	ErrTool = errors.New("collector: client tool failed")
	// ErrNoTurns: the answer holds no token data. The sample fails.
	ErrNoTurns = errors.New("collector: reply without turns")

	// ErrGone: nothing of an attempt of an earlier process can be taken over, or less than a
	// new attempt would give. Another attempt is made, at no cost.
	ErrGone = errors.New("collector: nothing left to take over")

	// ErrCensored: the tail policy cut the rollout off, or the deadline of its task. The
	// sample counts as skipped, and a failure row keeps what is left of its tokens.
	ErrCensored = errors.New("collector: cut by the tail policy")

	// ErrNoAnswer: the task has nothing to score its samples by. A Scorer returns it; the
	// samples have no reward, and nothing has failed.
	ErrNoAnswer = errors.New("collector: nothing to score by")

	// ErrAuth: the server refuses our credentials. Ends the run.
	ErrAuth = errors.New("collector: not authorized")
	// ErrUnusable: server, model or agent cannot give what the run needs, whatever is sent:
	// an unknown model, an agent that will never give turns. Ends the run.
	ErrUnusable = errors.New("collector: server or model not usable")
	// ErrStorage: the sink or the journal failed. Ends the run.
	ErrStorage = errors.New("collector: storage failed")
	// ErrTolerance: more samples failed, or could not be scored, than the configuration
	// allows. Ends the run.
	ErrTolerance = errors.New("collector: more failures than allowed")
)

// An AttemptError is the failure of an attempt: which attempt it was, and in which stage.
type AttemptError struct {
	Task    string // task id
	Index   int    // sample index
	Attempt int    // from 1
	Stage   Stage
	Err     error
}

func (e *AttemptError) Error() string {
	return fmt.Sprintf("task %s sample %d attempt %d: %s: %v", e.Task, e.Index, e.Attempt, e.Stage, e.Err)
}

func (e *AttemptError) Unwrap() error { return e.Err }

// Class returns the class of the failure.
func (e *AttemptError) Class() Class { return Classify(e) }

// errOutOfTime ends an attempt that used up its own time.
var errOutOfTime = fmt.Errorf("%w: attempt not done in time", ErrTimeout)

// outOfTime reports whether the rollout used up the attempt's own time, so that no request of
// it failed.
func outOfTime(err error) bool {
	return errors.Is(err, errOutOfTime) && stageOf(err) != StageOpen
}

// stageOf returns the stage in which an attempt failed.
func stageOf(err error) Stage {
	if e, ok := errors.AsType[*AttemptError](err); ok {
		return e.Stage
	}
	return StageRun
}

// A Stage is a step of an attempt. Its name is the stage column of failures/.
type Stage uint8

// The stages, in the order in which an attempt goes through them.
const (
	StageWait   Stage = iota // waits before an attempt
	StageOpen                // makes the agent
	StageRun                 // sends, and waits for the model
	StagePrompt              // finds the prompts
	StageAlign               // builds and checks the rows
	StageScore               // rewards
	StageAppend              // waits for the sink
	StageClose               // removes the agent
)

var stageNames = [...]string{"wait", "open", "run", "prompt", "align", "score", "append", "close"}

// Stages lists every stage.
func Stages() []Stage {
	all := make([]Stage, len(stageNames))
	for i := range all {
		all[i] = Stage(i)
	}
	return all
}

func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return fmt.Sprintf("stage(%d)", uint8(s))
}

// ReasonOf returns why the tokens of a sample that failed with err cannot be trusted;
// tokenize.ReasonNone if it failed for another reason.
func ReasonOf(err error) tokenize.Reason {
	if a, ok := errors.AsType[*tokenize.AlignError](err); ok {
		return a.Reason
	}
	if errors.Is(err, ErrNoTurns) {
		return tokenize.ReasonNoTurns
	}
	return tokenize.ReasonNone
}

// maxErrorText bounds Failure.Error: enough for a person, small beside a row.
const maxErrorText = 400

// line returns the error as one short line.
func line(err error) string {
	if e, ok := errors.AsType[*AttemptError](err); ok { // task and attempt have columns of their own
		err = e.Err
	}
	return shortened(err.Error())
}

// shortened returns the text as one short line.
func shortened(text string) string {
	s := strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD")
	if len(s) <= maxErrorText {
		return s
	}
	cut := maxErrorText - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Redacted returns the text of an error for places where nothing that a server, a model
// or a person wrote may appear, such as a log that is kept. It is empty where no text is
// known to be safe. Redacted does not look for secrets.
//
// An error that has such a text returns it from a method
//
//	Redacted() string // one line
//
// The first such error in the chain counts. Of the others, Redacted shows only the
// classes connection, timeout_total, timeout_idle, cancelled and storage: these come
// without an answer, so they quote none.
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

// A safeError is an error whose whole text may be shown.
type safeError struct{ error }

func (e safeError) Redacted() string { return e.Error() }

func (e safeError) Unwrap() error { return e.error }
