package sink

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rollout-rl/rollout/sink/store"
)

// tagName is the file of a tag in the local folder.
const tagName = "store.json"

// A tag names the dataset to which the write-ahead log in a local folder belongs, if its other
// files are in a bucket. Without it, Create with another bucket or run would commit the samples of
// one dataset to another.
type tag struct {
	Store string `json:"store"`
	RunID string `json:"run_id"`
}

func (t tag) String() string {
	if t.Store == "" {
		return "a run in this folder"
	}
	return fmt.Sprintf("run %q in %s", t.RunID, t.Store)
}

// checkTag returns an error if the local folder, which contains the given names, belongs to another
// dataset. If it belongs to no dataset yet, checkTag durably writes the tag.
func (p *location) checkTag(names []string, runID string) error {
	local := store.Folder(p.fs, p.dir)
	var own, found tag
	if !p.folder {
		own = tag{p.objects.String(), runID}
		if !store.IsURL(own.Store) { // the next process can have another working folder
			path, err := filepath.Abs(own.Store)
			if err != nil {
				return &ShardError{Path: p.dir, Op: "open", Err: err}
			}
			own.Store = path
		}
	}
	switch {
	case slices.Contains(names, tagName):
		body, err := local.Get(tagName)
		if err != nil {
			return shardError("open", err)
		}
		if err := json.Unmarshal(body, &found); err != nil {
			return &CorruptError{Path: tagName, Row: -1, Err: err}
		}
	case p.folder || slices.Contains(names, commitsDir): // a run in this folder
	default:
		body, err := json.Marshal(own)
		if err == nil {
			err = local.Put(tagName, append(body, '\n'))
		}
		if err != nil {
			return shardError("write", err)
		}
		return nil
	}
	if found != own {
		return &ShardError{Path: filepath.Join(p.dir, tagName), Op: "open", Err: fmt.Errorf("the write-ahead log in this folder belongs to %s, and not to %s: use another folder", found, own)}
	}
	return nil
}
