package sink

import (
	"bytes"
	"runtime"
	"testing"
)

// TestGateCodecBytes tests that a codec's memory survives the frequent garbage collections.
func TestGateCodecBytes(t *testing.T) {
	page := bytes.Repeat([]byte("a page that is longer than a block. "), parquetPageBytes/36)
	c := &pageCodec{encoders: encoders{options: pages.encoders.options}}
	dst, err := c.Encode(nil, page)
	must(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 4 {
		runtime.GC()
		runtime.GC() // a sync.Pool survives one
		if dst, err = c.Encode(dst, page); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes allocated for 4 pages", allocated)
	if allocated > 64<<10 {
		t.Errorf("%d bytes allocated for 4 pages, want ≤ 64 KiB", allocated)
	}
	got, err := c.Decode(nil, dst)
	if err != nil || !bytes.Equal(got, page) {
		t.Errorf("the page read back differs, or: %v", err)
	}
}
