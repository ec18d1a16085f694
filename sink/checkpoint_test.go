package sink_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// The checkpoints of epoch 1.
const (
	logCheckpoint  = "_checkpoints/00000000000000000001.log.zst"
	tailCheckpoint = "_checkpoints/00000000000000000001.tail.zst"
)

// TestCheckpoints tests that a log of 1,000 commits costs few requests, and that a checkpoint that
// is missing, old or damaged changes nothing but the number of requests.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	b, dir := newBucket(t), t.TempDir()
	cfg := b.next(t, sink.Config{CommitGroups: true, FS: unsynced{sink.OS()}})
	d := open(t, dir, cfg)
	d.SetSyncEvery(0)
	wait := start(t.Context(), t, d)
	builder := sinktest.NewBuilder(1)
	var early [2][]byte // the checkpoints after some commits
	for i := range 1000 {
		s := builder.Sample()
		if i%50 == 0 {
			s = builder.Sample(builder.Row(2, 3))
		}
		commitAll(t, d, alone([]*tokenize.Sample{s})...)
		if i == 500 {
			early = [2][]byte{b.get(t, logCheckpoint), b.get(t, tailCheckpoint)}
		}
	}
	must(t, errors.Join(d.Close(t.Context()), wait()))
	if d.Stats().Merges < 10 { // the number depends on the load of the machine
		t.Errorf("%d merges", d.Stats().Merges)
	}
	late := [2][]byte{b.get(t, logCheckpoint), b.get(t, tailCheckpoint)}

	// read returns the numbers and digests of the entries, and how many requests it took.
	read := func(t *testing.T) (entries []string, requests int64) {
		t.Helper()
		c := b.client(t)
		before := c.reads()
		log := c.readLog(t)
		requests = c.reads() - before
		for i := range log.Commits {
			entries = append(entries, log.Commits[i].SHA256)
		}
		_, err := sink.ReadLogIn(c, "", func(c *sink.Commit) { entries = append(entries, c.Samples[0].Key) })
		must(t, err)
		return append(entries, string(rune(log.Last())), log.Claim().Worker), requests
	}
	want, requests := read(t)
	t.Logf("%d requests, %d and %d bytes", requests, len(late[0]), len(late[1]))
	if requests > 7 {
		t.Errorf("a reader made %d requests", requests)
	}
	b.verify(t)

	for _, tt := range []struct {
		name      string
		log, tail []byte // nil: none
		most      int64
	}{
		{"none", nil, nil, 5000},
		{"no tail", late[0], nil, 300},
		{"only the tail", nil, late[1], 5000},
		{"old", early[0], early[1], 1000},
		{"old log", early[0], late[1], 1000},
		{"old tail", late[0], early[1], 300},
		{"truncated", late[0][:len(late[0])/2], late[1][:len(late[1])/2], 5000},
		{"flipped bit", flip(late[0]), flip(late[1]), 5000},
		{"lacks an entry", lines(t, late[0], func(l [][]byte) [][]byte { return slices.Delete(l, 2, 3) }), late[1], 5000},
		{"changed entry", lines(t, late[0], func(l [][]byte) [][]byte {
			l[2] = bytes.Replace(l[2], []byte(`"attempt":1`), []byte(`"attempt":2`), 1)
			return l
		}), late[1], 5000},
		{"another version", lines(t, late[0], func(l [][]byte) [][]byte {
			l[0] = bytes.Replace(l[0], []byte(`"version":1`), []byte(`"version":2`), 1)
			return l
		}), late[1], 5000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, body := range map[string][]byte{logCheckpoint: tt.log, tailCheckpoint: tt.tail} {
				must(t, b.Delete(name))
				if body != nil {
					must(t, b.Put(name, body))
				}
			}
			got, n := read(t)
			if !slices.Equal(got, want) || n > tt.most {
				t.Errorf("another log, or %d requests", n)
			}
		})
	}

	// The next process continues with the checkpoints, and the one after it with old ones.
	must(t, errors.Join(b.Put(logCheckpoint, late[0]), b.Put(tailCheckpoint, late[1])))
	cold := b.client(t)
	d = open(t, dir, cold.next(t, cfg))
	ledger, err := d.Ledger()
	must(t, err)
	if done, failed := ledger.Counts(); done != 1000 || failed > 0 {
		t.Errorf("the ledger has %d samples, and %d failed", done, failed)
	}
	r := cold.requests
	n := cold.reads() + r.Put.Load() + r.Delete.Load() - 1 // one is from store.Open
	t.Logf("Create and Ledger made %d requests: %d get, %d list, %d put", n, r.Get.Load(), r.List.Load(), r.Put.Load())
	if n > 9 { // a worker also reads the tasks: 10
		t.Errorf("Create and Ledger made %d requests", n)
	}
	must(t, errors.Join(b.Put(logCheckpoint, early[0]), b.Put(tailCheckpoint, early[1])))
	d = open(t, dir, b.next(t, cfg))
	wait = start(t.Context(), t, d)
	commitAll(t, d, alone([]*tokenize.Sample{builder.Sample(), builder.Sample()})...)
	must(t, errors.Join(d.Close(t.Context()), wait(), d.Seal()))
	if _, n := read(t); n > 7 {
		t.Errorf("a reader of the sealed log made %d requests", n)
	}
	if r := b.verify(t); r.Samples != 1002 || len(r.Orphans) > 0 {
		t.Errorf("Verify = %+v", r)
	}
}

// checkpoint returns the name of the newest checkpoint of a kind.
func (b *testBucket) checkpoint(kind string) (name string) {
	for _, key := range b.server.Keys("bucket") {
		if strings.Contains(key, "_checkpoints/") && strings.HasSuffix(key, kind+".zst") {
			name = strings.TrimPrefix(key, "run/")
		}
	}
	return name
}

// TestLateCheckpoint tests that a checkpoint that a fenced process writes last does not make the log
// of the next process slow to read.
func TestLateCheckpoint(t *testing.T) {
	t.Parallel()
	b, dir := newBucket(t), t.TempDir()
	builder := sinktest.NewBuilder(1)
	run := func(commits int, seal bool) {
		d := open(t, dir, b.next(t, sink.Config{CommitGroups: true, MergeAt: 1000, FS: unsynced{sink.OS()}}))
		d.SetSyncEvery(0)
		wait := start(t.Context(), t, d)
		for range commits {
			commitAll(t, d, alone([]*tokenize.Sample{builder.Sample()})...)
		}
		if must(t, errors.Join(d.Close(t.Context()), wait())); seal {
			must(t, d.Seal())
		}
	}
	run(63, false)
	late := map[string][]byte{}
	for _, kind := range []string{"log", "tail"} {
		late[b.checkpoint(kind)] = b.get(t, b.checkpoint(kind))
	}
	run(130, true)
	for name, body := range late {
		must(t, b.Put(name, body))
	}
	c := b.client(t)
	before := c.reads()
	if log := c.readLog(t); !log.Sealed() || len(log.Commits) != 193 {
		t.Errorf("%d commits, sealed %t", len(log.Commits), log.Sealed())
	}
	if n := c.reads() - before; n > 8 {
		t.Errorf("a reader made %d requests", n)
	}
	b.verify(t)
}

// TestForeignCheckpoint tests that checkpoints without their entries are not the dataset, that Create
// does not begin the log again, and that they do not disturb another run below the same prefix.
func TestForeignCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	for _, s := range alone(samples(3)) {
		sinktest.Write(t, t.TempDir(), b.next(t, sink.Config{}), []*tokenize.Sample{s})
	}
	deleteAfter := func(seq int) {
		for _, key := range b.server.Keys("bucket") {
			if key > entryKey(seq) && strings.HasPrefix(key, "run/_commits/") {
				must(t, b.Delete(strings.TrimPrefix(key, "run/")))
			}
		}
	}
	lost := func(commits int, want string) {
		t.Helper()
		if log := b.readLog(t); len(log.Commits) != commits {
			t.Errorf("%d commits in a log with %d", len(log.Commits), commits)
		}
		r, err := sink.Verify(t.Context(), "", sink.VerifyOptions{Store: b})
		if err != nil || r.ProblemCount != 1 || !strings.Contains(r.Problems[0].Error(), want) {
			t.Errorf("Verify: %v, %v, want %q", err, r.Problems, want)
		}
	}
	refused := func() {
		t.Helper()
		before := b.server.Keys("bucket")
		_, err := sink.Create(t.TempDir(), b.next(t, sink.Config{}))
		if !errors.Is(err, sink.ErrCorrupt) || errors.Is(err, sink.ErrLostCommit) || !strings.Contains(err.Error(), "6.json") { // ErrLostCommit can be repaired
			t.Errorf("Create: %v, want ErrCorrupt", err)
		}
		if after := b.server.Keys("bucket"); !slices.Equal(before, after) {
			t.Errorf("the bucket has changed: %q, was %q", after, before)
		}
	}
	deleteAfter(4)
	refused()
	lost(2, "the checkpoint contains entry 6, but the log ends at entry 4")
	deleteAfter(0)
	refused()
	lost(0, "the checkpoint contains entry 6, but the log ends at entry 0")
	dir := t.TempDir()
	cfg := b.next(t, sink.Config{RunID: "other"})
	sinktest.Write(t, dir, cfg, alone(samples(2)))
	if log := b.readLog(t); len(log.Commits) != 1 || log.Commits[0].RunID != "other" {
		t.Errorf("the log has %+v", log.Commits)
	}
	r, err := sink.Verify(t.Context(), "", sink.VerifyOptions{Store: b})
	if err != nil || r.ProblemCount != 1 || !strings.Contains(r.Problems[0].Error(), "contains entry 6, but the log ends at entry 2") {
		t.Errorf("Verify: %v, %v", err, r.Problems)
	}
}

// TestCheckpointCost tests that the cost of checkpoints per commit does not grow with the log.
func TestCheckpointCost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1000, 10_000, 100_000} {
		logs, tails, lines := sink.CheckpointCost(n)
		t.Logf("%d entries: %d log checkpoints, %d tail checkpoints, %d lines per entry", n, logs, tails, lines/n)
		if lines/n > 100 {
			t.Errorf("%d entries: %d lines per entry", n, lines/n)
		}
	}
}

func flip(body []byte) []byte {
	body = bytes.Clone(body)
	body[len(body)/2] ^= 1
	return body
}

// lines changes the lines of a checkpoint.
func lines(t *testing.T, body []byte, edit func([][]byte) [][]byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(nil)
	must(t, err)
	defer z.Close()
	text, err := z.DecodeAll(body, nil)
	must(t, err)
	list := slices.Collect(bytes.Lines(text))
	w, err := zstd.NewWriter(nil)
	must(t, err)
	return w.EncodeAll(bytes.Join(edit(list), nil), nil)
}
