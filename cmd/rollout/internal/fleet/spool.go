package fleet

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// A spool is the content of spool.json.
type spool struct {
	Fleet string `json:"fleet"` // id of the fleet
	Store string `json:"store"`
	Spool string `json:"spool"` // random id; the names of the spool's workers begin with it
}

// openSpool returns the id of the spool in dir, and creates the spool if dir has none.
func openSpool(fsys sink.FS, dir, fleet, at string) (string, error) {
	body, err := os.ReadFile(filepath.Join(dir, "spool.json"))
	var s spool
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s = spool{fleet, at, randomName()}
		if body, err = json.Marshal(s); err == nil {
			err = store.Folder(fsys, dir).PutNew("spool.json", append(body, '\n'))
		}
		return s.Spool, exit.With(exit.Storage, err)
	case err != nil:
		return "", exit.With(exit.Storage, err)
	case json.Unmarshal(body, &s) != nil || s.Spool == "":
		return "", exit.Hint(exit.With(exit.Verify, fmt.Errorf("%s is damaged", filepath.Join(dir, "spool.json"))), "pass another folder with --spool; other workers collect what this one has not committed")
	case s.Fleet != fleet:
		return "", exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is the spool of the fleet %s in %s", dir, s.Fleet, s.Store)), "pass another folder with --spool")
	}
	return s.Spool, nil
}

// randomName returns 10 random characters.
func randomName() string { return rand.Text()[:10] }

// reclaim claims the partitions of the process that used the spool before. It drops those that another
// worker has claimed.
func (w *Worker) reclaim() error {
	entries, err := os.ReadDir(filepath.Join(w.cfg.Dir, "partitions"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Storage, err)
	}
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil || p < 0 || p >= len(w.ends) || filepath.Base(partitionName(p)) != e.Name() {
			return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is not a partition of the fleet", filepath.Join(w.cfg.Dir, "partitions", e.Name()))), "remove it")
		}
		if err := w.readEnd(p); err != nil {
			return err
		}
		at := &w.ends[p]
		at.taken = at.epoch > 0
		if at.sealed || !w.isOurs(at.worker) {
			if err := w.drop(p); err != nil {
				return err
			}
			continue
		}
		at.read = false
		c, err := w.claim(p, at.epoch+1)
		if err != nil {
			return err
		}
		if c != nil {
			w.known = append(w.known, c)
		}
	}
	return nil
}
