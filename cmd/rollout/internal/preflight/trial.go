package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// The time limits of a trial. A model call takes seconds, or minutes if a thinking model runs on a
// slow engine. A call that exceeds the timeout proves nothing, so the run starts without a proof.
const (
	trialTimeout = 2 * time.Minute
	trialQuiet   = 3 * time.Second // after this time, a note names the server that has not yet answered
)

// A Trial checks whether a run would produce rows, before anything is written. Each server makes
// one real model call with the first message of the run's first task. The trial judges the reply as
// if it were the reply for a sample. A trial can fail for an unrelated reason, such as a busy
// server, a bad task or a timeout. Such a failure proves nothing and does not stop the run.
type Trial struct {
	config  *config.Config
	prompts prompt.Config
	judge   collector.Config
	find    agent.Prompter // finds the prompts of a reply before it is judged
	task    *collector.Task
	note    func(format string, args ...any) // prints a note to the user

	timeout, quiet time.Duration
}

// NewTrial returns the trial for a run. The trial rebuilds prompts and judges replies as the run
// would. The function note prints a note to the user.
func NewTrial(c *config.Config, prompts prompt.Config, judge collector.Config, task *collector.Task, note func(format string, args ...any)) (*Trial, error) {
	find, err := prompt.New(prompts) // a separate prompter, so that the trial does not count in the statistics of the run
	if err != nil {
		return nil, err
	}
	return &Trial{config: c, prompts: prompts, judge: judge, find: find, task: task, note: note, timeout: trialTimeout, quiet: trialQuiet}, nil
}

// Servers runs the trial on every server that has not yet passed a trial in this run. The parameter
// infos contains the results of Ask. The map proven contains, by URL, the versions of the servers
// that have passed. Servers returns the URLs of the servers that answered the call.
func (t *Trial) Servers(ctx context.Context, servers []Server, infos []runfolder.Server, proven map[string]string) (answered []string, err error) {
	// The first interrupt cancels the call and deletes its agent. The second interrupt ends the
	// process.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	var all sync.WaitGroup
	refused := make([]error, len(servers))
	replied := make([]bool, len(servers))
	for i, s := range servers {
		if proven[s.URL] == infos[i].Version {
			continue
		}
		all.Go(func() { replied[i], refused[i] = t.server(ctx, s, infos[i].Version) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, exit.With(exit.Interrupted, errors.New("interrupted before the run started"))
	}
	for i, err := range refused {
		if err != nil {
			return nil, err // return only one error, because servers usually fail for the same reason
		}
		if replied[i] {
			answered = append(answered, servers[i].URL)
		}
	}
	return answered, nil
}

// server runs the trial on one server. It makes a second call if the time in the prompt is
// ambiguous although the server's time zone is known. The error explains why the run would have no
// rows.
func (t *Trial) server(ctx context.Context, s Server, version string) (answered bool, err error) {
	defer time.AfterFunc(t.quiet, func() {
		t.note("waiting for %s to answer one model call (at most %s; --preflight connect skips this call)", s.URL, t.timeout)
	}).Stop()
	within, cancel := context.WithTimeoutCause(ctx, t.timeout, fmt.Errorf("%w: no answer within %v", collector.ErrTimeout, t.timeout))
	defer cancel()
	try, judged, calls := 0, false, 1
	call := func() error {
		judged = false
		return tryAgain(within, func() error {
			try++
			return s.Try(within, t.task, try, func(ctx context.Context, reply *collector.Reply, e *record.Rollout) error {
				err := t.look(ctx, reply, e)
				judged = err == nil || collector.ReasonOf(err) != tokenize.ReasonNone
				return err
			})
		}, func(err error, wait time.Duration) {
			t.note("%s: a model call failed, retrying in %v: %v", s.URL, wait, err)
		})
	}
	if err = call(); t.config.Server.Timezone != nil && collector.ReasonOf(err) == tokenize.ReasonClock {
		calls++ // midnight might have passed during the first call
		err = call()
	}
	switch {
	case err == nil, ctx.Err() != nil:
		return err == nil, nil
	case judged:
		if refusal := t.refusal(s.URL, version, calls, err); refusal != nil {
			return true, refusal
		}
	case collector.Classify(err).Fatal():
		return false, Unusable(s.URL, err)
	}
	t.note("%s: could not check whether the server's calls are usable for training, so the run starts without this check: %v", s.URL, err)
	return judged, nil
}

// look judges the reply as if it were the reply for a sample. It returns an error if the reply
// cannot become data. If a rebuilt prompt has the wrong length and the cause is known, the error is
// a *promptError.
func (t *Trial) look(ctx context.Context, reply *collector.Reply, e *record.Rollout) error {
	// The trial makes only one call and does not answer approval requests. An unanswered approval
	// request therefore does not count as an error.
	if n := len(reply.Sends); n > 0 && letta.StopReason(reply.Sends[n-1].StopReason) == letta.StopRequiresApproval {
		reply.Sends[n-1].StopReason = string(letta.StopMaxSteps)
	}
	err := collector.CheckReply(ctx, t.judge, t.task, reply, func(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
		calls, err := t.find.Prompts(ctx, r, e)
		if err == nil {
			t.lookTapped(calls)
			readTraces(ctx, e, calls)
		}
		return calls, err
	})
	reason, m := collector.ReasonOf(err), t.prompts.Model
	if reason != tokenize.ReasonCountMismatch && reason != tokenize.ReasonNoPrompt || m == nil {
		return err
	}
	if releases, no := prompt.ExamineReleases(ctx, m, reply, e); no == nil {
		if theirs, ok := releases.Other(m.Transformers); ok {
			return &promptError{
				text:   fmt.Sprintf("the server renders prompts like transformers %s, but tokens.transformers is %s", theirs, m.Transformers),
				remedy: "use --transformers " + theirs.String(), err: err,
			}
		}
	}
	if reason == tokenize.ReasonNoPrompt {
		return err
	}
	if examined, no := prompt.Examine(ctx, m, reply, e); no == nil {
		for i := range examined {
			if v := model.Diagnose(&examined[i], m.Tokenizer); v.Culprit != "" {
				return &promptError{text: "the length of a rebuilt prompt differs from the server's count; the likely cause is the " + v.Culprit, detail: v.Detail, err: err}
			}
		}
	}
	return err
}

// readTraces fetches the traces of the calls even if they are not needed for a proof. The traces
// show whether a tap with --continuity is in front of the engine.
func readTraces(ctx context.Context, e *record.Rollout, calls []tokenize.Call) {
	for i := range calls {
		if id := calls[i].StepID; id != "" && calls[i].Source != tokenize.SourceTap {
			_, _ = e.Trace(ctx, id) // an error is harmless, because the trace then shows nothing
		}
	}
}

// lookTapped prints a note if the tap did not see a call. The prompts can then come from another
// source, with a lower grade than the user expects.
func (t *Trial) lookTapped(calls []tokenize.Call) {
	if t.prompts.Tap == nil || t.config.Tokens.Prompts != config.PromptsAuto {
		return
	}
	for i := range calls {
		if c := &calls[i]; c.Source != tokenize.SourceTap && c.Source != tokenize.SourceTurns {
			t.note("the tap did not see the trial call (%s), so prompts might come from other sources: %s", c.Note, tapRemedy)
			return
		}
	}
}

// tapRemedy is the hint if a tap does not see the calls.
const tapRemedy = "check that the base URL of the server's provider points to the tap; for details, run rollout doctor with the same settings"

// A promptError reports why a rebuilt prompt differs from the server's prompt.
type promptError struct {
	text   string
	detail []string
	remedy string // hint; if empty, the hint comes from Remedy
	err    error
}

func (e *promptError) Error() string { return e.text }
func (e *promptError) Unwrap() error { return e.err }

// refusal returns the error for a server whose calls do not produce rows because of err. If another
// call could produce rows, refusal returns nil. The parameter calls is the number of trial calls
// made so far.
func (t *Trial) refusal(url, version string, calls int, err error) error {
	what := err.Error()
	switch reason := collector.ReasonOf(err); reason {
	case tokenize.ReasonNoPrompt:
		switch {
		case t.config.Tokens.Prompts == config.PromptsTurns:
			what = "--prompts turns needs input_ids, but the server sends none"
		case t.config.Tokens.Prompts == config.PromptsTap:
			what = "the tap did not see the call: " + err.Error()
		case t.config.Tokens.Tokenizer == "":
			what = "the server sends no input_ids, and prompts cannot be rebuilt without a tokenizer"
		}
		what = "the prompts are unknown: " + what
	case tokenize.ReasonToolOrder, tokenize.ReasonClock, tokenize.ReasonContinuity:
		what = "the prompts are unknown: " + what
	case tokenize.ReasonGrade:
		what = "tokens.require is " + string(t.config.Tokens.Require) + ": " + what
	case tokenize.ReasonCountMismatch, tokenize.ReasonVocab, tokenize.ReasonNoTurns:
	default:
		return nil
	}
	tried := "a trial call showed"
	if calls > 1 {
		tried = fmt.Sprint(calls, " trial calls showed")
	}
	bad := exit.Complaints{fmt.Errorf("server %s, version %s: %s that the run would have no rows: %s", url, cmp.Or(version, "-"), tried, what)}
	remedy := Remedy(t.config, collector.ReasonOf(err))
	if e, ok := errors.AsType[*promptError](err); ok {
		remedy = cmp.Or(e.remedy, remedy)
		for _, line := range e.detail {
			bad = append(bad, errors.New(line))
		}
	}
	return exit.Hint(exit.With(exit.Unusable, bad), remedy)
}

// Remedy returns a hint about the setting to add or remove if samples fail for the given reason. It
// returns "" if no setting helps.
func Remedy(c *config.Config, reason tokenize.Reason) string {
	const addTokenizer = "pass the folder of the model's tokenizer and chat template with --tokenizer, or use a server that sends input_ids"
	switch reason {
	case tokenize.ReasonNoPrompt:
		switch {
		case len(c.Tokens.Tap) > 0:
			return tapRemedy
		case c.Tokens.Prompts == config.PromptsTurns:
			return "remove --prompts turns and " + addTokenizer
		case c.Tokens.Tokenizer == "":
			return addTokenizer
		case c.Tokens.Prompts != config.PromptsAuto:
			return "remove --prompts " + c.Tokens.Prompts.String() + " to try every source"
		}
		return "run rollout doctor with the same settings to see what the server stores for a call"
	case tokenize.ReasonCountMismatch, tokenize.ReasonVocab:
		return "pass the engine's tokenizer and chat template with --tokenizer; to check every call, run rollout doctor with the same settings"
	case tokenize.ReasonToolOrder:
		return prompt.ToolOrderHint
	case tokenize.ReasonClock:
		if c.Server.Timezone != nil {
			return "the template prints the time with more precision than the server's timestamps have: put rollout tap in front of the engine, or accept the rows as unverified with --require any"
		}
		return prompt.ClockHint
	case tokenize.ReasonContinuity:
		return prompt.ContinuityHint
	case tokenize.ReasonGrade:
		return "lower --require to accept rows with this grade"
	case tokenize.ReasonNoTurns:
		return "check that the model has an sglang provider and that no proxy truncates replies; for details, run rollout doctor with the same settings"
	default:
		return ""
	}
}
