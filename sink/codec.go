package sink

import (
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/rollout-rl/rollout/sink/internal/pool"
)

// A pageCodec compresses the pages of Parquet shards with zstd. It decompresses pages with the
// library's zstd codec. It is safe for concurrent use.
//
// The library's own codec has a 4 MB window, and each of its encoders takes 8 MB of memory. It keeps
// them in a sync.Pool, and garbage collection empties that pool: a tenth of all allocations came
// from recreating encoders.
type pageCodec struct{ zstd.Codec }

// Encode compresses src. It reuses the memory of dst.
func (*pageCodec) Encode(dst, src []byte) ([]byte, error) {
	return pool.Pages.EncodeAll(src, dst[:0]), nil
}
