package sink

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// parquetPageBytes is the size at which a page is closed. With pages of 512 KB instead of 256 KB,
// writing shards with messages takes 3 % less time and space, because similar messages in the same
// page compress well. Every column has a buffer of this size, so larger pages would cost too much
// memory for their benefit.
const parquetPageBytes = 512 << 10

// parquetGroupBytes limits the size of a row group in bytes, because an open row group is kept in
// memory. The limit matters for rows with few tokens and a lot of text. Failures can have no tokens
// at all.
const parquetGroupBytes = 16 << 20

// Within a group of samples, the limits of a row group are multiplied by cutFactor. If a group of
// samples is split across two row groups, a reader of that group must decode both. With a factor of
// 2, a group of samples is not split if it is at most as large as a row group. Such a group costs 3
// to 5 MB of additional memory.
const cutFactor = 2

// An encoder writes the rows of one shard. Only one goroutine can use it.
type encoder[T any] interface {
	// encode writes one row with the given number of tokens. first must be true for the first row
	// of a group of samples. A row group can end before such a row. encode keeps no reference to
	// the row.
	encode(row *T, tokens int, first bool) error
	// size estimates the size that the shard would have if it were closed now. The estimate
	// increases with every row.
	size() int64
	// close writes the buffered data and the end of the shard. It does not close the file.
	close() error
}

// parquetEncoder writes rows to a Parquet shard. Each shard needs a new GenericWriter, because a
// GenericWriter omits path_in_schema after Reset.
type parquetEncoder[T any] struct {
	w *parquet.GenericWriter[T]
	// The array one contains the row that is passed to Write. Write checks page sizes only once per
	// call, so each call passes a single row.
	one [1]T

	groupTokens, openTokens int
	flushed                 int64 // number of bytes in the closed row groups
}

func newParquetEncoder[T any](w io.Writer, groupTokens int, meta map[string]string) *parquetEncoder[T] {
	opts := []parquet.WriterOption{
		parquet.Compression(&pageCodec{}),
		parquet.DataPageVersion(2),
		parquet.PageBufferSize(parquetPageBytes),
		parquet.CreatedBy("rollout", "", ""),
	}
	// Omit page bounds and statistics for these columns. For text columns, they would contain
	// complete strings, and for token lists, they are useless.
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
		{"routed_experts"},
		{"sampling_mask", "list", "element"},
		{"sampling_mask_lengths", "list", "element"},
	} {
		if _, ok := schemaOf[T]().Lookup(path...); ok {
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

// outgrown reports whether the open row group has reached one of its limits. The factor times
// multiplies the limits.
func (e *parquetEncoder[T]) outgrown(times int) bool {
	return e.openTokens >= times*e.groupTokens || e.w.Size()-e.flushed >= int64(times)*parquetGroupBytes
}

func (e *parquetEncoder[T]) flush() error {
	err := e.w.Flush()
	e.openTokens, e.flushed = 0, e.w.Size()
	return err
}

func (e *parquetEncoder[T]) size() int64 { return e.w.Size() }

func (e *parquetEncoder[T]) close() error { return e.w.Close() }

// schemaOf returns the schema of a shard with rows of type T.
func schemaOf[T any]() *parquet.Schema { return parquet.SchemaOf(*new(T)) } // the library caches the schema

// anyRows is the expected row count for a file without a commit. It matches any number of rows.
const anyRows = -1

// openParquet reads the footer of a shard with rows of type T, and checks the schema and the row
// count.
func openParquet[T any](f io.ReaderAt, size, rows int64) (pf *parquet.File, err error) {
	defer libraryPanic("parquet", new(bool), &err)
	pf, err = parquet.OpenFile(f, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, err
	}
	if want := schemaOf[T](); !parquet.EqualNodes(pf.Schema(), want) {
		return nil, fmt.Errorf("schema differs from schema version %d: %s", SchemaVersion, schemaDifference(pf.Schema(), want))
	}
	if pf.NumRows() != rows && rows != anyRows {
		return nil, fmt.Errorf("%d rows, want %d", pf.NumRows(), rows)
	}
	return pf, nil
}

func schemaDifference(got, want *parquet.Schema) string {
	g, w := got.Fields(), want.Fields()
	for i := range min(len(g), len(w)) {
		if g[i].Name() != w[i].Name() {
			return fmt.Sprintf("column %d is %q, want %q", i, g[i].Name(), w[i].Name())
		}
		if !parquet.EqualNodes(g[i], w[i]) {
			return fmt.Sprintf("column %q has the wrong type or nullability", g[i].Name())
		}
	}
	return fmt.Sprintf("%d columns, want %d", len(g), len(w))
}

// checkParquet checks the schema and the row count of a shard. It reads only the footer.
func checkParquet[T any](f io.ReaderAt, size, rows int64) error {
	_, err := openParquet[T](f, size, rows)
	return err
}
