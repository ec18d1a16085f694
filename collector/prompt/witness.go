package prompt

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A doubt says why what stored gives for a send does not count as proven, although
// every length may agree.
type doubt struct {
	reason tokenize.Reason
	note   string
	// late says that nothing shows it only because the agent was taken over.
	late bool
	// wrong says that something shows the prompts to be others, and not only that
	// nothing shows them to be these.
	wrong bool
}

// witnessTries bounds the traces of a send that are asked for: the last call's may be
// late, or lost for a log-probability that is not finite.
const witnessTries = 3

// findWitnesses finds, for every send, the trace that shows what the model was given:
// the server reads the agent, its tools and the messages once per request, so that one
// trace speaks for all calls of its send before a compaction, and for no other send.
// Where there is none the send is doubted, but for one whose agent cannot have been
// read in two ways and is the same when it is read again.
func (b *rebuild) findWitnesses(ctx context.Context) error {
	for i := range b.life.sends {
		s := &b.life.sends[i]
		if s.blind || s.calls == 0 || s.epochs[0] > 0 {
			continue
		}
		if err := b.findWitness(ctx, s); err != nil {
			return err
		}
		if err := b.doubtUnshown(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// findWitness takes the trace of the last call of a send that has one. It leaves no
// notes: what is missing here may not be needed.
func (b *rebuild) findWitness(ctx context.Context, s *send) error {
	tries := 0
	for k := s.calls - 1; k >= 0 && tries < witnessTries; k-- {
		if s.summarized[k] || s.epochs[k] > 0 {
			continue
		}
		tries++
		t, err := b.rollout.Trace(ctx, s.steps[k].ID)
		if err != nil {
			return err
		}
		if t == nil {
			continue
		}
		read, err := readTrace(t, b.life.how, b.systemOver(s))
		if err != nil {
			continue
		}
		c := &b.calls[s.first+k]
		if !read.answer.Proves(c.OutputIDs) {
			s.doubt = &doubt{tokenize.ReasonNoPrompt, "the trace of step " + s.steps[k].ID + " answers with other tokens than the turn", false, true}
			return nil
		}
		c.FinishReason, c.Version = read.answer.Finish, read.answer.PolicyVersion
		b.ends.learn(read.answer)
		if read.tools, err = given(read.tools, b.life.agent, s.request); err == nil {
			s.witness, s.shown = read, k
		} else {
			s.doubt = &doubt{reason: tokenize.ReasonNoPrompt, note: err.Error(), wrong: true}
		}
		break
	}
	return nil
}

// systemOver is the text that the model was given in place of the one that the trace
// of the send shows, which its request overrode or added to; empty where the trace
// shows what was given.
func (b *rebuild) systemOver(s *send) string {
	if overrides(s.request) {
		return b.life.system
	}
	return ""
}

// overrides reports whether the system message in a trace is not the model's: the
// native path reads neither override_system nor client_skills.
func overrides(r *letta.LettaRequest) bool {
	return r.OverrideSystem != nil && *r.OverrideSystem != "" || len(r.ClientSkills) > 0
}

// doubtUnshown doubts a send of which no trace shows all that a prompt is made of.
func (b *rebuild) doubtUnshown(ctx context.Context, s *send) error {
	tools := serverTools(b.life.agent, s.request)
	switch {
	case s.doubt != nil:
	case chooses(b.life.agent) && len(tools) > 1:
		s.doubt = &doubt{reason: tokenize.ReasonToolOrder, note: "the agent's tool rules may give each call other tools: only its own trace shows them"}
	case s.witness != nil && !overrides(s.request):
	case s.witness == nil && len(tools) > 1:
		s.doubt = &doubt{reason: tokenize.ReasonToolOrder, note: fmt.Sprintf(
			"no trace of this request shows in which order the server read the agent's %d tools", len(tools))}
	default:
		why, changed, err := b.steady(ctx)
		if err != nil || why == "" {
			return err
		}
		s.doubt = &doubt{reason: tokenize.ReasonNoPrompt, note: why, wrong: changed, late: why == lateWhy}
		if b.life.compacted() {
			s.doubt.reason = tokenize.ReasonCompacted
		}
	}
	return nil
}

const (
	unshown = "no trace of this request shows the system message, and "
	lateWhy = unshown + "the agent was read after a request"
)

// steady says why the agent as it was before the first send need not be what the
// server gave to the model; it is empty where the agent and its system message are
// the same when they are read again. changed says that they are not.
func (b *rebuild) steady(ctx context.Context) (why string, changed bool, err error) {
	switch e := b.rollout; {
	case e.Conversation != nil:
		return unshown + "that of a conversation is made by the first request", false, nil
	case len(b.life.agent.Blocks) > 0:
		return unshown + "the agent has memory blocks, which may be edited at any time", false, nil
	case b.life.compacted():
		return unshown + "the server wrote a new one when it summarized the history", false, nil
	case e.Late: // the last: of what comes before a new rollout knows no more
		return lateWhy, false, nil
	}
	if b.again == nil {
		agent, system, err := b.rollout.AgentNow(ctx)
		if err != nil {
			return "", false, err
		}
		b.again = new(changedSince(b.life.agent, agent))
		if *b.again == "" && system != b.life.system {
			*b.again = "system message"
		}
	}
	if *b.again != "" {
		return "the agent's " + *b.again + " has changed since before the first request", true, nil
	}
	return "", false, nil
}

// testify compares the conversation that stored gives for the call of the witness with
// what the trace shows, as the template prints both, and doubts the send where they
// differ. The prompt of c must be the last one that was rendered.
func (b *rebuild) testify(s *send, c conversation) {
	s.heard = true
	w := conversation{history(s.witness.like(c.history)).view(false), s.witness.tools, nil}
	same, err := b.r.same(w)
	switch {
	case err != nil:
		s.doubt = &doubt{tokenize.ReasonNoPrompt, "the trace of its step: " + err.Error(), false, false}
	case !same:
		s.doubt = &doubt{tokenize.ReasonNoPrompt, "the trace of step " + s.steps[s.shown].ID + " shows another text", false, true}
	}
}

// same reports whether the template prints c as it printed the last prompt.
func (r *renderer) same(c conversation) (bool, error) {
	out, err := r.template.Render(r.next[:0], chat.Input{Messages: c.messages, Tools: c.tools, AddGenerationPrompt: true})
	if err != nil {
		return false, fmt.Errorf("render: %w", err)
	}
	r.next = out
	return bytes.Equal(out, r.text), nil
}

// like returns the messages of the trace with what a trace is known to change undone:
// a long text of a tool is cut in it, and a NUL character is lost where it is stored.
// The count of tokens tells whether the model was given the whole text.
func (t *traced) like(h history) []message {
	if len(h) != len(t.messages) {
		return t.messages
	}
	out := append([]message(nil), t.messages...)
	for i := range out {
		m, full := &out[i], h[i].content
		if m.role != h[i].role || m.content == full {
			continue
		}
		if m.role == roleTool && cutFrom(m.content, full) || strings.ReplaceAll(full, "\x00", "") == m.content {
			m.content = full
		}
	}
	return out
}

// cutMark is what the server writes in a trace where it cut the text of a tool.
//
// Source: schemas/message.py:68 (truncate_tool_return).
var cutMark = regexp.MustCompile(`\.\.\. \[truncated \d+ chars\]`)

// cutFrom reports whether text is full with pieces cut out, each marked.
func cutFrom(text, full string) bool {
	marks := cutMark.FindAllStringIndex(text, -1)
	if len(marks) == 0 {
		return false
	}
	from := 0
	for i, mark := range marks {
		piece := text[from:mark[0]]
		at := strings.Index(full, piece)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		full, from = full[at+len(piece):], mark[1]
	}
	return strings.HasSuffix(full, text[from:])
}
