package sink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/rollout-rl/rollout/sink/store"
)

const (
	// blockBytes is the size of a request of a rangedFile. A row group takes up to some 20 requests.
	blockBytes = 1 << 20
	// maxBlocks blocks are kept, so that a row group is requested once.
	maxBlocks = 32
)

// A rangedFile reads a Parquet shard in a bucket by range, for a reader that needs one row group of it.
// It cannot check the digest of the file. Instead, ranged compares the digest that the store keeps, if
// it keeps one. Parquet pages have checksums, and a panic of the library becomes an error.
type rangedFile struct {
	o      store.Object
	mu     sync.Mutex
	blocks map[int64][]byte
	order  []int64 // numbers of the blocks, oldest first
}

// ranged returns the file of a shard. The caller must close o after the file.
func ranged(o store.Object, s Shard) (shardFile, error) {
	if o.Size() != s.Bytes {
		return nil, fmt.Errorf("%d bytes, want %d", o.Size(), s.Bytes)
	}
	if sum := o.SHA256(); sum != "" && sum != s.SHA256 {
		return nil, fmt.Errorf("the store has sha256 %s, but the commit log lists %s", sum, s.SHA256)
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
		return nil, err
	}
	if len(f.order) == maxBlocks {
		delete(f.blocks, f.order[0])
		f.order = slices.Delete(f.order, 0, 1)
	}
	f.blocks[i], f.order = b, append(f.order, i)
	return b, nil
}

func (f *rangedFile) Close() error { return nil }
