package sink

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// parquetPageBytes is the size at which a page is closed. Of rollouts with their messages
// a shard takes 3 % less time and bytes than with pages of 256 KB: texts of one task are
// alike, and what is in one page is compressed together. Every column has a buffer of that
// size; larger pages would cost more memory than they give.
const parquetPageBytes = 512 << 10

// parquetGroupBytes closes a row group of few tokens and much text early, for it
// lies in memory until then: failures may have no token at all.
const parquetGroupBytes = 16 << 20

// cutFactor is by how much a row group outgrows its tokens or bytes before it is closed
// in the middle of a group of samples. Until then the group is finished: a reader that
// wants whole groups decodes two row groups for one that lies in both. 2 is enough for
// groups as large as a row group, and costs 3 to 5 MB of memory for these.
const cutFactor = 2

// An encoder writes the rows of one shard. It belongs to one goroutine.
type encoder[T any] interface {
	// encode takes one row of the given number of tokens; first says that no row before
	// it belongs with it, so that a row group may end there. The row's memory is the
	// caller's again when it returns.
	encode(row *T, tokens int, first bool) error
	// size is the number of bytes that the shard would have if it were closed now,
	// roughly; it grows with every row.
	size() int64
	// close writes what is open and the end of the shard. It does not close the
	// file.
	close() error
}

// parquetEncoder writes rows as Parquet. There is a new parquet.GenericWriter for
// each shard: a Reset one loses path_in_schema in the footer.
type parquetEncoder[T any] struct {
	w *parquet.GenericWriter[T]
	// one is the slice handed to the writer: it checks the size of its pages after
	// each call, so a call brings one row.
	one [1]T

	groupTokens, openTokens int
	flushed                 int64 // bytes of the closed row groups
}

func newParquetEncoder[T any](w io.Writer, codec *pageCodec, groupTokens int, meta map[string]string) *parquetEncoder[T] {
	opts := []parquet.WriterOption{
		parquet.Compression(codec),
		parquet.DataPageVersion(2),
		parquet.PageBufferSize(parquetPageBytes),
		parquet.CreatedBy("rollout", "", ""),
	}
	// The bounds and statistics of long texts would put whole texts into page
	// headers and the footer; of token lists they say nothing.
	for _, path := range [][]string{
		{"messages"},
		{"metadata"},
		{"reward_details"},
		{"divergence"},
		{"text"},
		{"error"},
		{"input_ids", "list", "element"},
		{"output_ids", "list", "element"},
		{"logprobs", "list", "element"},
		{"loss_mask", "list", "element"},
		{"versions", "list", "element"},
	} {
		if _, ok := schemaOf[T](SchemaVersion).Lookup(path...); ok {
			opts = append(opts, parquet.SkipPageBounds(path...), parquet.SkipPageStatistics(path...))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		opts = append(opts, parquet.KeyValueMetadata(key, meta[key]))
	}
	return &parquetEncoder[T]{w: parquet.NewGenericWriter[T](w, opts...), groupTokens: groupTokens}
}

func (e *parquetEncoder[T]) encode(row *T, tokens int, first bool) error {
	if first && e.outgrown(1) {
		if err := e.flush(); err != nil {
			return err
		}
	}
	e.one[0] = *row
	_, err := e.w.Write(e.one[:])
	e.one = [1]T{}
	if err != nil {
		return err
	}
	e.openTokens += tokens
	if e.outgrown(cutFactor) {
		return e.flush()
	}
	return nil
}

// outgrown reports whether the open row group holds so many times what closes it.
func (e *parquetEncoder[T]) outgrown(times int) bool {
	return e.openTokens >= times*e.groupTokens || e.w.Size()-e.flushed >= int64(times)*parquetGroupBytes
}

// flush closes the open row group.
func (e *parquetEncoder[T]) flush() error {
	err := e.w.Flush()
	e.openTokens, e.flushed = 0, e.w.Size()
	return err
}

func (e *parquetEncoder[T]) size() int64 { return e.w.Size() }

func (e *parquetEncoder[T]) close() error { return e.w.Close() }

// schemaOf returns the schema that a shard of T of a version must have, by names, order,
// types, encodings and nullability.
func schemaOf[T any](version int) *parquet.Schema {
	if version == SchemaVersion {
		return parquet.SchemaOf(*new(T)) // it is kept
	}
	return parquet.SchemaOf(*new(T), leaveOut(reflect.TypeFor[T](), func(f reflect.StructField) bool {
		return since(f) > version
	})...)
}

// leaveOut returns the options of a schema without some of the columns of a struct.
func leaveOut(t reflect.Type, out func(reflect.StructField) bool) (options []parquet.SchemaOption) {
	for f := range t.Fields() {
		if out(f) {
			options = append(options, parquet.StructTag(`parquet:"-"`, f.Name))
		}
	}
	return options
}

// versionOf is the newest version of the schema in which T has as many columns.
func versionOf[T any](columns int) int {
	for version := SchemaVersion; version > 0; version-- {
		if columnsOf(reflect.TypeFor[T](), version) == columns {
			return version
		}
	}
	return SchemaVersion
}

// anyRows stands for the number of rows of a file of which no commit says it.
const anyRows = -1

// openParquet reads the footer of a shard of T and checks it against the schema
// and what the commit says.
func openParquet[T any](f File, size, rows int64) (pf *parquet.File, err error) {
	// parquet-go checks much, but not all that a damaged file can say.
	defer func() {
		if r := recover(); r != nil {
			pf, err = nil, fmt.Errorf("parquet: %v", r)
		}
	}()
	pf, err = parquet.OpenFile(f, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, err
	}
	version := versionOf[T](len(pf.Schema().Fields()))
	if want := schemaOf[T](version); !parquet.EqualNodes(pf.Schema(), want) {
		return nil, fmt.Errorf("schema differs from schema version %d: %s", version, schemaDifference(pf.Schema(), want))
	}
	if pf.NumRows() != rows && rows != anyRows {
		return nil, fmt.Errorf("%d rows, want %d", pf.NumRows(), rows)
	}
	return pf, nil
}

// schemaDifference names the first column in which two schemas differ.
func schemaDifference(got, want *parquet.Schema) string {
	g, w := got.Fields(), want.Fields()
	for i := range min(len(g), len(w)) {
		if g[i].Name() != w[i].Name() {
			return fmt.Sprintf("column %d is %q, want %q", i, g[i].Name(), w[i].Name())
		}
		if !parquet.EqualNodes(g[i], w[i]) {
			return fmt.Sprintf("column %q is not of its type or nullability", g[i].Name())
		}
	}
	return fmt.Sprintf("%d columns, want %d", len(g), len(w))
}

// checkParquet reads the footer only.
func checkParquet[T any](f File, size, rows int64) error {
	_, err := openParquet[T](f, size, rows)
	return err
}
