package collector_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

func TestRunTakesGroupsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := &scripted{}, &shelf{}
		c := setup(t, b, s, func(cfg *collector.Config) { cfg.Samples = 2 })
		finish(t, c, tasks(3))
		b.check(t)
		var got []string
		for _, sample := range s.samples {
			got = append(got, fmt.Sprintf("%s/%d", sample.TaskID, sample.Index))
		}
		same(t, "order", got, []string{"t0/0", "t0/1", "t1/0", "t1/1", "t2/0", "t2/1"})
		st := counts(t, c, 0, 0, 0, 6) // accepted, not committed
		if st.Accepted != 6 || st.InFlight != 0 || st.Claimed != 6 {
			t.Errorf("accepted, in flight, claimed = %d, %d, %d, want 6, 0, 6", st.Accepted, st.InFlight, st.Claimed)
		}
		s.settle(nil)
		counts(t, c, 6, 0, 0, 0)
		if tail := c.Tail(); tail != (collector.TailStats{}) { // it waits by default
			t.Errorf("tail %+v, want nothing", tail)
		}
	})
}

func TestSampleOwnsItsMemoryAndFacts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := &scripted{script: func(collector.Attempt) step { return step{takes: 3 * time.Second} }}, &shelf{}
		c := setup(t, b, s, func(cfg *collector.Config) { cfg.Samples = 2 })
		start := time.Now()
		finish(t, c, tasks(1))
		got := s.samples[1]
		if len(got.Rows) != 1 {
			t.Fatalf("%d rows, want 1", len(got.Rows))
		}
		row := &got.Rows[0]
		for _, cmp := range []struct{ name, got, want any }{
			{"input_ids", row.InputIDs, []int32{1, 2, 3, 10, 11, 5, 6, 12}},
			{"loss_mask", row.LossMask, []int8{0, 0, 0, 1, 1, 0, 0, 1}},
			{"logprobs", row.Logprobs, []float32{0, 0, 0, -1, -2, 0, 0, -3}},
			{"grade", row.Grade, tokenize.Exact},
		} {
			if !reflect.DeepEqual(cmp.got, cmp.want) {
				t.Errorf("%s = %v, want %v", cmp.name, cmp.got, cmp.want)
			}
		}
		key := collector.SampleKey(&collector.Task{ID: "t0", Messages: []string{"hello"}}, 1)
		want := &tokenize.Sample{
			Key: key, TaskID: "t0", GroupID: strings.TrimSuffix(key, "-1"), RolloutID: key + "/1",
			Index: 1, GroupSize: 2, Attempt: 1, Rows: got.Rows,
			Status: "completed", StopReason: "end_turn", Model: "test/model", AgentID: "agent-1", RunIDs: []string{"run-1"},
			PromptTokens: 10, CompletionTokens: 3, Steps: 2,
			StartedAt: start.Add(3 * time.Second), Duration: 3 * time.Second, Working: 3 * time.Second,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("sample = %+v\nwant     %+v", got, want)
		}
		st := c.Stats()
		if st.Rows != 2 || st.Sampled != 6 || st.Trained != 6 {
			t.Errorf("rows, sampled, trained = %d, %d, %d, want 2, 6, 6", st.Rows, st.Sampled, st.Trained)
		}
	})
}

// A drain finishes the samples in flight. Waiting samples, and samples whose attempt fails after the
// drain, remain with an unchanged budget.
func TestDrain(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := &scripted{script: func(a collector.Attempt) step {
				switch a.Task.ID {
				case "t0":
					return step{openErr: delayed(5 * time.Minute)} // waits for its retry
				case "t1":
					return step{runErr: collector.ErrServer}
				case "t2":
					return step{takes: 90 * time.Second}
				case "t3":
					return step{takes: 80 * time.Second, runErr: collector.ErrConnection}
				}
				return step{takes: time.Hour}
			}}
			j := &notebook{}
			c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
				cfg.Endpoints[0].MaxInFlight, cfg.Retries, cfg.Planned, cfg.Journal = 4/servers, 5, 10, j
				if servers == 2 {
					cfg.Endpoints = append(cfg.Endpoints, collector.Endpoint{Name: "b", Backend: b, MaxInFlight: 2})
				}
				cfg.BackoffMin, cfg.BackoffMax, cfg.RetryAfterMax = 5*time.Minute, 5*time.Minute, time.Hour
			})
			time.AfterFunc(time.Minute, c.Drain)
			time.AfterFunc(61*time.Second, c.Drain) // a second call is allowed
			start := time.Now()
			finish(t, c, tasks(10))
			b.check(t)
			counts(t, c, 1, 0, 0, 9)
			if took := time.Since(start); took != 90*time.Second {
				t.Errorf("took %v, want the 90 s of the samples in flight", took)
			}
			for _, start := range []string{"end t0-0/1 rate_limited false", "end t1-0/1 server_error ", "end t3-0/1 connection "} {
				if !slices.ContainsFunc(j.lines, func(l string) bool { return strings.HasPrefix(l, start) }) {
					t.Errorf("journal lacks %q: %q", start, j.lines)
				}
			}
		})
	}
}

func TestCancelKeepsItsCause(t *testing.T) {
	t.Parallel()
	why := errors.New("second interrupt")
	stages := map[string]step{
		"run":   {hang: true},
		"close": {closing: time.Hour},
		"wait":  {runErr: collector.ErrBusy},
		"score": {},
	}
	for name, st := range stages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, s := &scripted{script: func(collector.Attempt) step { return st }}, &shelf{}
				c := setup(t, b, s, func(cfg *collector.Config) {
					cfg.Endpoints[0].MaxInFlight, cfg.Retries = 4, 5
					cfg.BackoffMin, cfg.BackoffMax, cfg.CloseTimeout = time.Hour, time.Hour, 2*time.Hour
					if name == "score" {
						cfg.Scorer = scorerFunc(func(ctx context.Context, _ *collector.Task, _ *collector.Reply) (collector.Reward, error) {
							<-ctx.Done()
							return collector.Reward{}, ctx.Err()
						})
					}
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(why) })
				err := c.Run(ctx, tasks(10))
				if name != "close" && !errors.Is(err, why) {
					t.Errorf("Run = %v, want %v", err, why)
				}
				b.check(t)
				for _, sample := range s.samples {
					if name == "score" || len(sample.Failures) > 0 {
						t.Errorf("a stop left the sample %+v", sample)
					}
				}
				identity(t, c.Stats())
			})
		})
	}
}

func TestSinkFailureEndsTheRun(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	t.Run("append", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &scripted{script: func(collector.Attempt) step { return step{takes: time.Second} }}
			s := &shelf{err: func(n int) error {
				if n == 5 {
					return full
				}
				return nil
			}}
			c := setup(t, b, s, func(cfg *collector.Config) { cfg.Endpoints[0].MaxInFlight, cfg.Planned = 2, 100 })
			err := c.Run(t.Context(), tasks(100))
			if !errors.Is(err, full) || !errors.Is(err, collector.ErrStorage) || collector.Classify(err) != collector.ClassStorage {
				t.Errorf("Run = %v, want the sink's own error, as storage", err)
			}
			b.check(t)
			s.settle(nil)
			counts(t, c, len(s.samples), 0, 0, 100-len(s.samples))
		})
	})
	t.Run("later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &scripted{script: func(collector.Attempt) step { return step{takes: time.Second} }}
			s := &shelf{}
			c := setup(t, b, s, nil)
			time.AfterFunc(4500*time.Millisecond, func() { s.settle(full) })
			err := c.Run(t.Context(), tasks(100))
			if !errors.Is(err, full) || !errors.Is(err, collector.ErrStorage) {
				t.Errorf("Run = %v, want the sink's own error, as storage", err)
			}
			b.check(t)
			synctest.Wait() // Run can return before settle has reported its last sample
			st := c.Stats()
			if st.Committed != 0 || st.Accepted != 0 || st.Remaining != st.Planned {
				t.Errorf("%+v, want all to remain", st)
			}
		})
	})
	t.Run("failure row", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &scripted{script: func(collector.Attempt) step { return step{runErr: collector.ErrRejected} }}
			s := &shelf{err: func(int) error { return full }}
			c := setup(t, b, s, func(cfg *collector.Config) { cfg.Planned = 3 })
			fails(t.Context(), t, c, tasks(3), full)
			counts(t, c, 0, 0, 0, 3)
		})
	})
}

// A bad task is an error after the samples before it, in a resumed run too.
func TestTaskSourceErrorFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for _, left := range []func(string) collector.SampleState{nil, lefts(nil)} {
		synctest.Test(t, func(t *testing.T) {
			b := &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}
			c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Endpoints[0].MaxInFlight, cfg.Left = 4, left })
			err := c.Run(t.Context(), func(yield func(*collector.Task, error) bool) {
				tasks(2)(yield)
				yield(nil, errPlain)
			})
			if !errors.Is(err, errPlain) {
				t.Errorf("Run = %v, want %v", err, errPlain)
			}
			counts(t, c, 2, 0, 0, 0)
		})
	}
}

func TestSkipLimitAndPlanned(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                                  string
		planned, limit                        int
		left                                  bool
		committed, failed, skipped, remaining int
	}{
		{"unknown plan", 0, 0, false, 6, 0, 0, 0},
		{"known plan", 6, 0, false, 6, 0, 0, 0},
		{"plan too low", 2, 0, false, 6, 0, 0, 0},
		{"plan too high", 8, 0, false, 6, 0, 0, 2},
		{"limit", 6, 4, false, 4, 0, 0, 0},
		{"limit above", 6, 40, false, 6, 0, 0, 0},
		{"left done", 6, 0, true, 6, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, s := &scripted{}, &shelf{atOnce: true}
			c := setup(t, b, s, func(cfg *collector.Config) {
				cfg.Samples, cfg.Planned, cfg.Limit = 2, tt.planned, tt.limit
				if tt.left {
					cfg.Left = func(key string) collector.SampleState {
						return collector.SampleState{Done: strings.HasSuffix(key, "-1")}
					}
				}
			})
			finish(t, c, tasks(3))
			counts(t, c, tt.committed, tt.failed, tt.skipped, tt.remaining)
		})
	}
}

func TestRunOnce(t *testing.T) {
	t.Parallel()
	c := setup(t, &scripted{}, &shelf{}, nil)
	finish(t, c, tasks(1))
	if err := c.Run(t.Context(), tasks(1)); err == nil {
		t.Fatal("second Run = nil, want an error")
	}
}

func TestConfigComplaintsComeTogether(t *testing.T) {
	t.Parallel()
	_, err := collector.New(collector.Config{
		Endpoints: []collector.Endpoint{{Name: "a", MaxInFlight: -1}, {Name: "a", Backend: &scripted{}}},
		Samples:   -1, BackoffMin: time.Minute, BackoffMax: time.Second, RetryFailed: true,
	})
	for _, want := range []string{
		"collector.endpoints[0].backend: must not be nil", "collector.endpoints[0].max_in_flight: -1: must be ≥ 1",
		`collector.endpoints[1].name: "a": duplicate name`, "collector.sink: must not be nil",
		"collector.samples: -1: must not be negative", "collector.backoff_max: 1s: must be at least backoff_min (1m0s)",
		"collector.retry_failed: requires left",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want %q in it", err, want)
		}
	}
}

func nan() float32 { return float32(math.NaN()) }

// A drain ends the survey even if all tasks are done.
func TestDrainEndsTheSurvey(t *testing.T) {
	t.Parallel()
	var c *collector.Collector
	read := 0
	c = setup(t, &scripted{}, &shelf{atOnce: true}, func(cfg *collector.Config) {
		cfg.Left = func(string) collector.SampleState { return collector.SampleState{Done: true} }
	})
	finish(t, c, each(1000, func(i int) {
		if read = i; read == 3 {
			c.Drain()
		}
	}))
	if read != 3 {
		t.Errorf("%d tasks were read, want none after the drain", read)
	}
}
