package tap

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
)

// Version is the format version of the payloads in a segment. A Reader refuses newer versions.
const Version = 1

const kind = "tap"

// MaxPayload is the maximum size of a payload, in bytes. The spool drops larger calls.
const MaxPayload = 64 << 20

func header(n uint64) frame.Header { return frame.Header{Kind: kind, Version: Version, Number: n} }

const extension = ".tap"

// A segment is one file of a spool. Its number is its start time in milliseconds since 1970, or the
// previous segment's number plus one if that is higher.
type segment struct {
	number uint64
	bytes  int64
	ended  time.Time // when the segment was last written
}

func segmentPath(dir string, n uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%013d%s", n, extension))
}

// segments lists the segments in dir, oldest first. It skips other files.
func segments(dir string) ([]segment, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, f := range files {
		n, ok := segmentNumber(f)
		if !ok {
			continue
		}
		info, err := f.Info()
		if err != nil {
			continue // the segment has just been removed
		}
		list = append(list, segment{n, info.Size(), info.ModTime()})
	}
	slices.SortFunc(list, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	return list, nil
}

func segmentNumber(f fs.DirEntry) (uint64, bool) {
	name, ok := strings.CutSuffix(f.Name(), extension)
	if !ok || !f.Type().IsRegular() {
		return 0, false
	}
	n, err := strconv.ParseUint(name, 10, 64)
	if err != nil || n == 0 || fmt.Sprintf("%013d", n) != name {
		return 0, false
	}
	return n, true
}
