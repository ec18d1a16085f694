package tap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// check compares the matches with the truth: every claimed prompt must be the engine's.
func (f *fleet) check(id string, found []Match) error {
	repeats := map[string]int{}
	for k, m := range found {
		if m.Call == nil {
			if m.Unshown != (tokenize.Unshown{}) {
				return fmt.Errorf("%s call %d: not found, and counts %v", id, k, m.Unshown)
			}
			continue
		}
		repeat := repeatOf(id, m.Call.Prompt)
		if repeats[repeat] += int(m.Unshown.Retries); repeats[repeat] > f.repeats[repeat] {
			return fmt.Errorf("%s call %d: %d repeated, %d were", id, k, repeats[repeat], f.repeats[repeat])
		}
		if want := f.prompts[id][k]; !slices.Equal(m.Call.Prompt, want) {
			return fmt.Errorf("%s call %d: got the prompt %v, the engine had %v", id, k, m.Call.Prompt, want)
		}
		asked := m.Call.Asked
		if asked == nil {
			asked = m.Call.Prompt
		}
		if want := f.sent[id][k]; !slices.Equal(asked, want) {
			return fmt.Errorf("%s call %d: got asked %v, the server sent %v", id, k, asked, want)
		}
	}
	return nil
}

// play delivers the tap's calls and joins the rollouts in random order, some before all calls are
// delivered. It returns how many calls were found, and how many exist.
func (f *fleet) play(r *rand.Rand, told, early bool) (found, all int, refused map[Refusal]int, err error) {
	tap := &fakeFeed{}
	x := NewIndex(IndexConfig{Slack: time.Minute}, tap)
	refused = map[Refusal]int{}
	var todo []*Rollout
	for i := range f.rollouts {
		todo = append(todo, &f.rollouts[i])
	}
	r.Shuffle(len(todo), func(a, b int) { todo[a], todo[b] = todo[b], todo[a] })
	lost := f.lost
	if told {
		for _, c := range lost {
			x.gaps = append(x.gaps, gap{c.Began, c.Ended, -1, ""})
		}
	}
	seen := f.seen
	for len(todo) > 0 {
		if len(seen) > 0 && (!early || r.IntN(64) > 0) {
			x.add(seen[0])
			seen = seen[1:]
			continue
		}
		if len(seen) == 0 {
			tap.done = true
		}
		matches := x.Join(context.Background(), todo[0])
		if err := f.check(todo[0].ID, matches); err != nil {
			return 0, 0, nil, err
		}
		for _, m := range matches {
			all++
			if m.Call != nil {
				found++
			}
			refused[m.Refusal]++
		}
		todo = todo[1:]
	}
	if n := x.Stats().Claimed; n != int64(found) {
		return 0, 0, nil, fmt.Errorf("%d calls were claimed, %d given away", n, found)
	}
	return found, all, refused, nil
}

type fakeFeed struct {
	done bool // everything was delivered
	lost int64
	err  error
	seen chan *Call
}

var errBehind = errors.New("not all was delivered")

func (f *fakeFeed) Next(ctx context.Context) (*Call, error) {
	select {
	case c := <-f.seen:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fakeFeed) Await(context.Context, time.Time) error {
	if f.done {
		return nil
	}
	return errBehind
}

func (f *fakeFeed) Skew() time.Duration     { return 0 }
func (f *fakeFeed) Trouble() (int64, error) { return f.lost, f.err }

// anyFleet returns a configuration with random probabilities. If calls can be missing, only the
// log-probabilities of short outputs are planted: only those are equal in practice.
func anyFleet(r *rand.Rand) fleetConfig {
	chance := func() float64 { return r.Float64() * float64(r.IntN(2)) }
	c := fleetConfig{
		shared: chance(), rewritten: chance(), compacted: chance(), short: chance(), planted: chance(), dropped: chance(),
		twice: chance(), spliced: chance(), uncounted: chance(), skew: 50 * time.Second,
	}
	c.sure = c.dropped > 0
	return c
}

// TestJoinRandom joins random fleets. No rollout ever gets a prompt that its engine did not have,
// whichever calls are equal, missing, duplicated or late. Drops are reported, except in the last case.
func TestJoinRandom(t *testing.T) {
	t.Parallel()
	usual := fleetConfig{shared: 0.3, rewritten: 0.3, compacted: 0.05, short: 0.5, twice: 0.1, spliced: 0.1, uncounted: 0.5, skew: 50 * time.Second}
	planted, drops, all := usual, usual, usual
	planted.planted = 0.7
	drops.dropped = 0.15
	all.dropped, all.planted, all.sure, all.shared, all.short = 0.15, 0.5, true, 0.7, 0.8
	for _, tt := range []struct {
		name  string
		cfg   fleetConfig
		told  bool
		least float64 // fraction of the calls that must be found
		any   bool    // each fleet has a configuration of its own
	}{
		{"nothing goes wrong", fleetConfig{}, true, 1, false},
		{"the usual", usual, true, 0.5, false},
		{"planted collisions", planted, true, 0.3, false},
		{"dropped calls", drops, true, 0.3, false},
		{"everything", all, true, 0.1, false},
		{"names, and history that begins anew", fleetConfig{compacted: 0.6, short: 0.6, dropped: 0.2, twice: 0.3, named: true, skew: 5 * time.Second}, true, 0.1, false},
		{
			"all a little", // a fuzzer's find
			fleetConfig{shared: 0.19, rewritten: 0.19, compacted: 0.19, short: 0.34, planted: 0.19, sure: true, dropped: 0.19, twice: 0.19, spliced: 0.19, uncounted: 0.19, skew: 50 * time.Second},
			true, 0, false,
		},
		{"any", fleetConfig{}, true, 0, true},
		{"drops that nobody tells", fleetConfig{shared: 0.5, rewritten: 0.3, compacted: 0.05, dropped: 0.2, twice: 0.1}, false, 0.7, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, all := 0, 0
			sum := map[Refusal]int{}
			seeds := uint64(1500)
			if testing.Short() {
				seeds = 200
			}
			base := uint64(0)
			if tt.any {
				base = rand.Uint64()
			}
			for seed := range seeds {
				r, cfg := rand.New(rand.NewPCG(base+seed, 14)), tt.cfg
				if tt.any {
					cfg = anyFleet(r)
				}
				f := newFleet(r, cfg)
				early := cfg != (fleetConfig{}) && (tt.least > 0 || seed%2 == 0)
				n, of, refused, err := f.play(r, tt.told, early)
				if err != nil {
					t.Fatalf("seed %d: %v", base+seed, err)
				}
				found, all = found+n, all+of
				for k, n := range refused {
					sum[k] += n
				}
			}
			t.Logf("found %d of %d calls; %v", found, all, sum)
			if float64(found) < tt.least*float64(all) {
				t.Errorf("found %d of %d calls, want %.0f %%", found, all, 100*tt.least)
			}
		})
	}
}
