package sink

import (
	kzstd "github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// zstdWindow is how far back a match may lie: more than a page has, as a rule. It bounds
// the memory of an encoder, which keeps twice as much.
const zstdWindow = 1 << 20

// A pageCodec compresses the pages of Parquet shards with zstd, and reads as every zstd
// codec does. It belongs to one writer, which keeps it from shard to shard: what the
// encoder works with, some 2 MB, is allocated with the first page.
//
// The level is the fastest one: within 2 % of the default's size at twice its speed. The
// library's own codec of that level has a window of 4 MB, which takes 8 MB of memory per
// encoder, and blocks of 64 KB; with the window given blocks have 128 KB, which takes 8 %
// less time for texts and token ids, and as many bytes. The library's codec also keeps its
// encoders in a sync.Pool. Each garbage collection empties that, and encoders that were
// made again were a tenth of what a collection allocated.
type pageCodec struct {
	zstd.Codec
	encoder *kzstd.Encoder
}

func newPageCodec() *pageCodec {
	e, err := kzstd.NewWriter(nil,
		kzstd.WithWindowSize(zstdWindow), // before the level, which would choose the blocks
		kzstd.WithEncoderLevel(kzstd.SpeedFastest),
		kzstd.WithEncoderConcurrency(1),
		kzstd.WithZeroFrames(true),
		kzstd.WithEncoderCRC(false), // pages have their own
	)
	if err != nil {
		panic("sink: internal error: " + err.Error()) // an option that the library refuses
	}
	return &pageCodec{encoder: e}
}

// Encode compresses src into the memory of dst.
func (c *pageCodec) Encode(dst, src []byte) ([]byte, error) {
	return c.encoder.EncodeAll(src, dst[:0]), nil
}
