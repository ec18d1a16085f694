package session_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/tokenize"
)

// A family is a harness with a random tree of agents that run at the same time. It records which
// call started each agent.
type family struct {
	*harness
	r      *rand.Rand
	faults bool
	echoes bool // texts repeat, and conversations can have equal requests
	named  bool // the requests have headers
	agents []*relative
	of     []*relative // by request
	said   []string    // the texts that requests contained
	serial int
}

// A relative is an agent.
type relative struct {
	*conv
	name    string
	up      *relative // nil for the main agent
	parent  int       // the number of the call that started the agent
	sent    int       // the number of messages that were sent
	slot    int       // the place of its result among up.results
	later   bool      // the text arrives in a user message, or in the result of a later call
	turns   int       // the number of remaining turns
	open    *pending
	results []msg // of the last answer
	missing int   // the number of results that are not known yet
	inbox   []string
	twin    bool  // another agent has the same first request
	waits   []int // the places in results of calls that wait for an agent
	prompt  string
	asked   bool // the prompt is in the arguments of the tool call
	plain   bool // the final text is long and new, and its result contains it
}

func newFamily(seed uint64, n int) *family {
	f := &family{harness: newHarness(task), r: rand.New(rand.NewPCG(seed, uint64(n))), faults: n%3 == 1, echoes: n%4 > 1, named: n%5 > 2}
	f.agents = []*relative{{conv: f.conv("bash agent wait", system("you are an agent"), user(task)), name: "main", turns: 2 + f.r.IntN(6)}}
	for len(f.agents) > 0 {
		a := f.agents[f.r.IntN(len(f.agents))]
		switch {
		case a.missing > 0:
		case a.open == nil:
			f.request(a)
		default:
			f.respond(a)
		}
	}
	return f
}

func (f *family) request(a *relative) {
	a.add(a.results...)
	if a.results = nil; len(a.inbox) > 0 && f.r.IntN(2) == 0 {
		a.add(user("An agent has ended: " + a.inbox[0]))
		a.inbox = a.inbox[1:]
	}
	for _, m := range a.msgs[a.sent:] {
		f.said = append(f.said, m.text)
		for _, c := range m.calls {
			f.said = append(f.said, c.args)
		}
	}
	a.sent = len(a.msgs)
	a.open = a.begin()
	f.of = append(f.of, a)
	if f.named {
		c := &f.record.Calls[a.open.i]
		c.Agent = a.name
		if a.up != nil {
			c.ParentAgent = a.up.name
		}
	}
}

// text returns a new long text. If texts repeat, it sometimes returns an old or a short text.
func (f *family) words(what string, size int) string {
	f.serial++
	text := fmt.Sprintf("%s %d: %s", what, f.serial, strings.Repeat("words ", size))
	if f.echoes && len(f.said) > 0 {
		old := f.said[max(0, len(f.said)-1-f.r.IntN(6))]
		switch f.r.IntN(5) {
		case 0:
			text = old
		case 1:
			text += old
		case 2:
			text = "done"
		}
	}
	return text
}

func (f *family) respond(a *relative) {
	p := a.open
	a.open = nil
	if a.turns <= 0 {
		f.finish(a, p)
		return
	}
	answer := msg{role: "assistant", text: f.words("step", 3)}
	for range 1 + f.r.IntN(3) {
		f.serial++
		id := fmt.Sprint("call", f.serial)
		if f.echoes {
			id = fmt.Sprint("call", len(answer.calls))
		}
		name := []string{"bash", "agent", "wait"}[f.r.IntN(3)]
		text := f.words("do", 1+f.r.IntN(8))
		for slices.ContainsFunc(f.agents, func(b *relative) bool { return b.up == a && !b.asked && b.prompt == strings.TrimSpace(text) }) {
			text = f.words("do", 3) // no agent knows a prompt that was not in its arguments
		}
		answer.calls = append(answer.calls, toolCall{id, name, fmt.Sprintf(`{"x": %q}`, text)})
	}
	if f.fault(p, answer) {
		return
	}
	p.end(answer)
	a.turns--
	a.add(answer)
	a.results = make([]msg, len(answer.calls))
	for i, c := range answer.calls {
		a.results[i] = result(c.id, f.words("output", 7))
		switch {
		case c.name == "wait" && len(a.inbox) > 0:
			a.results[i] = result(c.id, "<output>"+a.inbox[0]+"</output>")
			a.inbox = a.inbox[1:]
		case c.name == "wait" && slices.ContainsFunc(f.agents, func(b *relative) bool { return b.up == a && b.later }):
			a.waits = append(a.waits, i)
			a.missing++
		case c.name == "agent" && len(f.of) < 40:
			f.start(a, i, p.i+1, c.args)
		}
	}
}

// start starts an agent, or two with the same request. The prompt can be the argument of the tool call.
func (f *family) start(a *relative, slot, parent int, arguments string) {
	prompt := "look: " + strings.ReplaceAll(f.words("look", 2), "\n", " ") // never the argument of a call of a, or its end
	var of struct{ X string }
	asked := false
	if err := json.Unmarshal([]byte(arguments), &of); err == nil && f.r.IntN(4) > 0 {
		reminder := []string{"", "A reminder.\n"}[f.r.IntN(2)]
		prompt = reminder + of.X
		asked = reminder == "" || len(strings.TrimSpace(of.X)) >= 32
	}
	agents := 1 + f.r.IntN(2)*f.r.IntN(2)
	for range agents {
		f.serial++
		s := &relative{
			conv: f.conv("bash agent wait", system("you are a subagent"), user(prompt)), name: fmt.Sprint("agent ", f.serial),
			up: a, parent: parent, slot: slot, twin: agents > 1, prompt: strings.TrimSpace(prompt), asked: asked, turns: f.r.IntN(3), later: f.r.IntN(4) == 0 || a.missing > 0 && a.results[slot].text == "",
		}
		if f.agents = append(f.agents, s); s.later {
			continue
		}
		a.results[slot].text = ""
		a.missing++
	}
}

// finish ends a, and passes its text to the agent that started it.
func (f *family) finish(a *relative, p *pending) {
	answer := says(f.words("report", 5))
	if f.fault(p, answer) {
		return
	}
	p.end(answer)
	f.agents = slices.DeleteFunc(f.agents, func(b *relative) bool { return a == b })
	switch {
	case a.up == nil:
	case a.later && len(a.up.waits) > 0: // all get this text, so that no call waits for ever
		for _, i := range a.up.waits {
			a.up.results[i].text = answer.text
		}
		a.up.missing -= len(a.up.waits)
		a.up.waits = nil
	case a.later:
		if f.r.IntN(2) == 0 {
			a.up.inbox = append(a.up.inbox, answer.text)
		}
	default:
		text := []string{answer.text, "<result>\n" + answer.text + "\n</result>", "no result"}[f.r.IntN(3)]
		a.plain = text != "no result" && !a.twin && a.asked
		a.up.results[a.slot].text = text
		a.up.missing--
	}
}

// fault ends the request with a fault. The same request follows.
func (f *family) fault(p *pending, answer msg) bool {
	if !f.faults {
		return false
	}
	switch f.r.IntN(12) {
	case 0:
		p.end(answer, failed)
	case 1:
		p.end(answer, cut(1, says("")))
	case 2:
		p.end(answer, undelivered)
	default:
		return false
	}
	return true
}

// check compares the parents of the chains with the truth. It counts the agents with a parent.
func (f *family) check(out *session.Rollout) (found int, err error) {
	seen := map[*relative]bool{}
	for n, x := range out.Chains {
		for _, i := range x.Calls {
			if c := &out.Calls[i]; (x.Parent >= 0) != (c.Parent != tokenize.Parent{}) ||
				x.Parent >= 0 && c.Parent != (tokenize.Parent{Chain: out.Calls[x.Parent].Chain, Step: int32(out.Number[x.Parent])}) {
				return 0, fmt.Errorf("call %d has the parent %v, chain %d has %d", out.Number[i], c.Parent, n, x.Parent)
			}
			a := f.of[out.Number[i]-1]
			if x.Parent < 0 || seen[a] || out.Calls[i].Reason != tokenize.ReasonNone {
				continue
			}
			seen[a] = true
			if out.Number[x.Parent] != a.parent {
				return 0, fmt.Errorf("chain %d from call %d, call %d: %s was started by call %d, got %d", n, out.Number[x.Calls[0]], out.Number[i], a.name, a.parent, out.Number[x.Parent])
			}
		}
	}
	for _, a := range f.of {
		if a.plain && !seen[a] && !f.faults && !f.echoes {
			return 0, fmt.Errorf("%s has no parent", a.name)
		}
	}
	return len(seen), nil
}

func (f *family) log() string {
	var b strings.Builder
	for i, a := range f.of {
		c := &f.record.Calls[i]
		fmt.Fprintf(&b, "%d: %s, started by %d, later %t, %v to %v, status %d, cut %t, %s\n", i+1, a.name, a.parent, a.later,
			c.Began.Sub(f.record.Head.Began), c.Ended.Sub(f.record.Head.Began), c.Status, c.Cut, c.Answer)
		for _, k := range c.Messages[max(0, len(c.Messages)-4):] {
			fmt.Fprintf(&b, "\t%s\n", f.record.Texts[k])
		}
	}
	return b.String()
}

// TestRandomFamilies checks that no agent has a wrong parent. An agent must have a parent if the
// arguments of the tool call contain its prompt, and the result contains its new text. ROLLOUT_SEED repeats an earlier run.
func TestRandomFamilies(t *testing.T) {
	t.Parallel()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("ROLLOUT_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatalf("ROLLOUT_SEED: %v", err)
	}
	t.Logf("ROLLOUT_SEED=%d", seed)
	sessions := 2000
	if testing.Short() {
		sessions = 500
	}
	if n, err := strconv.Atoi(os.Getenv("ROLLOUT_RANDOM_SESSIONS")); err == nil {
		sessions = n
	}
	agents, parents := 0, 0
	for n := range sessions {
		f := newFamily(seed, n)
		out, err := session.Build(&f.record, session.Config{})
		if err == nil {
			_, err = verify(&f.record, out)
		}
		found := 0
		if err == nil {
			found, err = f.check(out)
		}
		if err != nil {
			t.Fatalf("session %d: %v\n%s", n, err, f.log())
		}
		agents, parents = agents+len(out.Chains)-1, parents+found
	}
	if t.Logf("%d of %d agents have a parent", parents, agents); parents < agents/6 {
		t.Error("too few agents have a parent")
	}
}
