package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/parquet-go/parquet-go"
)

// ruledColumns are the columns that rules check, except the four lists with an entry per token.
// parquet-go reads those ten times faster page by page than row by row.
var ruledColumns = sync.OnceValue(func() part[StoredRow] { return newPart[StoredRow]("rules") })

// scanParquet calls yield with each row of a data shard until yield returns false. The rows hold
// ruledColumns and the four lists, and are valid until yield returns.
func scanParquet(f File, size, rows int64, yield func(*StoredRow) bool) error {
	return scanColumns(f, size, rows, ruledColumns(), yield)
}

// scanColumns is scanParquet with the given columns instead of ruledColumns.
func scanColumns(f File, size, rows int64, columns part[StoredRow], yield func(*StoredRow) bool) (err error) {
	pf, err := openParquet[StoredRow](f, size, rows)
	if err != nil {
		return err
	}
	var yielding bool
	defer libraryPanic(&yielding, &err)
	lists := newTokenLists(pf.Schema())
	more := true
	for g, group := range pf.RowGroups() {
		err := scanGroup(group, columns, lists, func(row *StoredRow) bool {
			yielding = true
			more = yield(row)
			yielding = false
			return more
		})
		if err != nil {
			return fmt.Errorf("row group %d: %w", g, err)
		}
		if !more {
			break
		}
	}
	return nil
}

func scanGroup(group parquet.RowGroup, columns part[StoredRow], lists *tokenLists, yield func(*StoredRow) bool) error {
	n := int(group.NumRows())
	if err := lists.read(group, n); err != nil {
		return err
	}
	at := 0
	_, more, err := columns.group(group, func(row *StoredRow) bool {
		if at == n { // more rows than the group has
			at++
			return false
		}
		lists.set(row, at)
		at++
		return yield(row)
	})
	if err == nil && (at > n || more && at != n) {
		return fmt.Errorf("at least %d rows, want %d", at, n)
	}
	return err
}

type tokenLists struct {
	ids, versions listArena[int32]
	mask          listArena[int8]
	logprobs      listArena[float32]
}

func newTokenLists(s *parquet.Schema) *tokenLists {
	leaf := func(name string) parquet.LeafColumn {
		c, _ := s.Lookup(name, "list", "element") // found, because the schema was checked
		return c
	}
	l := &tokenLists{}
	l.ids.leaf, l.mask.leaf, l.logprobs.leaf, l.versions.leaf = leaf("input_ids"), leaf("loss_mask"), leaf("logprobs"), leaf("versions")
	return l
}

func (l *tokenLists) read(group parquet.RowGroup, rows int) error {
	return errors.Join(
		l.ids.read(group, rows, "input_ids", appendInt32),
		l.mask.read(group, rows, "loss_mask", appendInt8),
		l.logprobs.read(group, rows, "logprobs", appendFloat),
		l.versions.read(group, rows, "versions", appendInt32),
	)
}

func (l *tokenLists) set(row *StoredRow, i int) {
	row.InputIDs, row.LossMask = l.ids.at(i), l.mask.at(i)
	row.Logprobs, row.Versions = l.logprobs.at(i), l.versions.at(i)
}

// nullableDefinition is the highest definition level of a nullable list: null 0, empty 1, element 2.
const nullableDefinition = 2

// A listArena is one list column of one row group.
type listArena[T any] struct {
	leaf   parquet.LeafColumn
	values []T
	ends   []int // row i is values[ends[i-1]:ends[i]]
	null   []bool
}

// at returns list i, or nil if it is null.
func (a *listArena[T]) at(i int) []T {
	if a.null[i] {
		return nil
	}
	start := 0
	if i > 0 {
		start = a.ends[i-1]
	}
	return a.values[start:a.ends[i]:a.ends[i]]
}

// read replaces the content with a column of a row group.
//
// A repetition level of 0 begins a list. Elements are never null, so a definition level below the
// highest means a list without elements: null for level 0 in a nullable column, otherwise empty.
func (a *listArena[T]) read(group parquet.RowGroup, rows int, name string, take func([]T, parquet.Page) []T) (err error) {
	a.values, a.ends, a.null = a.values[:0], a.ends[:0], a.null[:0]
	pages := group.ColumnChunks()[a.leaf.ColumnIndex].Pages()
	defer func() {
		closeInto(pages, &err)
		if err != nil {
			err = fmt.Errorf("column %s: %w", name, err)
		}
	}()
	for {
		page, err := pages.ReadPage()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		err = a.page(page, take)
		parquet.Release(page)
		if err != nil {
			return err
		}
	}
	if len(a.ends) != rows {
		return fmt.Errorf("%d lists, want %d", len(a.ends), rows)
	}
	return nil
}

func (a *listArena[T]) page(page parquet.Page, take func([]T, parquet.Page) []T) error {
	if page.Dictionary() != nil {
		return errors.New("unexpected dictionary page")
	}
	rep, def := page.RepetitionLevels(), page.DefinitionLevels()
	if len(rep) != len(def) {
		return fmt.Errorf("%d repetition and %d definition levels", len(rep), len(def))
	}
	end := len(a.values)
	for i := 0; i < len(rep); {
		n := bytes.IndexByte(rep[i+1:], 0) + 1 // levels of this list
		if n == 0 {
			n = len(rep) - i
		}
		if rep[i] != 0 { // continues the last list of the previous page
			if len(a.ends) == 0 {
				return errors.New("the first page begins inside a list")
			}
			end += n
			a.ends[len(a.ends)-1] = end
		} else {
			full := int(def[i]) == a.leaf.MaxDefinitionLevel
			if full {
				end += n
			}
			a.ends = append(a.ends, end)
			a.null = append(a.null, def[i] == 0 && a.leaf.MaxDefinitionLevel == nullableDefinition)
		}
		i += n
	}
	a.values = take(a.values, page)
	if len(a.values) != end {
		return fmt.Errorf("%d values, but the levels have %d", len(a.values), end)
	}
	return nil
}

func appendInt32(dst []int32, page parquet.Page) []int32 {
	data := page.Data()
	return append(dst, data.Int32()...)
}

func appendFloat(dst []float32, page parquet.Page) []float32 {
	data := page.Data()
	return append(dst, data.Float()...)
}

// appendInt8 narrows the values: an INT(8) column is INT32 in memory.
func appendInt8(dst []int8, page parquet.Page) []int8 {
	data := page.Data()
	for _, v := range data.Int32() {
		dst = append(dst, int8(v))
	}
	return dst
}
