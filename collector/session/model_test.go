package session_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/tokenize"
)

// A model is a harness with random conversations that run at the same time. It knows the truth about
// every request that it sends.
type model struct {
	*harness
	r      *rand.Rand
	faults bool
	echoes bool     // texts repeat: the truth is only that a dropped answer must not be trained
	texts  []string // if echoes: the texts that the harness knows
	lost   []string // if echoes: the texts of all answers, also of the lost answers
	actors []*actor
	policy string  // the name of the policy; "step-1" and "" for the engine's own model
	truth  []truth // one per request
	serial int
	others int // how often another model gave one answer of a conversation
	backs  int // how often a harness went back to an earlier request
}

// A truth is what the harness knows about a request.
type truth struct {
	of     *actor
	reason tokenize.Reason
	failed bool
}

// An actor is one conversation.
type actor struct {
	*conv
	kind   tokenize.ChainKind
	model  string
	twin   bool // other conversations have the same first request
	kimi   bool // the ids of tool calls are numbers within the conversation
	turns  int  // to go
	open   *pending
	waits  []*actor // conversations that must end first
	then   func()   // after the conversation
	part   *actor   // the conversation that this one is a part of, or nil
	from   *actor   // the conversation from which this one forked, or nil
	sums   bool     // the answer is a summary
	tries  int      // earlier tries of the request, for the header
	failed bool     // an earlier request had the same messages and a fault
	back   bool     // the harness went back, and the policy has not answered since
	reply  bool     // the request is a reply to a rejected answer
	lost   string   // the text of the answer that the next answer replaces
}

// unique returns a new text for a message. If the model echoes, it can return an earlier text, or one
// that contains an earlier text.
func (m *model) unique(what string) string {
	text := m.echo(what, m.texts)
	if m.echoes {
		m.texts = append(m.texts, text)
	}
	return text
}

// echo is like unique, for the given earlier texts. The harness does not know the text until it reads
// the answer that contains it.
func (m *model) echo(what string, texts []string) string {
	if len(texts) > 0 {
		old := texts[max(0, len(texts)-1-m.r.IntN(8))]
		m.serial++
		switch m.r.IntN(6) {
		case 0:
			return old
		case 1:
			return fmt.Sprintf("%s and (%d)", old, m.serial)
		case 2:
			return fmt.Sprintf("(%d) again: %s", m.serial, old)
		}
	}
	m.serial++
	words := make([]string, 3+m.r.IntN(6))
	for i := range words {
		words[i] = []string{"file", "test", "main", "error", "line", "the", "of"}[m.r.IntN(7)]
	}
	return fmt.Sprintf("%s %d %s", what, m.serial, strings.Join(words, " "))
}

func (m *model) start(kind tokenize.ChainKind, turns int, c *conv) *actor {
	a := &actor{conv: c, kind: kind, model: m.policy, turns: turns}
	m.actors = append(m.actors, a)
	return a
}

func newModel(seed uint64, n int, faults, echoes bool) *model {
	m := &model{harness: newHarness(task), r: rand.New(rand.NewPCG(seed, uint64(n))), faults: faults, echoes: echoes}
	m.policy = []string{"", "step-1"}[m.r.IntN(2)]
	if m.r.IntN(2) == 0 {
		m.start(tokenize.ChainAuxiliary, 1, m.conv("", system("title generator"), user("a title for"), user(`"`+task+`"`)))
	}
	lead := m.start(tokenize.ChainMain, 1+m.r.IntN(8), m.conv("bash edit agent", system("you are an agent")))
	lead.add(m.example()...).add(user(`"` + task + `"`))
	if m.r.IntN(2) == 0 {
		lead.then = func() {
			tools := []string{"bash edit", "edit remember", "remember"}[m.r.IntN(3)]
			m.start(tokenize.ChainAuxiliary, 1+m.r.IntN(2),
				m.conv(tools, slices.Concat([]msg{system("memory extraction")}, lead.msgs[1:], []msg{user("extract")})...))
		}
	}
	for len(m.actors) > 0 {
		a := m.actors[m.r.IntN(len(m.actors))]
		a.waits = slices.DeleteFunc(a.waits, func(w *actor) bool { return !slices.Contains(m.actors, w) })
		switch {
		case len(a.waits) > 0:
		case a.open == nil:
			m.request(a)
		default:
			m.respond(a)
		}
	}
	return m
}

// example returns a question and an answer, or nothing. A harness begins conversations with them.
func (m *model) example() []msg {
	if !m.echoes || m.r.IntN(2) == 0 {
		return nil
	}
	return []msg{user(m.unique("question")), says(m.unique("answer"))}
}

// whole returns the conversation that a is a part of.
func (a *actor) whole() *actor {
	if a.part != nil {
		return a.part
	}
	return a
}

// begin sends the next request of a to its model.
func (m *model) begin(a *actor) *pending {
	p := a.begin()
	m.record.Calls[p.i].Model = a.model
	return p
}

// lone reports whether another model can give one answer of a. The first answer decides which model the
// policy is. If the harness went back, the answer after that decides to which request.
func (a *actor) lone() bool {
	return a.kind != tokenize.ChainAuxiliary && !a.back && !a.twin && !a.failed && !a.reply && !a.sums && a.part == nil &&
		slices.ContainsFunc(a.msgs, func(m msg) bool { return m.role == "assistant" })
}

// other makes a a conversation with another model than the policy, so that it must not be trained.
func (m *model) other(a *actor) {
	a.model, a.kind = []string{"step-1", "", "step-2"}[m.r.IntN(3)], tokenize.ChainAuxiliary
	if a.model == m.policy {
		a.model = "step-3"
	}
}

func (m *model) request(a *actor) {
	a.open = m.begin(a)
	m.truth = append(m.truth, truth{of: a.whole()})
	if a.tries > 0 && m.r.IntN(2) == 0 {
		retry(a.tries)(&m.record.Calls[a.open.i])
	}
}

// newAnswer returns a random answer. Only the last answer of a conversation calls no tools, except
// for some in the middle.
func (m *model) newAnswer(a *actor) (out msg) {
	texts := m.lost
	if m.echoes && m.r.IntN(4) > 0 {
		texts = nil
		for _, x := range a.msgs {
			if x.text != "" {
				texts = append(texts, x.text)
			}
		}
	}
	if out = says(m.echo("answer", texts)); a.turns > 1 && m.r.IntN(5) > 0 {
		out = msg{role: "assistant", null: m.r.IntN(2) == 0}
		if !out.null {
			out.text = m.echo("step", texts)
		}
		for range 1 + m.r.IntN(3) {
			m.serial++
			id := fmt.Sprint("id ", m.serial)
			if a.kimi {
				id = fmt.Sprint("bash:", len(out.calls)+10*len(a.msgs))
			}
			out.calls = append(out.calls, toolCall{id, "bash", fmt.Sprintf(`{"cmd": "%s"}`, m.echo("ls", texts))})
		}
	}
	if a.sums {
		out.text += ", which is a long summary of the history"
	}
	if m.r.IntN(2) == 0 {
		out.reasoning = m.echo("hm", texts) + "\n"
	}
	return out
}

// respond ends the request of a with an answer or with a fault.
func (m *model) respond(a *actor) {
	p, i := a.open, a.open.i
	a.open = nil
	answer := m.newAnswer(a)
	if a.lost != "" && m.echoes && m.r.IntN(2) == 0 { // the engine repeats the beginning of the lost answer
		answer.text, answer.null = a.lost+" "+answer.text, false
	}
	if a.lost = answer.text; m.echoes && a.lost != "" {
		m.lost = append(m.lost, a.lost)
	}
	n := 1 + m.r.IntN(len(answer.body())-1)
	fault := 99
	if m.faults {
		fault = m.r.IntN(40)
	}
	left := func(reason tokenize.Reason) { m.truth[i].reason = reason }
	if a.kind == tokenize.ChainAuxiliary {
		left(tokenize.ReasonAuxiliary)
	}
	if fault > 9 && !a.twin && m.r.IntN(12) == 0 { // the harness rejects the answer, and states why
		p.end(answer)
		reply := "there is no call of a tool"
		if len(answer.calls) > 0 {
			reply = "there is an error in a call of bash"
		}
		a.add(user(m.unique(reply)))
		a.tries, a.failed, a.reply = 0, false, true
		return
	}
	before := a.failed
	a.failed = a.failed || fault <= 9
	switch fault {
	case 0, 1: // the server fails, and the same request follows
		p.end(answer, failed)
		m.truth[i].failed = true
		a.tries++
		return
	case 2, 3: // the stream is cut off, and the same request follows
		p.end(answer, cut(n, says("")))
		a.tries++
	case 4: // the client closes the connection early, and the same request follows
		p.end(answer, undelivered)
		a.tries++
	case 5: // the answer is dropped because of its length, and the same request follows
		p.end(answer, stopped)
		a.tries = 0
		if a.kind != tokenize.ChainAuxiliary {
			left(tokenize.ReasonCutAnswer)
		}
		return
	case 6: // the stream is cut off, and another message follows
		if a.twin {
			p.end(answer)
			m.goOn(a, answer)
			return
		}
		p.end(answer, cut(n, says("")))
		a.add(user(m.unique("again " + task)))
		a.tries, a.failed = 0, false
		if a.kind != tokenize.ChainAuxiliary {
			left(tokenize.ReasonCutAnswer)
		}
		return
	case 7: // the ids are missing
		p.end(answer, noIDs)
		if a.kind != tokenize.ChainAuxiliary {
			left(tokenize.ReasonNoIDs)
		}
		m.goOn(a, answer)
		return
	case 8: // the client lost the whole answer, and states that it repeats the request
		if a.twin || before {
			p.end(answer)
			m.goOn(a, answer)
			return
		}
		p.end(answer)
		if a.kind != tokenize.ChainAuxiliary {
			left(tokenize.ReasonSuperseded)
		}
		a.open = m.begin(a)
		retry(1)(&m.record.Calls[a.open.i])
		m.truth = append(m.truth, truth{of: a.whole()})
		return
	case 9: // the answer is empty, and the same request follows
		answer.text, answer.calls = "", nil
		p.end(answer)
		if a.tries = 0; a.kind != tokenize.ChainAuxiliary {
			left(tokenize.ReasonAmbiguousRetry)
		}
		return
	default:
		p.end(answer)
		if a.lone() && m.r.IntN(8) == 0 { // another model gave this answer
			one := &actor{conv: a.conv}
			m.other(one)
			m.record.Calls[i].Model = one.model
			m.truth[i] = truth{of: one, reason: tokenize.ReasonAuxiliary}
			a.reply = true
			m.others++
		}
		m.goOn(a, answer)
		return
	}
	if a.kind != tokenize.ChainAuxiliary {
		left(tokenize.ReasonSuperseded)
	}
}

// goOn adds the answer and the next messages to the history, or ends the conversation.
func (m *model) goOn(a *actor, answer msg) {
	reply := a.reply
	a.tries, a.failed, a.back, a.reply, a.lost = 0, false, false, false, ""
	history := slices.Clone(a.msgs)
	echo := answer
	echo.calls = slices.Clone(answer.calls)
	switch m.r.IntN(6) {
	case 0: // serializes arguments again
		if !a.twin || !a.kimi {
			for i := range echo.calls {
				echo.calls[i].args = strings.ReplaceAll(echo.calls[i].args, ": ", ":")
			}
		}
	case 1:
		echo.reasoning = strings.TrimSpace(echo.reasoning)
	case 2:
		if !a.twin || !a.kimi {
			echo.reasoning = ""
		}
	}
	a.add(echo)
	if m.echoes && echo.text != "" {
		m.texts = append(m.texts, echo.text)
	}
	if a.turns--; a.turns <= 0 {
		m.actors = slices.DeleteFunc(m.actors, func(b *actor) bool { return a == b })
		if a.then != nil {
			a.then()
		}
		return
	}
	for _, c := range echo.calls {
		a.add(result(c.id, m.unique("result")))
	}
	if len(echo.calls) == 0 {
		a.add(user(m.unique("continue")))
	}
	forks := a.kind != tokenize.ChainAuxiliary && !a.twin && !reply && slices.ContainsFunc(history, func(m msg) bool { return m.role == "assistant" })
	if forks && m.faults && m.r.IntN(20) == 0 { // the request with the answer fails, and the harness goes back
		side := &actor{conv: a.conv, kind: a.kind, model: a.model, from: a.whole()}
		for i := len(m.truth) - 1; ; i-- {
			if m.truth[i].of == a.whole() {
				m.truth[i].of = side
				break
			}
		}
		p := m.begin(a)
		m.truth = append(m.truth, truth{of: side, failed: true})
		p.end(answer, failed)
		a.msgs = history
		a.failed, a.back = true, true
		m.backs++
		return
	}
	if len(echo.calls) > 0 && a.kind != tokenize.ChainAuxiliary && len(m.truth) < 60 && m.delegate(a) {
		return
	}
	if a.kind == tokenize.ChainMain && m.r.IntN(8) == 0 {
		m.compact(a)
	}
}

// delegate begins subagents, some of which have the same request. It reports whether it did.
func (m *model) delegate(a *actor) bool {
	if m.r.IntN(3) > 0 {
		return false
	}
	text, twins, kimi := m.unique("look"), 1+m.r.IntN(3)*m.r.IntN(2), m.r.IntN(2) == 0
	tools := []string{"bash edit", "agent bash web", "bash edit agent"}[m.r.IntN(3)]
	example := m.example()
	for range twins {
		s := m.start(tokenize.ChainSubagent, 1+m.r.IntN(3), m.conv(tools, append(append([]msg{system("you are a subagent")}, example...), user(text))...))
		s.twin, s.kimi = twins > 1, kimi
		if m.r.IntN(4) == 0 {
			m.other(s)
		}
		// Nothing but its result shows that the only answer of a twin was read.
		if report := s.twin && s.turns == 1; report || m.r.IntN(3) > 0 {
			a.waits = append(a.waits, s)
			if report {
				s.sums = true
				s.then = func() { a.add(user("result: " + s.msgs[len(s.msgs)-1].text)) }
			}
		}
	}
	return true
}

// compact asks for a summary of the history of a. The harness drops some summaries. Otherwise the
// summary replaces the history.
func (m *model) compact(a *actor) {
	history, accepted := slices.Clone(a.msgs), m.r.IntN(3) > 0
	ask, kept := user(m.unique("summarize")), len(history)
	var s *actor
	switch m.r.IntN(4) {
	case 0: // in the conversation itself
		s = m.start(a.kind, 1, a.clone(ask))
		if accepted {
			s.part = a
		}
	case 1: // in a conversation without tools that has the history
		s = m.start(tokenize.ChainAuxiliary, 1, m.conv("", slices.Concat([]msg{system("you summarize")}, history[1:], []msg{ask})...))
	case 2: // in a conversation without tools, because the prompt is too long
		m.truth = append(m.truth, truth{of: a.whole(), failed: true})
		m.begin(a).end(says(""), failed)
		a.failed = !accepted
		s = m.start(tokenize.ChainAuxiliary, 1, m.conv("", system("you summarize"), ask))
	case 3: // in a conversation without tools; the last answer is kept
		s = m.start(tokenize.ChainAuxiliary, 1, m.conv("", system("you summarize"), ask))
		for kept--; history[kept].role != "assistant"; kept-- {
		}
	}
	s.sums = true
	a.waits = append(a.waits, s)
	s.then = func() {
		if accepted {
			text := s.msgs[len(s.msgs)-1].text
			history = slices.Concat([]msg{a.msgs[0], user("Summary: " + text + " Continue.")}, history[kept:])
		}
		a.msgs, a.back = history, !accepted
	}
}

// checkDropped checks that no answer is trained that the harness dropped.
func (m *model) checkDropped(out *session.Rollout) error {
	for i := range out.Calls {
		c, want := &out.Calls[i], m.truth[out.Number[i]-1]
		if c.Reason == tokenize.ReasonNone && want.reason != tokenize.ReasonNone && want.reason != tokenize.ReasonAuxiliary {
			return fmt.Errorf("call %d is trained, want %v", out.Number[i], want.reason)
		}
	}
	return nil
}

// checkTruth compares a rollout with the truth.
func (m *model) checkTruth(out *session.Rollout, skip *actor) error {
	chains, actors := map[int32]*actor{}, map[*actor]int32{}
	for i := range out.Calls {
		c, want := &out.Calls[i], m.truth[out.Number[i]-1]
		if want.failed || want.of == skip {
			return fmt.Errorf("call %d must not be in the rollout", out.Number[i])
		}
		// A request of the left-out conversation can be the proof that an answer was superseded, or that
		// the only answer of a twin was read.
		unproven := skip != nil && c.Reason == tokenize.ReasonAmbiguousRetry &&
			(want.reason == tokenize.ReasonSuperseded || want.of.twin && want.reason == tokenize.ReasonNone)
		if c.Reason != want.reason && !unproven || c.ChainKind != want.of.kind {
			return fmt.Errorf("call %d: %v %v, want %v %v", out.Number[i], c.ChainKind, c.Reason, want.of.kind, want.reason)
		}
		if c.Reason != tokenize.ReasonNone && (c.Reason != tokenize.ReasonNoIDs || skip != nil && want.of.twin) {
			continue
		}
		x, ok := chains[c.Chain]
		n, known := actors[want.of]
		if ok && x != want.of || known && n != c.Chain {
			return fmt.Errorf("call %d: chain %d, but the conversation has chain %d", out.Number[i], c.Chain, n)
		}
		chains[c.Chain], actors[want.of] = want.of, c.Chain
	}
	return nil
}

func (m *model) log() string {
	var b strings.Builder
	names := map[*actor]int{}
	for i := range m.truth {
		c, w := &m.record.Calls[i], m.truth[i]
		if _, ok := names[w.of]; !ok {
			names[w.of] = len(names)
		}
		fmt.Fprintf(&b, "%d: conversation %d %v, %v, %ds to %ds, %d messages, retry %d, delivered %t, cut %t, failed %t, finish %s\n",
			c.Number, names[w.of], w.of.kind, w.reason, c.Began.Sub(m.record.Head.Began)/time.Second, c.Ended.Sub(m.record.Head.Began)/time.Second,
			len(c.Messages), c.Retry, c.Delivered, c.Cut, w.failed, c.Finish)
	}
	return b.String()
}

// without returns the record without the requests of a conversation and its forks. The numbers stay.
func (m *model) without(a *actor) *session.Record {
	r := m.record
	r.Calls = nil
	for i := range m.record.Calls {
		if of := m.truth[i].of; of != a && of.from != a {
			r.Calls = append(r.Calls, m.record.Calls[i])
		}
	}
	return &r
}

// TestRandomSessions compares Build with the truth about random sessions. It also checks that the
// order of the calls in the record does not matter, and that the result for a conversation does not
// depend on a subagent that is not part of it. In some sessions texts repeat. There it only checks that
// no dropped answer is trained. ROLLOUT_RANDOM_SESSIONS sets the number of sessions, and ROLLOUT_SEED
// repeats an earlier test.
func TestRandomSessions(t *testing.T) {
	t.Parallel()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("ROLLOUT_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatalf("ROLLOUT_SEED: %v", err)
	}
	t.Logf("ROLLOUT_SEED=%d", seed)
	sessions := 1000
	if testing.Short() {
		sessions = 300
	}
	if n, err := strconv.Atoi(os.Getenv("ROLLOUT_RANDOM_SESSIONS")); err == nil {
		sessions = n
	}
	kinds, backs, others := map[string]int{}, 0, 0
	for n := range sessions {
		m := newModel(seed, n, n%4 > 0, n%3 == 0)
		out, err := session.Build(&m.record, session.Config{})
		if err == nil {
			_, err = verify(&m.record, out)
		}
		switch {
		case err == nil && m.echoes:
			err = m.checkDropped(out)
		case err == nil:
			err = m.checkTruth(out, nil)
		}
		if err != nil {
			t.Fatalf("session %d: %v\n%s", n, err, m.log())
		}
		if x := out.Tally; !m.faults && !m.echoes && x.Quarantined+x.Superseded+x.Cut > 0 {
			t.Fatalf("session %d: no faults, but %+v", n, out.Tally)
		}
		for i := range out.Calls {
			kinds[out.Calls[i].ChainKind.String()+" "+out.Calls[i].Reason.String()]++
		}

		backs += m.backs
		others += m.others

		shuffled := m.record
		shuffled.Calls = slices.Clone(m.record.Calls)
		m.r.Shuffle(len(shuffled.Calls), func(i, j int) {
			shuffled.Calls[i], shuffled.Calls[j] = shuffled.Calls[j], shuffled.Calls[i]
		})
		if again, err := session.Build(&shuffled, session.Config{}); err != nil || !reflect.DeepEqual(out, again) {
			t.Fatalf("session %d: another result for another order of the calls: %v", n, err)
		}

		if a := m.truth[m.r.IntN(len(m.truth))].of; a.kind == tokenize.ChainSubagent && !m.echoes {
			r := m.without(a)
			rest, err := session.Build(r, session.Config{})
			if err == nil {
				_, err = verify(r, rest)
			}
			if err == nil {
				err = m.checkTruth(rest, a)
			}
			if err != nil {
				t.Fatalf("session %d without a subagent: %v\n%s", n, err, m.log())
			}
		}
	}
	for _, want := range []string{
		"main ", "subagent ", "auxiliary auxiliary", "main superseded", "main cut_answer", "main no_ids", "main ambiguous_retry",
		"subagent superseded", "subagent cut_answer", "subagent no_ids", "subagent ambiguous_retry",
	} {
		if kinds[want] == 0 {
			t.Errorf("no call is %q: %v", want, kinds)
		}
	}
	if backs == 0 {
		t.Error("no harness went back to an earlier request")
	}
	if others == 0 {
		t.Error("no other model gave an answer of a conversation")
	}
	t.Logf("%v, %d times back, %d answers of other models", kinds, backs, others)
}
