package collector_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

func TestOpenAttemptsFirstThenBegunGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(collector.Attempt) step { return step{takes: time.Second} }
		a, b, s := &revived{scripted: scripted{script: slow}}, &revived{scripted: scripted{script: slow}}, &shelf{atOnce: true}
		j := &notebook{}
		left := map[string]collector.SampleState{
			"t1-0": {Done: true},
			"t3-1": openAt("b", 2), "t4-0": openAt("a", 1), "t4-1": openAt("elsewhere", 3),
			"t5-0": {Attempts: 2, Charged: 1}, "t6-0": {Failed: collector.ClassAgentError},
		}
		var late []string
		c := setup(t, a, s, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: a, MaxInFlight: 1}, {Name: "b", Backend: b, MaxInFlight: 1}}
			cfg.Samples, cfg.Planned, cfg.Left, cfg.Journal = 2, 14, lefts(left), j
			cfg.Events.Reattached = func(a collector.Attempt, _ string, err error) {
				if err != nil && errors.Is(err, collector.ErrGone) {
					late = append(late, collector.RolloutID(taskOf(a.Key), a.N))
				}
			}
		})
		finish(t, c, tasks(7))
		a.check(t)
		b.check(t)
		var got []string
		for _, sample := range s.samples {
			got = append(got, fmt.Sprintf("%s/%d", taskOf(sample.Key), sample.Attempt))
		}
		// Two at a time: the order within a pair depends on the goroutines.
		for i := 0; i+1 < len(got); i += 2 {
			slices.Sort(got[i : i+2])
		}
		want := []string{"t3-1/2", "t4-0/1", "t1-1/1", "t4-1/4", "t3-0/1", "t5-0/3", "t5-1/1", "t6-1/1", "t0-0/1", "t0-1/1", "t2-0/1", "t2-1/1"}
		same(t, "order", got, want)
		if len(a.reattached) != 1 || len(b.reattached) != 1 || b.reattached[0].N != 2 || b.was[0].Kind != collector.KindReattach {
			t.Errorf("reattached at a: %+v, at b: %+v", a.reattached, b.reattached)
		}
		st := counts(t, c, 13, 1, 0, 0)
		if st.Earlier != (collector.Earlier{Committed: 1, Failed: 1}) || st.ByClass[collector.ClassAgentError] != 1 {
			t.Errorf("earlier %+v, by class %v", st.Earlier, st.ByClass)
		}
		if st.Reattached != 2 || st.Gone != 1 || st.Attempts != 12 || st.Retries != 2 || st.InfraRetries != 2 || !slices.Equal(late, []string{"t4-1/3"}) {
			t.Errorf("reattached %d, gone %d %v, attempts %d, retries %d", st.Reattached, st.Gone, late, st.Attempts, st.Retries)
		}
		for _, sample := range s.samples {
			if sample.Rows[0].Flags&tokenize.FlagReattached != 0 { // all answers were received
				t.Errorf("%s: flags %v", taskOf(sample.Key), sample.Rows[0].Flags)
			}
		}
		// Entries of the process that made the attempt are not written again.
		for _, line := range []string{"begin t3-1/2 reattach at b", "run t3-1/2 run-old"} {
			if slices.Contains(j.lines, line) {
				t.Errorf("journal has %q", line)
			}
		}
		for _, line := range []string{"run t3-1/2 run-new", "end t3-1/2 none false", "end t4-1/3 lost false"} {
			if !slices.Contains(j.lines, line) {
				t.Errorf("journal lacks %q: %q", line, j.lines)
			}
		}
		begun := 0
		for _, line := range j.lines {
			if strings.HasPrefix(line, "begin t4-1/4 infra_retry") || strings.HasPrefix(line, "begin t5-0/3 infra_retry") || strings.HasPrefix(line, "begin t6-1/1 first") {
				begun++
			}
		}
		if begun != 3 {
			t.Errorf("journal %q", j.lines)
		}
	})
}

// An attempt that cannot be taken over costs nothing, and is made again at once under the next
// number.
func TestGoneCostsNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step step
	}{
		{"nothing is there", step{openErr: fmt.Errorf("no agent: %w", collector.ErrGone)}},
		{"not every token is there", step{runErr: fmt.Errorf("no trace: %w", collector.ErrGone)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &revived{scripted: scripted{script: func(a collector.Attempt) step {
					if a.Kind == collector.KindReattach {
						return tt.step
					}
					return step{}
				}}}
				j, s := &notebook{}, &shelf{atOnce: true}
				c := setup(t, b, s, func(cfg *collector.Config) {
					cfg.Left, cfg.Journal = lefts(map[string]collector.SampleState{"t0-0": openAt("a", 4)}), j
				})
				start := time.Now()
				finish(t, c, tasks(1))
				b.check(t)
				st := counts(t, c, 1, 0, 0, 0)
				if st.Gone != 1 || st.Reattached != 0 || s.samples[0].Attempt != 5 || time.Since(start) != 0 {
					t.Errorf("gone %d, reattached %d, attempt %d, took %v", st.Gone, st.Reattached, s.samples[0].Attempt, time.Since(start))
				}
				if !slices.Contains(j.lines, "end t0-0/4 lost false") {
					t.Errorf("journal %q", j.lines)
				}
			})
		})
	}
}

// A server that is away during a takeover does not cost the attempt: the lookup is retried until
// the server is back.
func TestReattachWaitsForItsServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &revived{scripted: scripted{script: func(a collector.Attempt) step {
			if away := time.Since(start); away > time.Second && away < 20*time.Second {
				return step{openErr: collector.ErrConnection}
			}
			return step{takes: time.Second}
		}}}
		s, j := &shelf{atOnce: true}, &notebook{}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Retries, cfg.Journal = 3, j
			cfg.Left = lefts(map[string]collector.SampleState{"t0-0": openAt("a", 1), "t1-0": openAt("a", 2), "t2-0": openAt("a", 1)})
		})
		finish(t, c, tasks(3))
		b.check(t)
		st := counts(t, c, 3, 0, 0, 0)
		if st.Reattached != 3 || st.Gone != 0 || len(b.reattached) < 5 || st.Retries != 0 {
			t.Errorf("reattached %d in %d tries, gone %d, retries %d", st.Reattached, len(b.reattached), st.Gone, st.Retries)
		}
		for _, line := range j.lines {
			if strings.HasPrefix(line, "begin") || strings.HasPrefix(line, "end") && !strings.HasSuffix(line, "none false") {
				t.Errorf("journal has %q", line)
			}
		}
	})
}

// If a reattached attempt fails, the next attempt is a new one.
func TestReattachedAttemptFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &revived{scripted: scripted{script: func(a collector.Attempt) step {
			if a.Task.ID == "t1" && a.Kind == collector.KindReattach {
				return step{runErr: collector.ErrServer}
			}
			return step{}
		}}}
		s, j := &shelf{atOnce: true}, &notebook{}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Retries, cfg.Journal = 1, j
			cfg.Left = lefts(map[string]collector.SampleState{"t0-0": openAt("a", 1), "t1-0": openAt("a", 3)})
		})
		finish(t, c, tasks(2))
		b.check(t)
		st := counts(t, c, 2, 0, 0, 0)
		if st.Reattached != 1 || st.Gone != 0 || st.InfraRetries != 1 || len(b.reattached) != 2 || s.samples[1].Attempt != 4 {
			t.Errorf("reattached %d in %d tries, gone %d, infra retries %d, attempt %d", st.Reattached, len(b.reattached), st.Gone, st.InfraRetries, s.samples[1].Attempt)
		}
		for _, line := range []string{"end t1-0/3 server_error true", "begin t1-0/4 infra_retry at a"} {
			if !slices.Contains(j.lines, line) {
				t.Errorf("journal lacks %q: %q", line, j.lines)
			}
		}
	})
}

func TestOpenAttemptsOfLostEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dead := &revived{scripted: scripted{script: func(collector.Attempt) step { return step{openErr: collector.ErrConnection} }}}
		b, s := &revived{}, &shelf{atOnce: true}
		left := map[string]collector.SampleState{}
		for i := range 8 {
			left[fmt.Sprintf("t%d-0", i)] = openAt("dead", 2)
		}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "dead", Backend: dead, MaxInFlight: 2}, {Name: "b", Backend: b, MaxInFlight: 2}}
			cfg.Left, cfg.Planned, cfg.Outage = lefts(left), 10, time.Minute
		})
		finish(t, c, tasks(10))
		b.check(t)
		st := counts(t, c, 10, 0, 0, 0)
		if st.Gone != 8 || st.Reattached != 0 || !st.Endpoints[0].Lost {
			t.Errorf("gone %d, reattached %d, endpoints %+v", st.Gone, st.Reattached, st.Endpoints)
		}
	})
}
