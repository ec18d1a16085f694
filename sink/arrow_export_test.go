package sink

import (
	"bytes"

	"github.com/apache/arrow/go/v17/arrow/memory"
)

// ArrowLeak writes and reads a stream and returns how many bytes the library did
// not give back.
func ArrowLeak(rows []StoredRow, batchTokens int) int {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	var body bytes.Buffer
	enc := newArrowEncoderWith(&body, newColumnSet(), batchTokens, nil, mem)
	for i := range rows {
		if err := enc.encode(&rows[i], len(rows[i].InputIDs)); err != nil {
			panic(err)
		}
	}
	if err := enc.close(); err != nil {
		panic(err)
	}
	for _, n := range []int{len(rows), 1} { // to the end, and not
		k := 0
		_ = readArrowWith(NewBytesFile(body.Bytes()), int64(body.Len()), int64(len(rows)), func(*StoredRow) bool { k++; return k < n }, mem)
	}
	return mem.CurrentAlloc()
}
