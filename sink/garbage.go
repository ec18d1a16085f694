package sink

import (
	"strings"
	"time"

	"github.com/rollout-rl/rollout/sink/store"
)

// Garbage returns the objects that a sealed log in a bucket no longer needs: shards of the run that no
// valid entry names, and all checkpoints but the newest. Merges have replaced these shards, or their
// processes have lost the log. The caller can delete the objects at any later time, because no process
// can add an entry that names them.
//
// A reader that read the log before it was sealed can still read such a shard. Garbage therefore
// returns nothing unless the log was sealed before the given time, by the clock of the store
// ([store.Store.Now]). It also excludes all later objects, and objects without a time. If the log is not sealed, Garbage returns
// nothing, because a process can then still name its shards. The errors are the same as in [ReadLogIn].
func Garbage(objects store.Store, before time.Time) (list []store.Info, err error) {
	log, err := ReadLogIn(objects, "", func(*Commit) {})
	if err != nil || !log.Sealed() {
		return nil, err
	}
	needed := map[string]bool{}
	for i := range log.Commits {
		for _, s := range log.Commits[i].Shards {
			needed[s.Path] = true
		}
	}
	sealed, newest := false, map[string]store.Info{} // of the checkpoints, by their kind
	isOld := func(i store.Info) bool { return i.Time.Before(before) && !i.Time.IsZero() }
	add := func(i store.Info) {
		if isOld(i) {
			list = append(list, i)
		}
	}
	for i, err := range objects.List("", "") {
		if err != nil {
			return nil, asPath(err)
		}
		folder, name, _ := strings.Cut(i.Name, "/")
		switch folder {
		case commitsDir:
			sealed = sealed || i.Name == entryPath(log.seq.sealed) && isOld(i)
		case checkpointsDir:
			_, kind, _ := strings.Cut(name, ".")
			if old, ok := newest[kind]; ok {
				add(old)
			}
			newest[kind] = i
		case dataDir, failuresDir:
			if _, ok := epochOf(log.seq.runID, i.Name); ok && !needed[i.Name] {
				add(i)
			}
		}
	}
	if !sealed {
		return nil, nil
	}
	return list, nil
}
