package runfolder

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/durable"
	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/sink/store"
)

// scoresFile describes a scores set. It is in the folder of the set.
const scoresFile = "scores.json"

// CollectedScores is the name of the rewards that the rows got when they were collected.
const CollectedScores = "collected"

// A ScoresInfo is the content of scores.json: where the scores of a set come from. It is written before
// the first score.
type ScoresInfo struct {
	Version   int           `json:"version"` // version of the file format: runVersion
	Name      string        `json:"name"`
	RunID     string        `json:"run_id"`
	CreatedAt time.Time     `json:"created_at"`
	Rollout   version.Build `json:"rollout"` // the program that created the set
	Scorer    Scorer        `json:"scorer"`
	// Last is the number of the last entry in the run's log when the set was created. Samples is the
	// number of samples with rows up to that entry.
	Last    int64 `json:"last"`
	Samples int   `json:"samples"`
	// SHA256 is the checksum of the file; see EncodeSummed.
	SHA256 string `json:"sha256,omitempty"`
}

// A Scorer describes a scorer. Two scorers with the same digest give the same scores.
type Scorer struct {
	Kind string `json:"kind"`
	// Settings are the settings reward.* that the scores of this kind and the column keep depend on.
	Settings map[string]json.RawMessage `json:"settings"`
	// Files has the digest of each file of the user that scores depend on; see scoring.Scoring.
	Files map[string]string `json:"files,omitempty"`
	// Tokenizer is the digest of the tokenizer that decoded the samples.
	Tokenizer string `json:"tokenizer_sha256"`
	// SHA256 is the digest of the other fields.
	SHA256 string `json:"sha256"`
}

// ScorerOf describes the scorer of the settings, with the digests of its files.
func ScorerOf(l *config.Loader, files map[string]string, tokenizer string) (Scorer, error) {
	s := Scorer{Kind: string(l.Config.Reward.Kind), Settings: map[string]json.RawMessage{}, Files: files, Tokenizer: tokenizer}
	for _, of := range l.Settings {
		if name, ok := strings.CutPrefix(of.Key, "reward."); ok && l.Config.Reward.Kind.Uses(name) {
			raw, err := of.Json()
			if err != nil {
				return s, err
			}
			s.Settings[of.Key] = raw
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return s, err
	}
	sum := sha256.Sum256(b)
	s.SHA256 = hex.EncodeToString(sum[:])
	return s, nil
}

// OpenScores returns the folder of the scores set that a scorer must fill. It is the newest set, if that set
// is not complete and has the same scorer and the same samples: resumed is then true. Otherwise it is a new
// set, and a newest set that is not complete is removed: say gets a line about it. OpenScores sets the name,
// the time and the program in info.
func (f *Folder) OpenScores(info *ScoresInfo, say func(format string, args ...any)) (dir string, resumed bool, err error) {
	names, err := sink.ScoreSets(nil, f.Dir)
	if err != nil {
		return "", false, exit.With(exit.Storage, err)
	}
	next := 1
	if n := len(names); n > 0 {
		newest := names[n-1]
		_, _ = fmt.Sscan(strings.TrimLeft(newest, "0"), &next) // the name is a number
		dir = filepath.Join(f.Dir, filepath.FromSlash(sink.ScoresPath(newest)))
		_, err := sink.ReadScores(nil, f.Dir, info.RunID, newest)
		switch had, herr := ReadScoresInfo(nil, f.Dir, newest); {
		case !errors.Is(err, sink.ErrNoScores): // complete or damaged: readers use or report it until there is a newer set
			next++
		case herr == nil && had.Scorer.SHA256 == info.Scorer.SHA256 && had.Last == info.Last && had.RunID == info.RunID:
			*info = had
			return dir, true, nil
		default:
			if err := os.RemoveAll(dir); err != nil {
				return "", false, exit.With(exit.Storage, err)
			}
			say("removed scores set %s: it was not complete, and its scorer or its samples were others", newest)
		}
	}
	info.Version, info.Name, info.CreatedAt, info.Rollout = runVersion, fmt.Sprintf("%04d", next), time.Now().UTC(), version.Read()
	dir = filepath.Join(f.Dir, filepath.FromSlash(sink.ScoresPath(info.Name)))
	body, err := EncodeSummed(info)
	if err == nil {
		err = errors.Join(MkdirAll(filepath.Dir(dir), f.Mode), MkdirAll(dir, f.Mode))
	}
	if err == nil {
		err = writeFile(dir, scoresFile, f.Mode, func(w io.Writer) error { _, err := w.Write(body); return err })
	}
	if err == nil {
		err = errors.Join(durable.SyncDir(filepath.Dir(dir)), durable.SyncDir(f.Dir))
	}
	failpoint.Hit(failpoint.ScoresMade)
	return dir, false, exit.With(exit.Storage, err)
}

// ReadScores reads the scores set with the given name of a run in a folder or a store, or the newest complete
// set if name is empty. It returns nil if the rewards in the rows count. The parameter location is for
// messages.
func ReadScores(location string, objects store.Store, dir, runID, name string) (*sink.Scores, error) {
	if name == CollectedScores {
		return nil, nil
	}
	s, err := sink.ReadScores(objects, dir, runID, name)
	if errors.Is(err, sink.ErrNoScores) {
		others := []string{CollectedScores}
		if names, err := sink.ScoreSets(objects, dir); err == nil {
			others = append(others, slices.DeleteFunc(names, func(other string) bool { return other == name })...)
		}
		return nil, exit.Usagef("--scores: %s has no complete scores set %s (it has %s)", location, termsafe.Text(name, 40), strings.Join(others, ", "))
	}
	if err != nil {
		return nil, ReadError(location, err)
	}
	return s, nil
}

// ReadScoresInfo reads scores.json of a scores set of a run in a folder or a store. If the file is missing or
// damaged, the error wraps [sink.ErrCorrupt].
func ReadScoresInfo(objects store.Store, dir, name string) (info ScoresInfo, err error) {
	if objects == nil {
		objects = store.Folder(sink.OS(), dir)
	}
	file := sink.ScoresPath(name) + "/" + scoresFile
	b, err := objects.Get(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	if err == nil {
		err = CheckSum(b)
	}
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	if err != nil {
		err = &sink.CorruptError{Path: file, Row: -1, Err: err}
	}
	return info, err
}

// RewardsKey is the shard metadata key of Rewards. It is absent if the rewards come from the collection.
const RewardsKey = "rollout.rewards"

// Rewards describes where the rewards of rows come from, if they do not come from the collection.
type Rewards struct {
	Set    string `json:"scores_set,omitempty"` // name of the scores set; empty in a copy of rollout rescore --out
	Scorer Scorer `json:"scorer"`
}

// String returns the value of RewardsKey.
func (r Rewards) String() string {
	b, _ := json.Marshal(r) // cannot fail, because the settings were read from JSON
	return string(b)
}
