package sink_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestReadBucket tests that all readers return the same from a bucket as from a folder.
func TestReadBucket(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			dir, b := t.TempDir(), newBucket(t)
			cfg := sink.Config{Format: format, MergeAt: 5}
			smallCommits(t, dir, cfg, 12, 3)
			d := open(t, dir, cfg)
			if n, err := d.MergeAll(t.Context()); err != nil || n == 0 {
				t.Fatalf("%d merges, %v", n, err)
			}
			b.upload(t, dir)
			got, want := linesOf(t, b.readLog(t)), logicalOf(t, dir)
			if !slices.Equal(got, want) {
				t.Errorf("the bucket has other samples than the folder: %d lines, want %d", len(got), len(want))
			}
			if got, want := b.verify(t), wholeVerify(t, dir); got.Samples != want.Samples || got.Rows != want.Rows || len(got.Orphans) > 0 {
				t.Errorf("Verify = %+v, want %+v", got, want)
			}
			ledger, err := sink.ReadLedger(b, "")
			must(t, err)
			local, err := sink.ReadLedger(nil, dir)
			must(t, err)
			if ledger.Len() != local.Len() {
				t.Errorf("a ledger of %d samples, want %d", ledger.Len(), local.Len())
			}
			must(t, b.readLog(t).CheckSizes())
			must(t, b.readLog(t).CheckDigests(t.Context(), nil, func(err error) { t.Error(err) }))
		})
	}
}

// TestPeekBucket tests that one row of a large shard costs few requests, and that damage is found
// with and without a digest in the store.
func TestPeekBucket(t *testing.T) {
	t.Parallel()
	dir, b := t.TempDir(), newBucket(t)
	builder := sinktest.NewBuilder(1)
	var all []*tokenize.Sample
	for range 450 {
		all = append(all, builder.Sample(builder.Row(2000, 6000)))
	}
	sinktest.Write(t, dir, sink.Config{RowGroupTokens: 200_000}, alone(all))
	b.upload(t, dir)
	log := b.readLog(t)
	shard := slices.Collect(log.Shards(sink.KindData))[0]
	if shard.Bytes < 9<<20 {
		t.Fatalf("a shard of %d bytes", shard.Bytes)
	}
	var want []sink.StoredRow
	for row := range each(t, log.Rows(shard)) { // through a file
		want = append(want, *row)
	}
	compareRow := func(n int64) {
		t.Helper()
		row, err := log.Row(shard, n)
		must(t, err)
		differ(t, "row", row, &want[n])
	}
	before := b.requests.Get.Load()
	compareRow(shard.Rows / 2)
	if n := b.requests.Get.Load() - before; n > 5 {
		t.Errorf("one row of %d bytes cost %d requests", shard.Bytes, n)
	}
	before = b.requests.Get.Load()
	if meta, err := log.Meta(shard); err != nil || len(meta) > 0 || b.requests.Get.Load()-before > 3 {
		t.Errorf("Meta() = %v, %v, with %d requests", meta, err, b.requests.Get.Load()-before)
	}

	body, err := b.Get(shard.Path)
	must(t, err)
	for _, at := range []int{len(body) / 2, len(body) - 6} { // a page, the footer's length
		damaged := bytes.Clone(body)
		for i := range 2 {
			damaged[at+i] ^= 0x55
		}
		must(t, b.Put(shard.Path, damaged))
		if _, err := log.Row(shard, 0); !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), "sha256") {
			t.Errorf("a row of another file: %v", err)
		}
		b.proxy.Plan(func(r *http.Request) storetest.Fault { return withoutSum })
		for _, n := range []int64{0, shard.Rows - 1} { // in other row groups
			if _, err := log.Row(shard, n); !errors.Is(err, sink.ErrCorrupt) {
				t.Errorf("row %d with damage at %d of %d: %v", n, at, len(body), err)
			}
		}
		b.proxy.Plan(nil)
	}
}

// TestPeekDamage tests that a damaged footer is an error and not a panic, if the store keeps the
// right digest.
func TestPeekDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sinktest.Write(t, dir, sink.Config{Meta: map[string]string{"key": "value"}}, samples(2))
	shard := readLog(t, dir).Commits[0].Shards[0]
	bent := &bentStore{store.Folder(sink.OS(), dir), shard.SHA256, -1}
	log, err := sink.ReadLogIn(bent, "", nil)
	must(t, err)
	if meta, err := log.Meta(shard); err != nil || meta["key"] != "value" {
		t.Fatalf("Meta() = %v, %v", meta, err)
	}
	body, err := bent.Get(shard.Path)
	must(t, err)
	begin := shard.Bytes - 8 - int64(binary.LittleEndian.Uint32(body[shard.Bytes-8:]))
	found := 0
	for bent.at = begin; bent.at < begin+1000; bent.at++ {
		_, err := log.Meta(shard)
		if errors.Is(err, sink.ErrCorrupt) {
			found++
		}
		if err == nil && bent.at%16 == 0 {
			_, err = log.Row(shard, 0)
		}
		if err != nil && !errors.Is(err, sink.ErrCorrupt) {
			t.Errorf("byte %d: %v", bent.at, err)
		}
	}
	if found == 0 {
		t.Error("no damage is found")
	}
}

// A bentStore flips one bit of each object, and keeps the digest that the object had before.
type bentStore struct {
	store.Store
	sum string
	at  int64
}

type bentObject struct {
	store.Object
	*bentStore
}

func (s *bentStore) Open(name string) (store.Object, error) {
	o, err := s.Store.Open(name)
	return bentObject{o, s}, err
}

func (o bentObject) SHA256() string { return o.sum }

func (o bentObject) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(p, off)
	if at := o.at - off; at >= 0 && at < int64(n) {
		p[at] ^= 1
	}
	return n, err
}

// withoutSum is a server that keeps no digests.
func withoutSum(w http.ResponseWriter, r *http.Request, server http.Handler) {
	server.ServeHTTP(noSum{w}, r)
}

type noSum struct{ http.ResponseWriter }

func (s noSum) WriteHeader(status int) {
	s.Header().Del("X-Amz-Checksum-Sha256")
	s.ResponseWriter.WriteHeader(status)
}
