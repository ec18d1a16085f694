package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// tokenLists reads the four lists that have one element per token. It reads whole pages, because
// parquet-go reads pages ten times as fast as rows.
type tokenLists struct {
	ids, versions listArena[int32]
	mask          listArena[int8]
	logprobs      listArena[float32]
}

// readTokenLists is the field lists of the part with all columns.
func readTokenLists() func(parquet.RowGroup) (func(*StoredRow, int64), error) {
	leaf := func(name string) parquet.LeafColumn {
		c, _ := schemaOf[StoredRow]().Lookup(name, "list", "element") // cannot fail, because the schema of each file has been checked
		return c
	}
	l := &tokenLists{}
	l.ids.leaf, l.mask.leaf, l.logprobs.leaf, l.versions.leaf = leaf("input_ids"), leaf("loss_mask"), leaf("logprobs"), leaf("versions")
	return func(group parquet.RowGroup) (func(*StoredRow, int64), error) { return l.set, l.read(group) }
}

func (l *tokenLists) read(group parquet.RowGroup) error {
	return errors.Join(
		l.ids.read(group, "input_ids", appendInt32),
		l.mask.read(group, "loss_mask", appendInt8),
		l.logprobs.read(group, "logprobs", appendFloat),
		l.versions.read(group, "versions", appendInt32),
	)
}

func (l *tokenLists) set(row *StoredRow, i int64) {
	row.InputIDs, row.LossMask = l.ids.at(i), l.mask.at(i)
	row.Logprobs, row.Versions = l.logprobs.at(i), l.versions.at(i)
}

// nullableDefinition is the highest definition level in a nullable list. Level 0 means a null
// list, level 1 an empty list, and level 2 an element.
const nullableDefinition = 2

// A listArena contains one list column of one row group.
type listArena[T any] struct {
	leaf   parquet.LeafColumn
	values []T
	ends   []int // row i is values[ends[i-1]:ends[i]]
	null   []bool
}

// at returns list i, or nil if that list is null.
func (a *listArena[T]) at(i int64) []T {
	if a.null[i] {
		return nil
	}
	start := 0
	if i > 0 {
		start = a.ends[i-1]
	}
	return a.values[start:a.ends[i]:a.ends[i]]
}

// read replaces the content of the arena with one column of a row group.
//
// A repetition level of 0 marks the start of a list. Elements are never null. So if the
// definition level is not the highest level, the list has no elements: it is null or empty. It is
// null if the column is nullable and the level is 0.
func (a *listArena[T]) read(group parquet.RowGroup, name string, take func([]T, parquet.Page) []T) (err error) {
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
	if rows := group.NumRows(); int64(len(a.ends)) != rows {
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
		return fmt.Errorf("%d repetition levels, but %d definition levels", len(rep), len(def))
	}
	end := len(a.values)
	for i := 0; i < len(rep); {
		n := bytes.IndexByte(rep[i+1:], 0) + 1 // number of levels of this list
		if n == 0 {
			n = len(rep) - i
		}
		if rep[i] != 0 { // the page continues the last list of the previous page
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
		return fmt.Errorf("%d values, but the levels describe %d", len(a.values), end)
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

// appendInt8 converts the values to int8, because parquet-go stores an INT(8) column as int32 in
// memory.
func appendInt8(dst []int8, page parquet.Page) []int8 {
	data := page.Data()
	for _, v := range data.Int32() {
		dst = append(dst, int8(v))
	}
	return dst
}
