package collector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// Each journal entry comes before its step, and End comes between Append and Close.
func TestJournalOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &notebook{}
		b := &noting{scripted: scripted{script: func(a collector.Attempt) step {
			switch {
			case a.Task.ID == "t0" && a.N == 1:
				return step{openErr: collector.ErrServer}
			case a.Task.ID == "t0" && a.N == 2:
				return step{runErr: collector.ErrMalformedCall}
			case a.Task.ID == "t1":
				return step{runErr: collector.ErrRejected}
			}
			return step{}
		}}, j: j}
		s := &notedShelf{shelf: shelf{atOnce: true}, j: j}
		c := setup(t, b, s, func(cfg *collector.Config) { cfg.Journal, cfg.Retries, cfg.DataRetries = j, 1, 1 })
		// The first answer shows that the server is up, so its failures are charged.
		if err := c.Run(t.Context(), func(yield func(*collector.Task, error) bool) {
			for _, id := range []string{"t2", "t0", "t1"} {
				if !yield(&collector.Task{ID: id, Messages: []string{"hello"}}, nil) {
					return
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"begin t2-0/1 first at a", "(open)", "agent t2-0/1", "run t2-0/1 run-1", "(sink)", "end t2-0/1 none false", "(close)",
			"begin t0-0/1 first at a", "(open)", "end t0-0/1 server_error true",
			"begin t0-0/2 infra_retry at a", "(open)", "agent t0-0/2", "run t0-0/2 run-1", "(close)", "end t0-0/2 malformed_call true",
			"begin t0-0/3 data_retry at a", "(open)", "agent t0-0/3", "run t0-0/3 run-1", "(sink)", "end t0-0/3 none false", "(close)",
			"begin t1-0/1 first at a", "(open)", "agent t1-0/1", "run t1-0/1 run-1", "(close)", "(sink)", "end t1-0/1 bad_request false",
		}
		same(t, "journal", j.lines, want)
		st := c.Stats()
		if st.InfraRetries != 1 || st.DataRetries != 1 || st.Retries != 2 {
			t.Errorf("infra, data, all retries = %d, %d, %d, want 1, 1, 2", st.InfraRetries, st.DataRetries, st.Retries)
		}
	})
}

// A noting backend records its calls in the journal.
type noting struct {
	scripted
	j *notebook
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
	shelf
	j *notebook
}

func (s *notedShelf) Append(ctx context.Context, sample *tokenize.Sample, done func(error)) error {
	return errors.Join(s.j.note("(sink)"), s.shelf.Append(ctx, sample, done))
}

func TestJournalErrorEndsTheRun(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"begin", "agent", "run", "end"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &notebook{err: func(line string) error {
					if strings.HasPrefix(line, what) {
						return errPlain
					}
					return nil
				}}
				b := &noting{scripted: scripted{script: func(collector.Attempt) step { return step{takes: time.Second} }}, j: j}
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Journal = j })
				err := c.Run(t.Context(), tasks(3))
				if !errors.Is(err, collector.ErrStorage) || !errors.Is(err, errPlain) {
					t.Errorf("Run = %v, want %v", err, collector.ErrStorage)
				}
				b.check(t)
				identity(t, c.Stats())
			})
		})
	}
}

// A stop journals the End of attempts that it closed, and no other End.
func TestStopNotesWhatItClosed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step step
		want []string
	}{
		{"closed", step{hang: true}, []string{"begin t0-0/1 first at a", "(open)", "agent t0-0/1", "run t0-0/1 run-1", "(close)", "end t0-0/1 cancelled false"}},
		{"not closed", step{hang: true, closeErr: errPlain}, []string{"begin t0-0/1 first at a", "(open)", "agent t0-0/1", "run t0-0/1 run-1", "(close)"}},
		{"being made", step{opening: true}, []string{"begin t0-0/1 first at a", "(open)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &notebook{}
				b := &noting{scripted: scripted{script: func(collector.Attempt) step { return tt.step }}, j: j}
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Journal = j })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				fails(ctx, t, c, tasks(1), context.DeadlineExceeded)
				same(t, "journal", j.lines, tt.want)
				counts(t, c, 0, 0, 0, 1)
			})
		})
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		begin := func(what string) func(context.Context, collector.Attempt, string) (context.Context, func(error)) {
			return func(ctx context.Context, a collector.Attempt, endpoint string) (context.Context, func(error)) {
				in, _ := ctx.Value(spanKey{}).(string)
				name := fmt.Sprintf("%s%s %d %s", in, what, a.N, a.Kind)
				return context.WithValue(ctx, spanKey{}, name+" > "), func(err error) {
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, fmt.Sprintf("%s: %v", name, collector.Classify(err)))
				}
			}
		}
		b := &scripted{script: func(a collector.Attempt) step {
			if a.N == 1 && a.Task.ID == "t1" {
				return step{runErr: collector.ErrServer}
			}
			return step{}
		}}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Retries = 1
			cfg.Events.SampleSpan, cfg.Events.AttemptSpan = begin("sample"), begin("attempt")
		})
		finish(t, c, tasks(2))
		want := []string{
			"sample 1 first > attempt 1 first: none", "sample 1 first: none",
			"sample 1 first > attempt 1 first: server_error", "sample 1 first > attempt 2 infra_retry: none", "sample 1 first: none",
		}
		same(t, "spans", lines, want)
	})
}
