package collector_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/tokenize"
)

// deadlines yields the tasks t0, t1, … Each deadline is relative to now; 0: none.
func deadlines(after ...time.Duration) iter.Seq2[*collector.Task, error] {
	now := time.Now()
	return func(yield func(*collector.Task, error) bool) {
		for i, d := range after {
			m := task("t%d", i)
			if d != 0 {
				m.Deadline = now.Add(d)
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// A slate records when the samples of each task are finished, and whether they were cut.
type slate struct {
	shelf
	start time.Time
	got   map[string][]string // by task id
}

func newSlate() *slate { return &slate{shelf: shelf{atOnce: true}, start: time.Now()} }

func (s *slate) finished(sample *tokenize.Sample) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	word := "kept"
	if len(sample.Failures) > 0 {
		f := &sample.Failures[0]
		word = f.Class + " in " + f.Stage
		if f.Class == "censored" && !collector.CutAtDeadline(f.Class, f.Error) {
			word += ": " + f.Error
		}
	}
	if s.got == nil {
		s.got = map[string][]string{}
	}
	s.got[sample.TaskID] = append(s.got[sample.TaskID], fmt.Sprintf("%v %s", time.Since(s.start), word))
	return nil
}

// want fails the test unless the samples of the task ended as listed.
func (s *slate) want(t *testing.T, id string, want ...string) {
	t.Helper()
	slices.Sort(s.got[id])
	if got := s.got[id]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %q, want %q", id, got, want)
	}
}

// A group is whole at its deadline: finished samples stay and the rest is cut, also samples that
// wait for a retry, for room, for a worker, or for the pacer.
func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlate()
		b := &scripted{script: func(a collector.Attempt) step {
			switch {
			case a.Task.ID == "t0" && a.Index == 0:
				return step{takes: time.Minute}
			case a.Task.ID == "t0" && a.Index == 1:
				return step{takes: time.Second, runErr: collector.ErrServer, reply: goodReply}
			}
			return step{takes: time.Hour}
		}}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Endpoints[0].MaxInFlight, cfg.Samples, cfg.Retries, cfg.MaxFailures = 4, 4, 3, 1
			cfg.BackoffMin, cfg.BackoffMax = 2*time.Hour, 2*time.Hour
			cfg.Events.SampleFinished = s.finished
		})
		// t0 and a part of t1 have begun: a sample of t1 has the slot of the finished sample.
		finish(t, c, deadlines(2*time.Minute, 3*time.Minute, 0))
		b.check(t)
		s.want(t, "t0", "1m0s kept", "2m0s censored in run", "2m0s censored in run", "2m0s censored in run")
		s.want(t, "t1", "3m0s censored in run", "3m0s censored in run", "3m0s censored in run", "3m0s censored in run")
		s.want(t, "t2", "1h3m0s kept", "1h3m0s kept", "1h3m0s kept", "1h3m0s kept")
		st := counts(t, c, 5, 0, 7, 0)
		if st.Censored != 7 || st.Unstarted != 0 {
			t.Errorf("censored %d, unstarted %d", st.Censored, st.Unstarted)
		}
		for _, sample := range s.samples {
			if f := sample.Failures; sample.TaskID == "t0" && sample.Index == 1 && (len(f[0].OutputIDs) != 3 || !strings.Contains(f[0].Error, " after: ")) {
				t.Errorf("the sample that waited for its retry: %+v", f[0])
			}
		}
	})
}

// Samples that have not begun are cut at their deadline too: behind a busy worker, behind the
// pacer, and behind another task.
func TestDeadlineOfWhatWaits(t *testing.T) {
	t.Parallel()
	for _, paced := range []bool{false, true} {
		t.Run(fmt.Sprintf("paced=%v", paced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ended := newSlate(), false
				in := make(chan *collector.Task)
				b := &scripted{script: func(collector.Attempt) step { return step{takes: time.Hour} }}
				p := pace.New(pace.Config{MaxAhead: 1, MaxLag: -1})
				c := setup(t, b, s, func(cfg *collector.Config) {
					cfg.More, cfg.Events.SampleFinished = stream(in, &ended), s.finished
					if paced {
						cfg.Pace, cfg.Endpoints[0].MaxInFlight = p, 9
					}
				})
				wait := run(t.Context(), c, deadlines(0, 20*time.Minute))
				for i, d := range []time.Duration{30 * time.Minute, 10 * time.Minute, 90 * time.Minute} {
					m := task("m%d", i)
					m.Samples, m.Deadline = 2, time.Now().Add(d)
					in <- m
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if st := c.Stats(); st.Skipped != 2 || st.InFlight != 1 || paced && st.Held != 5 {
					t.Errorf("skipped %d, in flight %d, held %d, want 2, 1, and 5 if it is paced", st.Skipped, st.InFlight, st.Held)
				}
				time.Sleep(time.Hour)
				p.Whole(collector.GroupID(task("t0")), pace.Failed, -1)
				close(in)
				if err := wait(); err != nil {
					t.Fatal(err)
				}
				b.check(t)
				s.want(t, "t0", "1h0m0s kept")
				s.want(t, "t1", "20m0s censored in wait")
				s.want(t, "m0", "30m0s censored in wait", "30m0s censored in wait")
				s.want(t, "m1", "10m0s censored in wait", "10m0s censored in wait")
				if paced { // both begin after 1h10m
					s.want(t, "m2", "1h30m0s censored in run", "1h30m0s censored in run")
				} else {
					s.want(t, "m2", "1h30m0s censored in run", "1h30m0s censored in wait")
				}
				st := c.Stats()
				identity(t, st)
				if st.Remaining != 0 || st.Planned != 8 {
					t.Errorf("stats %+v", st)
				}
				for _, sample := range s.samples {
					if sample.Attempt != 1 || sample.StartedAt.Before(s.start) || sample.Duration > 2*time.Hour || sample.RolloutID == "" {
						t.Errorf("%s %d: attempt %d, started %v, took %v", sample.TaskID, sample.Index, sample.Attempt, sample.StartedAt, sample.Duration)
					}
				}
			})
		})
	}
}

// A run resumed after the deadline of a group cuts its missing samples at once, including an open
// attempt, and opens no agent for them.
func TestDeadlineThatIsOver(t *testing.T) {
	t.Parallel()
	for _, more := range []bool{false, true} {
		t.Run(fmt.Sprintf("more=%v", more), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ended := newSlate(), false
				b := &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}
				in := make(chan *collector.Task)
				close(in)
				c := setup(t, b, s, func(cfg *collector.Config) {
					cfg.Events.SampleFinished = s.finished
					if more {
						cfg.More = stream(in, &ended)
					}
					cfg.Left = lefts(map[string]collector.SampleState{"t0-0": {Done: true}, "t1-0": {Attempts: 2}, "t2-0": openAt("a", 3), "t3-0": openAt("gone", 1)})
				})
				finish(t, c, deadlines(-1, -1, -1, -1, -1, 0))
				if len(b.opened) != 1 {
					t.Errorf("opened %v, want the last alone", b.opened)
				}
				for _, id := range []string{"t1", "t2", "t3", "t4"} {
					s.want(t, id, "0s censored in wait")
				}
				s.want(t, "t5", "1m0s kept")
				counts(t, c, 2, 0, 4, 0)
				attempts := map[string]int32{"t1": 3, "t2": 3, "t3": 1, "t4": 1, "t5": 1}
				for _, sample := range s.samples {
					if want := attempts[sample.TaskID]; sample.Attempt != want {
						t.Errorf("%s: attempt %d, want %d", sample.TaskID, sample.Attempt, want)
					}
				}
			})
		})
	}
}

func TestRetryFailedHasNoDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := setup(t, &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.RetryFailed = true
			cfg.Left = lefts(map[string]collector.SampleState{"t0-0": {Failed: collector.ClassCensored}, "t1-0": {Failed: collector.ClassDecode}})
		})
		finish(t, c, deadlines(-1, time.Second))
		counts(t, c, 2, 0, 0, 0)
	})
}

// A deadline cuts a sample that waits for a server that is down.
func TestDeadlineOfWhatWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlate()
		b := &scripted{script: func(collector.Attempt) step {
			if time.Since(s.start) > time.Minute {
				return step{openErr: collector.ErrConnection}
			}
			return step{takes: 40 * time.Second}
		}}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Endpoints[0].MaxInFlight, cfg.Samples, cfg.Outage = 4, 16, 3*time.Hour
			cfg.Events.SampleFinished = s.finished
		})
		finish(t, c, deadlines(10*time.Minute))
		st := c.Stats()
		identity(t, st)
		if st.Committed != 8 || st.Skipped != 8 {
			t.Errorf("committed %d, skipped %d, want 8 and 8", st.Committed, st.Skipped)
		}
		for _, end := range s.got["t0"] {
			if !strings.HasSuffix(end, " kept") && !strings.HasPrefix(end, "10m0s censored") {
				t.Errorf("ends %q, want all cut after 10m", s.got["t0"])
			}
		}
	})
}

// A deadline cuts a sample that waits between a server that is down and a full one.
func TestDeadlineBetweenServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlate()
		a := newHost(time.Hour, false, func(now time.Duration) bool { return now >= time.Minute })
		b := newHost(time.Hour, false, nil)
		c := setup(t, nil, s, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: a, MaxInFlight: 3}, {Name: "b", Backend: b, MaxInFlight: 1}}
			cfg.Events.SampleFinished = s.finished
			cfg.Left = lefts(map[string]collector.SampleState{"t0-0": openAt("b", 1)})
		})
		finish(t, c, deadlines(0, 11*time.Minute, 10*time.Minute, 12*time.Minute))
		counts(t, c, 1, 0, 3, 0)
		s.want(t, "t0", "1h0m0s kept")
		for id, end := range map[string]string{"t1": "11m0s", "t2": "10m0s", "t3": "12m0s"} {
			s.want(t, id, end+" censored in run")
		}
	})
}

// Samples cut behind a paused group are freed, so a producer can continue during a long pause.
func TestWhatIsCutIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, ended, p := make(chan *collector.Task), false, pace.New(pace.Config{MaxLag: -1})
		p.Pause()
		c := setup(t, &scripted{}, newSlate(), func(cfg *collector.Config) { cfg.More, cfg.Pace = stream(in, &ended), p })
		wait := run(t.Context(), c, tasks(0))
		in <- task("first")
		var left []weak.Pointer[collector.Task]
		for i := range 100 {
			m := task("m%d", i)
			m.Deadline = time.Now().Add(time.Minute)
			left = append(left, weak.Make(m))
			in <- m
		}
		time.Sleep(time.Hour)
		in <- task("last") // no goroutine still holds the one before it
		synctest.Wait()
		counts(t, c, 0, 0, 100, 2)
		runtime.GC()
		kept := 0
		for _, m := range left {
			if m.Value() != nil {
				kept++
			}
		}
		if kept > 2 {
			t.Errorf("%d of 100 tasks that were cut are in the memory", kept)
		}
		p.Resume()
		close(in)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		counts(t, c, 2, 0, 100, 0)
	})
}

// If the deadline comes while the prompts are fetched, a sample keeps the calls that were not lost:
// no attempt could follow.
func TestDeadlineKeepsKnownCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
			time.Sleep(2 * time.Minute)
			return fromTurns(ctx, r)
		}
		b := &scripted{script: func(collector.Attempt) step {
			return step{reply: lostOfTwo(collector.ErrConnection), prompts: slow}
		}}
		s := &shelf{atOnce: true}
		c := setup(t, b, s, func(cfg *collector.Config) { cfg.Retries = 3 })
		finish(t, c, deadlines(time.Minute))
		st := counts(t, c, 1, 0, 0, 0)
		if st.Attempts != 1 || st.LostCalls != 2 || len(s.samples[0].Rows) != 1 {
			t.Errorf("%d attempts, %d lost calls, %d rows, want 1, 2 and 1", st.Attempts, st.LostCalls, len(s.samples[0].Rows))
		}
	})
}
