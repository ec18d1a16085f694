package sink

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// parquetPageBytes is the size at which a page is closed. With pages of 512 KB instead of 256 KB,
// shards with messages take 3 % less time and space, because similar messages in one page compress
// together. Every column has a buffer of this size, so larger pages would cost more memory than
// they are worth.
const parquetPageBytes = 512 << 10

// parquetGroupBytes limits the size of a row group in bytes, because an open row group is kept in
// memory. The limit matters for rows with few tokens and a lot of text. Failures can have no tokens
// at all.
const parquetGroupBytes = 16 << 20

// cutFactor multiplies the limits of a row group within a group of samples. If two row groups each
// contain a part of a group of samples, a reader of that group must decode both. With a factor of
// 2, a group of samples that is as large as a row group is not split. Such a group costs 3 to 5 MB
// of additional memory.
const cutFactor = 2

// An encoder writes the rows of one shard. It belongs to one goroutine.
type encoder[T any] interface {
	// encode writes one row with the given number of tokens. first must be true for the first row
	// of a group of samples. A row group can end before this row. encode does not keep the row.
	encode(row *T, tokens int, first bool) error
	// size estimates the size of the shard if it were closed now. The estimate grows with every
	// row.
	size() int64
	// close writes buffered data and the end of the shard. It does not close the file.
	close() error
}

// parquetEncoder writes rows as Parquet. Each shard needs a new GenericWriter, because a
// GenericWriter omits path_in_schema after Reset.
type parquetEncoder[T any] struct {
	w *parquet.GenericWriter[T]
	// one holds the row that is passed to Write. Write checks page sizes only once per call, so
	// each call passes one row.
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
	// Page bounds and statistics would contain whole strings from text columns, and they are
	// useless for token lists. So these columns have neither.
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

// outgrown reports whether the open row group has reached one of its limits, multiplied by times.
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
func schemaOf[T any]() *parquet.Schema { return parquet.SchemaOf(*new(T)) } // the library caches it

// anyRows is the row count for a file without a commit. It matches any number of rows.
const anyRows = -1

// openParquet reads the footer of a shard with rows of type T, and checks the schema and the row
// count.
func openParquet[T any](f File, size, rows int64) (pf *parquet.File, err error) {
	// parquet-go can panic on a damaged file.
	defer func() {
		if r := recover(); r != nil {
			pf, err = nil, fmt.Errorf("parquet: %v", r)
		}
	}()
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
func checkParquet[T any](f File, size, rows int64) error {
	_, err := openParquet[T](f, size, rows)
	return err
}
