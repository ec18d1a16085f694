package report

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rollout-rl/rollout/collector/journal"
)

// readWAL measures the write-ahead log. A run without wal/ has no such samples.
func readWAL(dir string, r *Report) {
	entries, err := os.ReadDir(filepath.Join(dir, "wal"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return // the survey reports it
	}
	n := int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			n += info.Size()
		}
	}
	r.Storage.WALBytes = &n
}

// readJournal counts the attempts that have no outcome and whose samples are not done. It needs a
// few bytes of memory per open attempt.
func readJournal(dir string, r *Report, done keys) {
	dir = filepath.Join(dir, "journal")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	open := map[string]struct{}{}
	for e, err := range journal.Read(dir) {
		if err != nil {
			r.problem("not counted: ", err)
			continue
		}
		switch e.Op {
		case journal.OpBegin:
			open[e.Key] = struct{}{}
		case journal.OpEnd:
			delete(open, e.Key)
		default: // agent ids and charges, which neither start nor end an attempt
		}
	}
	n := 0
	for key := range open {
		if !done.has(key) {
			n++
		}
	}
	r.Retries.Open = &n
}
