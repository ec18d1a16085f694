package harness

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/tokenize"
)

// The stop reasons of a command: see collector.StatusOf.
const (
	stopEnd    = "end_turn"
	stopLength = "max_tokens_exceeded" // the last answer reached its length limit
	stopError  = "error"
)

// reply returns the reply of the command. The rollout can be nil.
func (g *agent) reply(rollout *session.Rollout) *collector.Reply {
	r := replyOf(g.record, rollout, g.end.Took, g.secrets)
	for _, c := range g.record.Calls {
		if c.Status > 0 && c.Status < 500 && c.Ended.After(r.LastAnswer) { // a refusal is an answer, too
			r.LastAnswer = c.Ended
		}
	}
	r.Output, r.ExitCode, r.Workdir = g.end.Answer, &g.end.Exit, g.work()
	if rollout != nil && g.cfg.Output.kind == outputSession {
		r.Output = rollout.Main.Text
	}
	return r
}

// replyOf returns the reply of a session. It has one send with one turn per call, in the order of
// rollout.Calls. The rollout can be nil.
func replyOf(record *session.Record, rollout *session.Rollout, took time.Duration, secrets *redactor) *collector.Reply {
	r := &collector.Reply{AgentID: record.ID, Model: record.Head.Model, Redact: secrets.text}
	if rollout == nil {
		return r
	}
	if rollout.Main.Model != "" {
		r.Model = secrets.text(rollout.Main.Model) // the harness chose it
	}
	r.Messages = rollout.Main.Messages
	send := collector.Send{StopReason: stopError, Duration: max(took, 1), Turns: []tokenize.Turn{}}
	switch {
	case rollout.Main.Finish == tokenize.FinishLength:
		send.StopReason = stopLength
	case rollout.Main.Call >= 0:
		send.StopReason = stopEnd
	}
	first := time.Time{}
	for i := range rollout.Calls {
		c, recorded := &rollout.Calls[i], callOf(record, rollout.Number[i])
		send.Turns = append(send.Turns, tokenize.Turn{
			Role: tokenize.RoleAssistant, PromptIDs: c.PromptIDs, OutputIDs: c.OutputIDs, Logprobs: c.Logprobs,
			IDMismatch: -1, Content: content(recorded.Answer),
		})
		send.Usage.PromptTokens += count(c, recorded.PromptTokens, c.PromptIDs)
		send.Usage.CompletionTokens += count(c, recorded.OutputTokens, c.OutputIDs)
		send.Usage.Steps++
		if first.IsZero() || recorded.Ended.Before(first) {
			first = recorded.Ended
		}
	}
	if d := first.Sub(record.Head.Began); !first.IsZero() && d > 0 {
		r.FirstAnswer = d
	}
	r.Sends = []collector.Send{send}
	return r
}

// count returns the number of tokens that the engine reported for a call. A quarantined call can have
// fewer ids, as its reason states. Then only the ids count, or the sums would not match.
func count(c *tokenize.Call, reported int32, ids []int32) int64 {
	if c.Grade == tokenize.Quarantined || reported < 0 {
		return int64(len(ids))
	}
	return int64(reported)
}

// callOf returns the recorded call with this number.
func callOf(record *session.Record, number int) *session.Call {
	byNumber := func(c session.Call, n int) int { return cmp.Compare(c.Number, n) }
	i, ok := slices.BinarySearchFunc(record.Calls, number, byNumber)
	if !ok {
		return &session.Call{}
	}
	return &record.Calls[i]
}

// content returns the text of a message: its content is a string or a list of parts.
func content(message json.RawMessage) string {
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(message, &m) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(m.Content, &parts) // on an error, the text is empty
	for _, p := range parts {
		text += p.Text
	}
	return text
}

// failure returns the reason why the attempt failed, or nil if it becomes data. The package comment
// lists the reasons in this order. The error err is the result of session.Build. The error down is
// the result of Config.Check, or nil.
func (g *agent) failure(rollout *session.Rollout, err, down error) error {
	end := g.end
	exit := fmt.Sprintf("exit code %d%s", end.Exit, end.LastLine)
	if end.Signal != "" {
		exit = "signal: " + end.Signal + end.LastLine
	}
	engine := g.engineFailure(rollout)
	switch {
	case end.TimedOut && down != nil:
		return fmt.Errorf("%w: the command did not end within %v: %w%s", collector.ErrUnavailable, g.cfg.Timeout, down, end.LastLine)
	case end.TimedOut:
		return fmt.Errorf("%w: the command did not end within %v%s", collector.ErrOutOfTime, g.cfg.Timeout, end.LastLine)
	case errors.Is(err, session.ErrNoCalls) && engine != nil:
		return engine
	case err != nil:
		return sessionError(err, exit)
	case end.Signal != "" || end.Exit < 0:
		return fmt.Errorf("%w: %s", collector.ErrAgent, exit)
	case rollout.Main.Finish == tokenize.FinishLength:
		return nil // truncated, but data
	case engine != nil && (end.Exit != 0 || !g.answered(rollout) || rollout.Tally.Trained == 0):
		return engine
	case end.NoAnswer != "":
		return fmt.Errorf("%w: output %s: %s; %s", collector.ErrEmptyAnswer, g.cfg.Output, end.NoAnswer, exit)
	case !g.answered(rollout):
		return fmt.Errorf("%w: output %s; %s", collector.ErrEmptyAnswer, g.cfg.Output, exit)
	}
	return nil
}

// sessionError classifies an error of session.Build.
func sessionError(err error, about string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, session.ErrNoCalls):
		return fmt.Errorf("%w: %s", collector.ErrNoCalls, about)
	case errors.Is(err, session.ErrForeign):
		return fmt.Errorf("%w: %w", collector.ErrForeign, err)
	}
	return fmt.Errorf("%w: %w", collector.ErrNoTurns, err) // only this session is damaged
}

// answered reports whether the attempt has a final answer. The rollout has a main conversation. The
// last answer of the model counts too, because some agents print the reasoning if the model wrote
// nothing else. A call of a tool is an answer if the exit code is 0, because some agents end with such
// a call.
func (g *agent) answered(rollout *session.Rollout) bool {
	var last struct {
		Calls []json.RawMessage `json:"tool_calls"`
	}
	answer := callOf(g.record, rollout.Number[rollout.Main.Call]).Answer
	_ = json.Unmarshal(answer, &last) // on an error, there are no calls
	printed := g.end.Answer != "" || g.cfg.Output.kind == outputSession
	return printed && (strings.TrimSpace(rollout.Main.Text) != "" || len(last.Calls) > 0 && g.end.Exit == 0)
}

// engineFailure returns the error of the engine if the last call of the session failed or, in the
// main conversation, was cut off. Otherwise it returns nil. An answer in another conversation does not
// count, because the failed call can have ended the command in the meantime.
func (g *agent) engineFailure(rollout *session.Rollout) error {
	if len(g.record.Calls) == 0 {
		return nil
	}
	at := len(g.record.Calls) - 1
	for at > 0 && answeredCall(g.record.Calls[at]) && !inMain(&g.record.Calls[at], rollout) {
		at--
	}
	last := &g.record.Calls[at]
	class, why := error(nil), ""
	switch status := last.Status; {
	case status == http.StatusOK && last.Cut && rollout != nil && inMain(last, rollout):
		// The end of the command cuts the answers of other conversations.
		return fmt.Errorf("%w: the answer to the last call (%d) was cut off; exit code %d%s",
			collector.ErrConnection, last.Number, g.end.Exit, g.end.LastLine)
	case status == http.StatusOK:
		return nil
	case status == http.StatusTooManyRequests:
		class = collector.ErrBusy
	case status == 0, status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		class = collector.ErrUnavailable
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		class = collector.ErrAuth
	case status >= 500:
		class = collector.ErrServer
	case last.Unread == session.UnreadOverflow && slices.ContainsFunc(g.record.Calls, answeredCall):
		class = collector.ErrContextOverflow
	case last.Unread == session.UnreadOverflow: // not a fault of the policy, and it can affect every sample
		class, why = collector.ErrRejected, ", because a call without an earlier answer exceeds the context length; check its prompt and its max_tokens"
	default:
		class = collector.ErrRejected
	}
	return fmt.Errorf("%w: the last call (%d) failed with status %d%s; exit code %d%s",
		class, last.Number, last.Status, why, g.end.Exit, g.end.LastLine)
}

func answeredCall(c session.Call) bool { return c.Status == http.StatusOK }

// inMain reports whether the call belongs to the main conversation, or to no conversation because
// nothing of the answer arrived. The rollout can be nil.
func inMain(c *session.Call, rollout *session.Rollout) bool {
	if rollout == nil {
		return true
	}
	i := slices.Index(rollout.Number, c.Number)
	return i < 0 || rollout.Calls[i].Chain == 0
}
