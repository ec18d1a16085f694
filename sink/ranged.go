package sink

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/rollout-rl/rollout/sink/store"
)

const (
	// blockBytes is the size of a request of a rangedFile. A row group needs up to about 20
	// requests.
	blockBytes = 1 << 20
	// At most maxBlocks blocks are kept. A row group is usually smaller, so it is requested once.
	maxBlocks = 32
)

// A rangedFile reads a Parquet shard in a bucket by range, for a reader that needs one row group of
// it. It cannot check the digest of the file, so the store must keep the right digest. The
// checksums of the pages do not protect their headers and the dictionaries.
type rangedFile struct {
	o      store.Object
	mu     sync.Mutex
	blocks map[int64][]byte
	err    error // the first error of o
}

// ranged returns the content of a shard.
func ranged(o store.Object, s Shard) (io.ReaderAt, error) {
	if err := s.checkSize(o.Size()); err != nil {
		return nil, err
	}
	f := &rangedFile{o: o, blocks: map[int64][]byte{}}
	// The library allocates as many bytes as the file claims for its footer.
	var end [8]byte
	if s.Bytes < int64(len(end)) {
		return nil, errors.New("no footer")
	}
	if _, err := f.ReadAt(end[:], s.Bytes-int64(len(end))); err != nil {
		return nil, err
	}
	if n := int64(binary.LittleEndian.Uint32(end[:])); n > s.Bytes {
		return nil, fmt.Errorf("a footer of %d bytes", n)
	}
	return f, nil
}

func (f *rangedFile) ReadAt(p []byte, off int64) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n < len(p) {
		at := off + int64(n)
		if at >= f.o.Size() {
			return n, io.EOF
		}
		b, err := f.block(at / blockBytes)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], b[at%blockBytes:])
	}
	return n, nil
}

func (f *rangedFile) block(i int64) ([]byte, error) {
	if b, ok := f.blocks[i]; ok {
		return b, nil
	}
	b := make([]byte, min(blockBytes, f.o.Size()-i*blockBytes))
	if _, err := f.o.ReadAt(b, i*blockBytes); err != nil {
		f.err = cmp.Or(f.err, err)
		return nil, err
	}
	if len(f.blocks) == maxBlocks {
		clear(f.blocks)
	}
	f.blocks[i] = b
	return b, nil
}
