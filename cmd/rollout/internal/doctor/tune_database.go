package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

const (
	// perRollout is the most PostgreSQL connections that a rollout uses without a pool.
	perRollout = 4
	// mostReads bounds the parallel reads.
	mostReads = 256
	firstRead = 8
)

type burst struct {
	n      int
	failed int
	median time.Duration // of the successful ones
	took   time.Duration
	err    error // of one failed read
}

// database reads the number of agents, which is a cheap call, first once and then with doubling
// parallelism. It goes up to the connections that a run with max_in_flight samples needs. It stops
// at the first failure, because others can use the server too.
func (d *Doctor) database(ctx context.Context, at int, own settings) {
	const name = "database"
	client, err := d.Probe(at)
	if err != nil {
		d.failed(name, err)
		return
	}
	defer client.CloseIdle()
	inFlight := d.Config.InFlight(&d.Config.Server.URLs[at])
	need := perRollout * inFlight
	one := d.burst(ctx, client, 1)
	last := one
	for n := min(firstRead, need, mostReads); last.failed == 0 && n > last.n && ctx.Err() == nil; n = min(2*n, need, mostReads) {
		if b := d.burst(ctx, client, n); b.failed > 0 {
			d.exhausted(name, b, last, inFlight, own)
			return
		} else {
			last = b
		}
	}
	if one.failed > 0 {
		d.report(Hint, name, "a read failed: "+oneLine(one.err), nil, "")
		return
	}
	text := fmt.Sprintf("%d parallel reads succeed, %.0f per second (measured: one read %s, median of %d %s)",
		last.n, float64(last.n)/last.took.Seconds(), short(one.median), last.n, short(last.median))
	if last.n < need {
		text += fmt.Sprintf("; %d samples in flight can need %d PostgreSQL connections", inFlight, need)
	}
	d.ok(name, "%s", text)
}

// exhausted reports failed reads. before is the last burst without a failure.
func (d *Doctor) exhausted(name string, b, before burst, inFlight int, own settings) {
	text := fmt.Sprintf("%d of %d parallel reads failed, %d succeeded: %s", b.failed, b.n, before.n, oneLine(b.err))
	fit := max(before.n/perRollout, 1)
	cure := fmt.Sprintf("set PostgreSQL's max_connections above %d × server.max_in_flight (%d) per server process, or use a pool (see pool), or --max-in-flight %d", perRollout, inFlight, fit)
	if disabled, given := own.flag("LETTA_DISABLE_SQLALCHEMY_POOLING"); given && !disabled {
		cure = fmt.Sprintf("set PostgreSQL's max_connections above the total of all pools (LETTA_PG_POOL_SIZE + LETTA_PG_MAX_OVERFLOW per process), or use --max-in-flight %d", fit)
	}
	d.report(Hint, name, text, effect("without a pool a rollout takes 3–4 connections and fails with a 500 if none is free: with PostgreSQL's limit of 100, 3 of 32 parallel sends failed, and 48 of 64 (%s)", reference), cure)
}

func (d *Doctor) burst(ctx context.Context, client *letta.Client, n int) burst {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var (
		mu    sync.Mutex
		all   sync.WaitGroup
		times []time.Duration
		b     = burst{n: n}
	)
	began := time.Now()
	for range n {
		all.Go(func() {
			began := time.Now()
			_, err := client.CountAgents(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				b.failed++
				if b.err == nil || errors.Is(err, letta.ErrServer) { // it says most
					b.err = err
				}
				return
			}
			times = append(times, time.Since(began))
		})
	}
	all.Wait()
	b.took = time.Since(began)
	if len(times) > 0 {
		slices.Sort(times)
		b.median = times[len(times)/2]
	}
	return b
}
