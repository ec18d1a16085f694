package sink_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// spoiled is a dataset on disk that a test damages. Commit 1 has data and failures, commit 2 data.
type spoiled struct {
	t   *testing.T
	dir string
}

func (s spoiled) entry(seq int) string {
	return filepath.Join(s.dir, "_commits", fmt.Sprintf("%020d.json", seq))
}

func (s spoiled) write(name string, body []byte) {
	s.t.Helper()
	must(s.t, os.WriteFile(name, body, 0o666))
}

// commit changes an entry.
func (s spoiled) commit(seq int, edit func(c *sink.Commit)) {
	s.t.Helper()
	var c sink.Commit
	must(s.t, json.Unmarshal(readFile(s.t, s.entry(seq)), &c))
	edit(&c)
	body, err := sink.EncodeCommit(&c)
	must(s.t, err)
	s.write(s.entry(seq), body)
}

// first returns the data shard of commit 1.
func (s spoiled) first() (shard sink.Shard, name string) {
	s.t.Helper()
	shard = readLog(s.t, s.dir).Commits[0].Shards[0]
	return shard, filepath.Join(s.dir, shard.Path)
}

// shard changes the data shard of commit 1.
func (s spoiled) shard(edit func(body []byte) []byte) {
	s.t.Helper()
	_, name := s.first()
	s.write(name, edit(readFile(s.t, name)))
}

// replace replaces the rows of commit 1, and updates the size and digest in the commit.
func (s spoiled) replace(edit func(rows []sink.StoredRow)) {
	s.t.Helper()
	shard, name := s.first()
	var rows []sink.StoredRow
	for r := range each(s.t, readLog(s.t, s.dir).Rows(shard)) {
		rows = append(rows, *r)
	}
	edit(rows)
	var body bytes.Buffer
	writeRaw(s.t, &body, shard.Format, rows, 1000, nil)
	s.write(name, body.Bytes())
	s.rehash()
}

// rehash sets the size and digest in the commit to the shard's.
func (s spoiled) rehash() {
	s.t.Helper()
	_, name := s.first()
	body := readFile(s.t, name)
	sum := sha256.Sum256(body)
	s.commit(1, func(c *sink.Commit) {
		c.Shards[0].Bytes, c.Shards[0].SHA256 = int64(len(body)), hex.EncodeToString(sum[:])
	})
}

// realignedAt returns the divergence column of a row whose output was replaced from token at on.
func realignedAt(r *sink.StoredRow, at int) string {
	return fmt.Sprintf(`{"realigned":[{"call":1,"offset":%d,"kind":"last_output","row":[%d],"prompt":[%d]}]}`, at, r.InputIDs[at]^1, r.InputIDs[at])
}

func TestVerifyFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	type S = spoiled
	whole := map[sink.Format]string{} // a folder of each format
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		dir, b := t.TempDir(), sinktest.NewBuilder(9)
		sinktest.Write(t, dir, sink.Config{Format: format}, append(samples(0), b.Sample(b.Row(10, 20), b.Row(30, 20, 3, 1))))
		sinktest.Write(t, dir, sink.Config{Format: format}, append(samples(0), b.Sample(b.Row(5, 5)), b.Failure(3)))
		whole[format] = dir
	}
	row := func(edit func(r *sink.StoredRow)) func(s S) {
		return func(s S) { s.replace(func(rows []sink.StoredRow) { edit(&rows[1]) }) }
	}
	for _, tt := range []struct {
		name  string
		spoil func(s S)
		want  string // in the first problem; empty if there must be none
	}{
		{"nothing", func(S) {}, ""},
		{"only rewritten", row(func(*sink.StoredRow) {}), ""},
		{"a bit", func(s S) { s.shard(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }) }, "sha256"},
		{"a byte too many", func(s S) { s.shard(func(b []byte) []byte { return append(b, 0) }) }, "bytes, want"},
		{"cut", func(s S) { s.shard(func(b []byte) []byte { return b[:len(b)-9] }) }, "bytes, want"},
		{"cut and committed so", func(s S) { s.shard(func(b []byte) []byte { return b[:len(b)-9] }); s.rehash() }, "data/part-run-0-0"},
		{"empty and committed so", func(s S) { s.shard(func([]byte) []byte { return nil }); s.rehash() }, "data/part-run-0-0"},
		{"shard gone", func(s S) { s.shard(func(b []byte) []byte { return b }); removeAll(s, "data/part-run-0-0*") }, "no such file"},
		{"entry gone", func(s S) { removeAll(s, "_commits/*1.json") }, "missing, but entry 2 exists"},
		{"last entry gone", func(s S) { removeAll(s, "_commits/*2.json") }, "no commit lists the shard, and its samples are not stored anywhere else"},
		{"entry torn", func(s S) { b := readFile(s.t, s.entry(1)); s.write(s.entry(1), b[:len(b)/2]) }, "no checksum at its end"},
		{"entry under another number", func(s S) { s.write(s.entry(3), readFile(s.t, s.entry(2))) }, "seq 2 does not match"},
		{"writer that lost its place", func(s S) { s.commit(1, func(c *sink.Commit) { c.Epoch = 2 }) }, "claim 0 of epoch 2, but the last claim is 0 of epoch 0"},
		{"negative epoch", func(s S) { s.commit(1, func(c *sink.Commit) { c.Epoch = -1 }) }, "must be ≥ 0"},
		{"path leads out", func(s S) { s.commit(1, func(c *sink.Commit) { c.Shards[0].Path = "data/../../x" }) }, "is not in data/"},
		{"shard named twice", func(s S) {
			s.commit(2, func(c *sink.Commit) {
				s.commit(1, func(first *sink.Commit) { c.Shards, c.Groups, c.Samples = first.Shards, first.Groups, first.Samples })
				c.Samples[0].Key = "other"
			})
		}, "is listed twice"},
		{"row count", func(s S) {
			s.commit(1, func(c *sink.Commit) { c.Shards[0].Rows++; c.Samples[0].Rows++ })
		}, "want"},
		{"samples and rows differ", func(s S) { s.commit(1, func(c *sink.Commit) { c.Samples[0].Rows++ }) }, "samples have"},
		{"token count", func(s S) { s.commit(1, func(c *sink.Commit) { c.Shards[0].Tokens.Trainable++ }) }, "tokens are {"},
		{"term of the sampled tokens", func(s S) { s.commit(1, func(c *sink.Commit) { c.Shards[0].Tokens.Unscored++ }) }, "tokens are {"},
		{"term of the failures", func(s S) {
			s.commit(2, func(c *sink.Commit) {
				lost := &c.Shards[1].Tokens.Lost
				lost.Auxiliary, lost.Quarantined = lost.Quarantined, 0
			})
		}, `"lost":{"quarantined":3}}, but the commit has`},
		{"reward", row(func(r *sink.StoredRow) { r.Reward = new(7.0) }), "rewards"},
		{"no reward", row(func(r *sink.StoredRow) { r.Reward = nil }), "rewards"},
		{"reward NaN", row(func(r *sink.StoredRow) { r.Reward = new(math.NaN()) }), "row 1: reward NaN is not finite"},
		{"reward infinite", row(func(r *sink.StoredRow) { r.Reward = new(math.Inf(-1)) }), "row 1: reward -Inf is not finite"},
		{"policy versions", func(s S) { s.commit(1, func(c *sink.Commit) { c.Shards[0].PolicyVersions = &sink.Range{Max: 1} }) }, "policy versions"},
		{"sample done twice", func(s S) {
			s.commit(2, func(c *sink.Commit) {
				s.commit(1, func(first *sink.Commit) { c.Samples[0].Key = first.Samples[0].Key })
			})
		}, "was already committed"},
		{"key", row(func(r *sink.StoredRow) { r.SampleKey = "x" }), "but the commit has"},
		{"mask", row(func(r *sink.StoredRow) { r.LossMask[0] = 1 }), "row 1"},
		{"logprob", row(func(r *sink.StoredRow) { r.Logprobs[len(r.Logprobs)-1] = 1 }), "row 1"},
		{"versions length", row(func(r *sink.StoredRow) { r.Versions = []int32{1} }), "row 1"},
		{"vocabulary", row(func(r *sink.StoredRow) { r.InputIDs[0] = sinktest.Vocab }), "row 1"},
		{"offsets", row(func(r *sink.StoredRow) { r.TurnOffsets[1]-- }), "row 1"},
		{"segment", row(func(r *sink.StoredRow) { r.SegmentIndex = 0 }), "segment 0 of 2, want 1 of 2"},
		{"chain", row(func(r *sink.StoredRow) { r.Chain, r.ChainKind = 1, "subagent" }), ""},
		{"chain out of order", func(s S) {
			s.replace(func(rows []sink.StoredRow) {
				rows[0].Chain, rows[0].ChainKind, rows[1].Chain, rows[1].ChainKind = 2, "subagent", 1, "subagent"
			})
		}, "a row of chain 1 follows a row of chain 2"},
		{"chain of two kinds", row(func(r *sink.StoredRow) { r.ChainKind = "auxiliary" }), "chain 0 has kind auxiliary, want main"},
		{"parent", row(func(r *sink.StoredRow) {
			r.Chain, r.ChainKind, r.ParentChain, r.ParentStep = 1, "subagent", new(int32(0)), new(int32(1))
		}), ""},
		{
			"parent of the main conversation", row(func(r *sink.StoredRow) { r.ParentChain, r.ParentStep = new(int32(0)), new(int32(1)) }),
			"main chain 0 cannot be started by step 1 of chain 0",
		},
		{"chain that starts itself", row(func(r *sink.StoredRow) {
			r.Chain, r.ChainKind, r.ParentChain, r.ParentStep = 1, "subagent", new(int32(1)), new(int32(1))
		}), "subagent chain 1 cannot be started by step 1 of chain 1"},
		{
			"half a parent", row(func(r *sink.StoredRow) { r.Chain, r.ChainKind, r.ParentChain = 1, "subagent", new(int32(0)) }),
			"only one of parent_chain and parent_step is null",
		},
		{"parent without a step", row(func(r *sink.StoredRow) {
			r.Chain, r.ChainKind, r.ParentChain, r.ParentStep = 1, "subagent", new(int32(0)), new(int32(0))
		}), "parent_step is 0, but must be ≥ 1"},
		{"two parents of a chain", func(s S) {
			s.replace(func(rows []sink.StoredRow) {
				for i := range rows[:2] {
					rows[i].Chain, rows[i].ChainKind, rows[i].ParentChain, rows[i].ParentStep = 1, "subagent", new(int32(0)), new(int32(1+i))
				}
			})
		}, "chain 1 was started by step 2 of chain 0, but an earlier row of the chain has step 1 of chain 0"},
		{"unknown kind of chain", row(func(r *sink.StoredRow) { r.Chain, r.ChainKind = 1, "side" }), `"side"`},
		{"rollout", row(func(r *sink.StoredRow) { r.RolloutID = "x" }), "rollout_id"},
		{"status", row(func(r *sink.StoredRow) { r.Status = "error" }), "status"},
		{"grade", row(func(r *sink.StoredRow) { r.Verification = "quarantined" }), "row 1"},
		{"better than its source", row(func(r *sink.StoredRow) { r.Verification = "exact" }), "prompt source stored does not prove grade exact"},
		{"unknown grade", row(func(r *sink.StoredRow) { r.Verification = "sure" }), "sure"},
		{"unknown source", row(func(r *sink.StoredRow) { r.PromptSource = "" }), "row 1"},
		{"unknown flag", row(func(r *sink.StoredRow) { r.Flags = []string{"odd"} }), "odd"},
		{"group_id", row(func(r *sink.StoredRow) { r.GroupID = "x" }), `group_id is "x" and group_size is 4, but the commit has "task-0" and 4`},
		{"group_size", row(func(r *sink.StoredRow) { r.GroupSize = 9 }), "group_size is 9, but the commit has"},
		{"sample_index", row(func(r *sink.StoredRow) { r.SampleIndex = 0 }), "sample_index is 0, but the commit has 1"},
		{"index of a failure", func(s S) { s.commit(2, func(c *sink.Commit) { c.Samples[1].Index = 0 }) }, "sample_index is 3, but the commit has 0"},
		{"index beyond the group", func(s S) { s.commit(2, func(c *sink.Commit) { c.Samples[1].Index = 4 }) }, "index 4 is out of range for a group of 4"},
		{"group that is not there", func(s S) { s.commit(2, func(c *sink.Commit) { c.Samples[1].Group = 1 }) }, "has group index 1, but earlier samples use the first 1 of 1 groups"},
		{"group of nobody", func(s S) {
			s.commit(2, func(c *sink.Commit) { c.Groups = append(c.Groups, sink.CommittedGroup{ID: "x", Size: 1}) })
		}, "2 groups, but its samples belong to 1"},
		{"no groups", func(s S) { s.commit(2, func(c *sink.Commit) { c.Groups = nil }) }, "has group index 0, but earlier samples use the first 0 of 0 groups"},
		{"group listed twice", func(s S) {
			s.commit(2, func(c *sink.Commit) { c.Groups, c.Samples[1].Group = append(c.Groups, c.Groups[0]), 1 })
		}, `group "task-0" of size 4 is listed twice`},
		{"span of the versions", row(func(r *sink.StoredRow) { r.PolicyVersionMin = new(int32(1)) }), "policy versions 1 to null, but the tokens have null to null"},
		{"no span of the versions", row(func(r *sink.StoredRow) {
			r.Versions = make([]int32, len(r.InputIDs))
			for i, m := range r.LossMask {
				r.Versions[i] = int32(m)*8 - 1
			}
		}), "policy versions null to null, but the tokens have 7 to 7"},
		{"group", row(func(r *sink.StoredRow) { r.SampleIndex = r.GroupSize }), "out of range for a group of"},
		{"attempt", row(func(r *sink.StoredRow) { r.Attempt = 2 }), "attempt is 2, but the commit has 1"},
		{"attempt of a failure", func(s S) { s.commit(2, func(c *sink.Commit) { c.Samples[1].Attempt = 3 }) }, "attempt is 1, but the commit has 3"},
		{"more than was sampled", row(func(r *sink.StoredRow) { r.CompletionTokens = 40 }), "the server counted 40"},
		{"divergence", row(func(r *sink.StoredRow) { r.Divergence = new("{") }), "divergence is not JSON"},
		{"divergence of no known kind", row(func(r *sink.StoredRow) { r.Divergence = new(`{"call":1,"kind":"odd"}`) }), "odd"},
		{"realigned without the flag", row(func(r *sink.StoredRow) {
			r.Divergence = new(realignedAt(r, 50))
		}), "the row has 1 realigned positions, but 0 trimmed tokens"},
		{"realigned", func(s S) {
			row(func(r *sink.StoredRow) {
				r.Divergence, r.Flags, r.Trimmed = new(realignedAt(r, 50)), []string{"realigned"}, 1
				r.CompletionTokens = 0 // not counted
			})(s)
			s.commit(1, func(c *sink.Commit) { c.Shards[0].Tokens.Trimmed = 1 })
		}, ""},
		{"realigned past the end", row(func(r *sink.StoredRow) {
			r.Divergence, r.Flags, r.Trimmed = new(strings.Replace(realignedAt(r, 50), "50", "54", 1)), []string{"realigned"}, 1
		}), "realigned past the end of the row (54 tokens)"},
		{"messages", row(func(r *sink.StoredRow) { r.Messages = new("{") }), "messages is not JSON"},
		{"orphans", func(s S) {
			s.write(filepath.Join(s.dir, "data", "part-x.parquet"), nil)
			s.write(filepath.Join(s.dir, "data", ".tmp-x"), nil)
			s.write(filepath.Join(s.dir, "_commits", ".tmp-x"), nil)
		}, ""},
	} {
		for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
			t.Run(tt.name+"/"+format.String(), func(t *testing.T) {
				t.Parallel()
				s := S{t, t.TempDir()}
				must(t, os.CopyFS(s.dir, os.DirFS(whole[format])))
				tt.spoil(s)
				report, err := sink.Verify(t.Context(), s.dir, sink.VerifyOptions{VocabSize: sinktest.Vocab})
				must(t, err)
				if tt.want == "" {
					if report.ProblemCount > 0 {
						t.Errorf("problems: %v", report.Problems)
					}
					if n := len(report.Orphans); tt.name == "orphans" && n != 3 || tt.name != "orphans" && n != 0 {
						t.Errorf("orphans %q", report.Orphans)
					}
					return
				}
				if report.ProblemCount == 0 {
					t.Fatal("no problem was found")
				}
				p := report.Problems[0]
				if !strings.Contains(p.Error(), tt.want) || !errors.Is(p, sink.ErrCorrupt) {
					t.Errorf("problem %v, want one with %q", p, tt.want)
				}
			})
		}
	}
}

func removeAll(s spoiled, pattern string) {
	s.t.Helper()
	names, err := filepath.Glob(filepath.Join(s.dir, pattern))
	if err != nil || len(names) == 0 {
		s.t.Fatal("nothing to remove", err)
	}
	must(s.t, os.Remove(names[0]))
}

// TestNewerVersionIsRefused tests that entries, schemas and write-ahead logs of newer versions are refused,
// and that the write-ahead log stays.
func TestNewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	for _, edit := range []func(c *sink.Commit){
		func(c *sink.Commit) { c.Version = sink.CommitVersion + 1 },
		func(c *sink.Commit) { c.SchemaVersion = sink.SchemaVersion + 1 },
		nil, // the write-ahead log
	} {
		s := spoiled{t, t.TempDir()}
		sinktest.Write(t, s.dir, sink.Config{}, samples(1))
		name := filepath.Join("wal", "00000001.wal")
		var body bytes.Buffer
		if edit != nil {
			s.commit(1, edit)
		} else {
			_, err := frame.NewWriter(&body, frame.Header{Kind: "wal", Version: sink.WALVersion + 1})
			must(t, err)
			s.write(filepath.Join(s.dir, name), body.Bytes())
		}
		_, readErr := sink.ReadLog(s.dir)
		if edit == nil {
			_, readErr = sink.PlanRepair(nil, s.dir)
		}
		_, verifyErr := sink.Verify(t.Context(), s.dir, sink.VerifyOptions{})
		_, createErr := sink.Create(s.dir, sink.Config{})
		for _, err := range []error{readErr, verifyErr, createErr} {
			if !errors.Is(err, sink.ErrNewer) || !strings.Contains(err.Error(), "upgrade rollout") || edit == nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%v, want ErrNewer with a way forward", err)
			}
		}
		if after, err := os.ReadFile(filepath.Join(s.dir, name)); edit == nil && (err != nil || !bytes.Equal(after, body.Bytes())) {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
}

// TestReadersOfSpoiledShard tests that every reader reports any flipped bit before it yields a row, even
// in a column that it does not read.
func TestReadersOfSpoiledShard(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		s := spoiled{t, t.TempDir()}
		sinktest.Write(t, s.dir, sink.Config{Format: format}, samples(3))
		shard := readLog(t, s.dir).Commits[0].Shards[0]
		for i := range 100 {
			flip := func(b []byte) []byte { b[i*7919%len(b)] ^= 1 << (i % 8); return b }
			s.shard(flip)
			log := readLog(t, s.dir)
			read := func(row *sink.StoredRow, err error) {
				if row != nil || !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), shard.Path) {
					t.Errorf("%s: row %v, error %v, want a *CorruptError of %s", format, row, err, shard.Path)
				}
			}
			read(log.Row(shard, 2))
			for _, rows := range []iter.Seq2[*sink.StoredRow, error]{log.Rows(shard), log.Facts(shard)} {
				for row, err := range rows {
					read(row, err)
				}
			}
			s.shard(flip)
		}
	}
}

// TestLastEntryIsMissed tests that lost entries at the end of the log are noticed by their shards. Repair
// sets the shards aside, and their samples can be collected again.
func TestLastEntryIsMissed(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		s := spoiled{t, t.TempDir()}
		cfg := sink.Config{Format: format}
		b := sinktest.NewBuilder(9)
		first, second := append(samples(0), b.Sample(b.Row(10, 20))), append(samples(0), b.Sample(b.Row(5, 5)), b.Failure(3))
		sinktest.Write(t, s.dir, cfg, first)
		sinktest.Write(t, s.dir, cfg, second)
		removeAll(s, "_commits/*2.json")
		_, err := sink.Create(s.dir, cfg)
		if !errors.Is(err, sink.ErrLostCommit) || !errors.Is(err, sink.ErrCorrupt) {
			t.Errorf("Create: %v", err)
		}
		plan, err := sink.PlanRepair(nil, s.dir)
		if err != nil || len(plan.Lost) != 2 || len(plan.Segments) != 0 {
			t.Fatalf("PlanRepair: %+v, %v", plan, err)
		}
		must(t, plan.Apply())
		if names, err := filepath.Glob(filepath.Join(s.dir, "orphans", "*")); err != nil || len(names) != 2 {
			t.Errorf("set aside: %q, %v", names, err)
		}
		sinktest.Write(t, s.dir, cfg, second)
		report := wholeVerify(t, s.dir)
		if report.Samples != 3 {
			t.Errorf("collected again: %v, %v, %d samples", err, report.Problems, report.Samples)
		}
	}
}

// TestCommittedFilesAreChecked tests that Create refuses missing files and wrong sizes before it changes
// anything, that CheckDigests finds a changed byte, and that both checks end with their context.
func TestCommittedFilesAreChecked(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		s := spoiled{t, t.TempDir()}
		cfg := sink.Config{Format: format}
		sinktest.Write(t, s.dir, cfg, append(samples(1), sinktest.NewBuilder(8).Failure(4)))
		log := readLog(t, s.dir)
		if len(log.Commits) != 1 || len(log.Commits[0].Shards) != 2 {
			t.Fatalf("%+v", log.Commits)
		}
		for _, shard := range log.Commits[0].Shards {
			name := filepath.Join(s.dir, shard.Path)
			body := readFile(s.t, name)
			flipped := bytes.Clone(body)
			flipped[len(body)/2] ^= 1
			for _, tt := range []struct {
				name, sizes, digests string
				body                 []byte
			}{
				{"whole", "", "", body},
				{"missing", "committed file is missing", "no such file", nil},
				{"cut", "bytes, but the commit has", "bytes, want", body[:len(body)-1]},
				{"longer", "bytes, but the commit has", "bytes, want", append(bytes.Clone(body), 0)},
				{"a bit", "", "sha256", flipped},
			} {
				must(t, os.Remove(name))
				if tt.body != nil {
					s.write(name, tt.body)
				}
				is := func(what string, err error, want string) {
					t.Helper()
					if (err == nil) != (want == "") || err != nil && (!errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), shard.Path)) {
						t.Errorf("%s, %s, %s: %v, want %q", shard.Path, tt.name, what, err, want)
					}
				}
				is("CheckSizes", log.CheckSizes(), tt.sizes)
				_, err := sink.Create(s.dir, cfg)
				is("Create", err, tt.sizes)
				var found error
				read := 0
				must(t, log.CheckDigests(t.Context(), func(n int) { read += n }, func(err error) { found = errors.Join(found, err) }))
				is("CheckDigests", found, tt.digests)
				if read == 0 {
					t.Error("pace was not called")
				}
				if tt.body == nil {
					s.write(name, body)
				}
			}
			s.write(name, body)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := sink.Verify(ctx, s.dir, sink.VerifyOptions{})
		for _, err := range []error{err, log.CheckDigests(ctx, nil, func(err error) { t.Error(err) })} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want context.Canceled", err)
			}
		}
	}
}
