package sink

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/tokenize"
)

// An Encoder writes rows as a data shard without checking rules.
type Encoder struct{ enc encoder[StoredRow] }

// Encode writes one row.
func (e Encoder) Encode(r *StoredRow) error { return e.enc.encode(r, len(r.InputIDs), true) }

// Close ends the shard.
func (e Encoder) Close() error { return e.enc.close() }

// An EncoderPool holds the state that a writer reuses between shards.
type EncoderPool struct {
	batches recycler
}

// NewEncoder begins a shard like a writer.
func (p *EncoderPool) NewEncoder(w io.Writer, format Format, groupTokens int, meta map[string]string) Encoder {
	if format == Arrow {
		if p.batches == nil {
			p.batches = recycler{}
		}
		return Encoder{newArrowEncoder(w, p.batches, groupTokens, meta)}
	}
	return Encoder{newParquetEncoder[StoredRow](w, groupTokens, meta)}
}

// Kept returns how many bytes of Arrow batches the pool keeps.
func (p *EncoderPool) Kept() (n int) {
	for size, list := range p.batches {
		n += size * len(list)
	}
	return n
}

// A Poison allocates like a writer, counts its live slices, and overwrites each slice that is freed.
type Poison struct {
	mem  recycler
	Live int
}

// NewPoison returns a Poison without memory.
func NewPoison() *Poison { return &Poison{mem: recycler{}} }

// NewEncoder begins an Arrow shard like a writer.
func (p *Poison) NewEncoder(w io.Writer, batchTokens int) Encoder {
	return Encoder{newArrowEncoder(w, p, batchTokens, nil)}
}

// Allocate returns zeros.
func (p *Poison) Allocate(size int) []byte {
	p.Live++
	return p.mem.Allocate(size)
}

// Reallocate returns b with another size.
func (p *Poison) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) {
		return p.mem.Reallocate(size, b)
	}
	to := p.Allocate(size)
	copy(to, b)
	p.Free(b)
	return to
}

// Free overwrites b.
func (p *Poison) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	p.Live--
	for i := range b[:cap(b)] {
		b[:cap(b)][i] = 0xA5
	}
	p.mem.Free(b)
}

// NewPlainEncoder begins a Parquet shard without compression. options can break its format.
func NewPlainEncoder(w io.Writer, options ...parquet.WriterOption) *parquet.GenericWriter[StoredRow] {
	options = append([]parquet.WriterOption{parquet.DataPageVersion(2), parquet.PageBufferSize(parquetPageBytes)}, options...)
	return parquet.NewGenericWriter[StoredRow](w, options...)
}

// SetSyncEvery sets the time between syncs of the write-ahead log. Call it before Run.
func (d *Dataset) SetSyncEvery(every time.Duration) { d.wal.every = every }

// EndSegment ends the open segment of the write-ahead log, like a commit.
func (d *Dataset) EndSegment() { d.wal.askForSegment() }

// A SampleEncoder encodes samples like the write-ahead log.
type SampleEncoder struct{ enc sampleEncoder }

// Append appends a sample.
func (e *SampleEncoder) Append(dst []byte, s *tokenize.Sample) []byte { return e.enc.append(dst, s) }

// AppendSample appends a sample with a new encoder.
func AppendSample(dst []byte, s *tokenize.Sample) []byte { return new(SampleEncoder).Append(dst, s) }

// DecodeSample is the inverse of AppendSample.
var DecodeSample = decodeSample

// EncodeCommit returns the bytes of an entry, with its checksum. DecodeCommit decodes them.
var (
	EncodeCommit = encodeCommit
	DecodeCommit = decodeCommit
)

// RowSchema is compared with the schemas of files.
func RowSchema() *parquet.Schema { return schemaOf[StoredRow]() }

// ReadRows reads all columns of a data shard.
func ReadRows(f File, s Shard, yield func(*StoredRow) bool) error {
	return readRows(f, rowRange{shard: s}, yield)
}

// ReadFacts reads the columns of Log.Facts of a Parquet shard.
func ReadFacts(f File, s Shard, yield func(*StoredRow) bool) error {
	return rowFacts().read(f, rowRange{shard: s}, yield)
}

// NewBytesFile returns a File that reads b.
func NewBytesFile(b []byte) File { return bytesFile{bytes.NewReader(b)} }

type bytesFile struct{ *bytes.Reader }

func (f bytesFile) Write([]byte) (int, error) { panic("a file for reading") }
func (f bytesFile) Sync() error               { return nil }
func (f bytesFile) Close() error              { return nil }
func (f bytesFile) Size() (int64, error)      { return f.Reader.Size(), nil }

// The versions of the files.
const (
	CommitVersion = commitVersion
	WALVersion    = walVersion
)

// CardBytes returns the bytes of all cards that n commits write, and of the last card.
func CardBytes(dir string, n int) (written, last int64) {
	fsys := &countingFS{FS: OS()}
	k := &card{location: locate(nil, fsys, dir), logger: slog.New(slog.DiscardHandler)}
	k.at = time.Now()
	for i := range n {
		k.add(&Commit{Seq: int64(i + 1), RunID: "r", SchemaVersion: 1, Shards: []Shard{
			{Kind: KindData, Path: fmt.Sprintf("data/part-20261122-120000-01234567-0-%d-01234567.parquet", i), Rows: 10},
		}})
		k.at = time.Now() // no time passes
		k.refresh()
	}
	k.end()
	return fsys.written, fsys.last
}

// countingFS counts the bytes of the files created in it.
type countingFS struct {
	FS
	written, last int64
}

type countingFile struct {
	File
	fs *countingFS
}

func (c *countingFS) Create(name string) (File, error) {
	f, err := c.FS.Create(name)
	return &countingFile{f, c}, err
}

func (c *countingFile) Sync() error { return nil }

func (c *countingFile) Write(p []byte) (int, error) {
	c.fs.written, c.fs.last = c.fs.written+int64(len(p)), int64(len(p))
	return c.File.Write(p)
}

// Claim returns the last claim, or nil.
func (l *Log) Claim() *Commit {
	if n := len(l.seq.claims); n > 0 {
		return &l.seq.claims[n-1]
	}
	return nil
}

// In returns a Log that reads from another store.
func (l *Log) In(objects store.Store) *Log {
	in := *l
	in.objects = objects
	return &in
}

// CheckpointCost returns how many checkpoints and lines a log of n entries without merges costs.
func CheckpointCost(n int) (logs, tails, lines int) {
	k := new(checkpointer)
	line := make([]byte, 100)
	all := 0
	for range n {
		k.keep(new(Commit), line)
		switch log, tail := k.due(); {
		case log:
			logs, all = logs+1, all+len(k.tail)
			lines += all
			k.size, k.tail, k.saved = int64(all*len(line)), nil, 0
		case tail:
			tails, lines, k.saved = tails+1, lines+len(k.tail), len(k.tail)
		}
	}
	return logs, tails, lines
}

// MergeAll merges like Run until nothing is left to merge.
func (d *Dataset) MergeAll(ctx context.Context) (n int, err error) {
	for {
		more, err := d.merger.step(ctx)
		if err != nil || !more {
			return n, err
		}
		n++
	}
}

// DeleteReplaced deletes replaced files that no reader needs, like Run.
func (d *Dataset) DeleteReplaced() { d.merger.deleteGone() }

// Open returns the number of incomplete groups in the log.
func (l *GroupLog) Open() int { return len(l.open) }

// Originals returns the commits in logical order. It splits merges as [Commit.Originals] does.
func (l *Log) Originals() iter.Seq[*Commit] {
	return func(yield func(*Commit) bool) {
		for i := range l.Commits {
			for o := range l.Commits[i].Originals() {
				if !yield(o) {
					return
				}
			}
		}
	}
}
