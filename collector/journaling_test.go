package collector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// Each journal entry comes before its step, and End comes between Append and Close.
func TestJournalOrder(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = func(a collector.Attempt) step {
			switch {
			case a.Task.ID == "t0" && a.N == 1:
				return step{openErr: collector.ErrServer}
			case a.Task.ID == "t0" && a.N == 2:
				return step{runErr: collector.ErrMalformedCall}
			case a.Task.ID == "t1":
				return step{runErr: collector.ErrRejected}
			}
			return step{}
		}
		j := r.noting()
		r.cfg.Sink, r.cfg.Retries, r.cfg.DataRetries = &notedShelf{r.s, j}, 1, 1
		// The first answer shows that the server is up, so its failures are charged.
		r.finish(func(yield func(*collector.Task, error) bool) {
			_ = yield(task("t2"), nil) && yield(task("t0"), nil) && yield(task("t1"), nil)
		})
		same(r, "journal", j.lines,
			"begin t2-0/1 first at a", "(open)", "agent t2-0/1", "run t2-0/1 run-1", "(sink)", "end t2-0/1 none false", "(close)",
			"begin t0-0/1 first at a", "(open)", "end t0-0/1 server_error true",
			"begin t0-0/2 infra_retry at a", "(open)", "agent t0-0/2", "run t0-0/2 run-1", "(close)", "end t0-0/2 malformed_call true",
			"begin t0-0/3 data_retry at a", "(open)", "agent t0-0/3", "run t0-0/3 run-1", "(sink)", "end t0-0/3 none false", "(close)",
			"begin t1-0/1 first at a", "(open)", "agent t1-0/1", "run t1-0/1 run-1", "(close)", "(sink)", "end t1-0/1 bad_request false",
		)
		st := r.c.Stats()
		same(r, "infra, data, all retries", []int{st.InfraRetries, st.DataRetries, st.Retries}, 1, 1, 2)
	})
}

// A noting backend records its calls in the journal.
type noting struct {
	*scripted
	j *notebook
}

// noting gives the collector a journal that also has the calls of the backend.
func (r *rig) noting() *notebook {
	j := r.notes()
	r.cfg.Endpoints[0].Backend = &noting{r.b, j}
	return j
}

func (b *noting) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	if err := b.j.note("(open)"); err != nil {
		return nil, err
	}
	g, err := b.scripted.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &notingAgent{g, a, b.j}, nil
}

type notingAgent struct {
	collector.Agent
	a collector.Attempt
	j *notebook
}

func (g *notingAgent) Run(ctx context.Context) (*collector.Reply, error) {
	g.a.ServerRun("run-1")
	return g.Agent.Run(ctx)
}

func (g *notingAgent) Close(ctx context.Context) error {
	return errors.Join(g.j.note("(close)"), g.Agent.Close(ctx))
}

type notedShelf struct {
	*shelf
	j *notebook
}

func (s *notedShelf) Append(ctx context.Context, sample *tokenize.Sample, done func(error)) error {
	return errors.Join(s.j.note("(sink)"), s.shelf.Append(ctx, sample, done))
}

func TestJournalErrorEndsTheRun(t *testing.T) {
	cases := map[string]string{"begin": "begin", "agent": "agent", "run": "run", "end": "end"}
	bubbles(t, cases, func(r *rig, what string) {
		r.b.script = always(step{takes: time.Second})
		r.noting().err = func(line string) error {
			if strings.HasPrefix(line, what) {
				return errPlain
			}
			return nil
		}
		r.fails(r.Context(), tasks(3), collector.ErrStorage, errPlain)
	})
}

// A stop journals the End of attempts that it closed, and no other End.
func TestStopNotesWhatItClosed(t *testing.T) {
	type stopped struct {
		step step
		want string // after the first two notes
	}
	bubbles(t, map[string]stopped{
		"closed":     {step{hang: true}, ", agent t0-0/1, run t0-0/1 run-1, (close), end t0-0/1 cancelled false"},
		"not closed": {step{hang: true, closeErr: errPlain}, ", agent t0-0/1, run t0-0/1 run-1, (close)"},
		"being made": {step{opening: true}, ""},
	}, func(r *rig, tt stopped) {
		r.b.script = always(tt.step)
		j := r.noting()
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		r.fails(ctx, tasks(1), context.DeadlineExceeded)
		is(r, "journal", strings.Join(j.lines, ", "), "begin t0-0/1 first at a, (open)"+tt.want)
		r.counts(0, 0, 0, 1)
	})
}

type spanKey struct{}

func TestSpans(t *testing.T) {
	bubble(t, func(r *rig) {
		var lines []string // one worker
		begin := func(what string) func(context.Context, collector.Attempt, string) (context.Context, func(error)) {
			return func(ctx context.Context, a collector.Attempt, endpoint string) (context.Context, func(error)) {
				in, _ := ctx.Value(spanKey{}).(string)
				name := fmt.Sprintf("%s%s %d %s", in, what, a.N, a.Kind)
				return context.WithValue(ctx, spanKey{}, name+" > "), func(err error) {
					lines = append(lines, fmt.Sprintf("%s: %v", name, collector.Classify(err)))
				}
			}
		}
		r.b.script = func(a collector.Attempt) step {
			if a.N == 1 && a.Task.ID == "t1" {
				return step{runErr: collector.ErrServer}
			}
			return step{}
		}
		r.cfg.Retries = 1
		r.cfg.Events.SampleSpan, r.cfg.Events.AttemptSpan = begin("sample"), begin("attempt")
		r.finish(tasks(2))
		same(r, "spans", lines,
			"sample 1 first > attempt 1 first: none", "sample 1 first: none",
			"sample 1 first > attempt 1 first: server_error", "sample 1 first > attempt 2 infra_retry: none", "sample 1 first: none",
		)
	})
}

// A notebook is a journal in memory. It stores every entry as a line of text.
type notebook struct {
	err func(line string) error

	mu    sync.Mutex
	lines []string
}

func (n *notebook) note(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		if err := n.err(line); err != nil {
			return err
		}
	}
	n.lines = append(n.lines, line)
	return nil
}

func (n *notebook) Begin(a collector.Attempt, endpoint string) error {
	return n.note("begin %s/%d %s at %s", taskOf(a.Key), a.N, a.Kind, endpoint)
}

func (n *notebook) Agent(key string, attempt int, id string) error {
	return n.note("agent %s/%d", taskOf(key), attempt)
}

func (n *notebook) ServerRun(key string, attempt int, id string) error {
	return n.note("run %s/%d %s", taskOf(key), attempt, id)
}

func (n *notebook) End(key string, attempt int, class collector.Class, charged bool) error {
	return n.note("end %s/%d %v %t", taskOf(key), attempt, class, charged)
}

// notes gives the collector a journal.
func (r *rig) notes() *notebook {
	j := &notebook{}
	r.cfg.Journal = j
	return j
}

// has fails the test unless the journal has a line that begins with each of want.
func (n *notebook) has(tb testing.TB, want ...string) {
	tb.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(n.lines, func(line string) bool { return strings.HasPrefix(line, w) }) {
			tb.Errorf("journal lacks %q: %q", w, n.lines)
		}
	}
}

// keyOf returns the key of a sample of tasks(n); taskOf is the inverse and returns names such as
// t3-1.
func keyOf(task, index int) string {
	return collector.SampleKey(&collector.Task{ID: fmt.Sprintf("t%d", task), Messages: []string{"hello"}}, index)
}

var names = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for task := range 800 {
		for index := range samplesOf(task) {
			m[keyOf(task, index)] = fmt.Sprintf("t%d-%d", task, index)
		}
	}
	return m
})

// samplesOf keeps the table of names small: only the first tasks have several samples.
func samplesOf(task int) int {
	if task < 50 {
		return 8
	}
	return 1
}

func taskOf(key string) string { return names()[key] }

// A revived backend is a scripted one with agents of an earlier process. If the script sets
// openErr, nothing can be taken over.
type revived struct {
	*scripted
	reattached []collector.OpenAttempt
	was        []collector.Attempt
}

func (b *revived) Reattach(ctx context.Context, a collector.Attempt, left collector.OpenAttempt) (collector.Agent, error) {
	b.mu.Lock()
	b.reattached, b.was = append(b.reattached, left), append(b.was, a)
	b.mu.Unlock()
	agent, err := b.Open(ctx, a)
	if err == nil && a.ServerRun != nil {
		for _, id := range append(left.ServerRuns, "run-new") {
			a.ServerRun(id)
		}
	}
	return agent, err
}

// revived lets the backend of the rig take agents over.
func (r *rig) revived() *revived {
	b := &revived{scripted: r.b}
	r.cfg.Endpoints[0].Backend = b
	return b
}

// states are what an earlier process left, by sample name.
type states = map[string]collector.SampleState

// lefts returns a lookup in a table by sample name.
func lefts(m states) func(string) collector.SampleState {
	return func(key string) collector.SampleState { return m[taskOf(key)] }
}

func openAt(endpoint string, n int) collector.SampleState {
	return collector.SampleState{Attempts: n, Open: &collector.OpenAttempt{N: n, Endpoint: endpoint, AgentID: "agent", ServerRuns: []string{"run-old"}}}
}
