package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// The dataset card is README.md in the run's folder. Its front matter lists the files of each
// configuration by name, so that load_dataset from Hugging Face's datasets library finds them. A
// glob pattern would also match shards that have not yet been committed.
const (
	cardName = "README.md"
	// cardMark is the second line of a card. A README.md without this line belongs to the user.
	cardMark = "# Written by rollout, and replaced after each commit. Delete this line to keep the file as it is.\n"
)

// A card that lists n commits is rewritten after n/cardShare more commits, or after cardAge. With
// this rule, 10,000 commits cause 50 MB of writes. If every commit rewrote the card, 10,000 commits
// would cause 4 GB of writes.
const (
	cardShare = 64
	cardAge   = 30 * time.Second
)

type card struct {
	location
	logger *slog.Logger
	// slow is true if commits are small and frequent. In this case, only cardAge triggers a
	// rewrite.
	slow bool

	mu      sync.Mutex
	facts   cardFacts
	written int64     // number of the last entry that the file covers
	at      time.Time // when the file was written
}

type cardFacts struct {
	runID   string
	seq     int64 // number of the last entry
	created time.Time
	paths   [1 + KindFailures][]string
	arrow   bool // whether any data shard has the format Arrow
	samples int64
	rows    [1 + KindFailures]int64
	tokens  Tokens
	// graded counts rows by their value in the column verification.
	graded map[string]int64
	// scores is the name of the newest complete scores set, or empty.
	scores string
}

// WriteCard replaces the dataset card of a run in a folder, after a scores set has been completed. No
// other process is allowed to have the folder open. WriteCard uses only the fields RunID and FS of cfg.
// Errors are the same as in [ReadLog], or a *ShardError if the card cannot be written.
func WriteCard(dir string, cfg Config) error {
	files := locate(nil, cfg.FS, dir)
	k := &card{location: files, facts: cardFacts{runID: cfg.RunID}}
	log, err := readLog(files, cfg.RunID, k.facts.addSamples)
	if err != nil {
		return err
	}
	for i := range log.Commits {
		k.facts.add(&log.Commits[i])
	}
	if err := k.findScores(); err != nil {
		return err
	}
	if err := k.replace(); err != nil {
		return &ShardError{Path: dir + "/" + cardName, Op: "write", Err: err}
	}
	return nil
}

// findScores finds the newest complete scores set. While a Dataset is open, its run gets no other set.
func (k *card) findScores() error {
	names, err := ScoreSets(nil, k.dir)
	for _, name := range slices.Backward(names) {
		log, rerr := readScoresLog(setIn(nil, k.dir, name), k.facts.runID)
		if rerr != nil {
			return inScores(name, rerr)
		}
		if log.Sealed() {
			k.facts.scores = name
			return nil
		}
	}
	return err
}

// add adds the next commit in the log. It keeps no reference to c.
func (k *card) add(c *Commit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.facts.add(c)
	k.facts.addSamples(c)
}

func (k *card) merge(c *Commit, sources []Commit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := &k.facts
	var at [1 + KindFailures]int // for each kind, 1 + the index of the first removed path
	for i := range sources {
		for _, s := range sources[i].Shards {
			from := slices.Index(f.paths[s.Kind], s.Path)
			f.paths[s.Kind] = slices.Delete(f.paths[s.Kind], from, from+1)
			if at[s.Kind] == 0 {
				at[s.Kind] = from + 1
			}
			f.count(s, -1)
		}
	}
	for _, s := range c.Shards {
		f.paths[s.Kind] = slices.Insert(f.paths[s.Kind], at[s.Kind]-1, s.Path)
		f.count(s, 1)
	}
	f.seq, f.created = c.Seq, c.CreatedAt
}

func (f *cardFacts) addSamples(c *Commit) {
	for _, s := range c.Samples {
		if !s.Failed() {
			f.samples++
		}
	}
}

// add adds the shards of an entry. Entries must be added in logical order.
func (f *cardFacts) add(c *Commit) {
	f.runID = c.RunID
	if c.Seq > f.seq {
		f.seq, f.created = c.Seq, c.CreatedAt
	}
	for _, s := range c.Shards {
		f.paths[s.Kind] = append(f.paths[s.Kind], s.Path)
		f.count(s, 1)
		f.arrow = f.arrow || s.Kind == KindData && s.Format == Arrow
	}
}

// count adds the shard's counts if sign is 1, and subtracts them if sign is -1.
func (f *cardFacts) count(s Shard, sign int64) {
	f.rows[s.Kind] += sign * s.Rows
	if s.Kind != KindData {
		return
	}
	if sign > 0 {
		f.tokens.Add(s.Tokens)
	} else {
		f.tokens.Add(s.Tokens.negative())
	}
	for grade, n := range s.Verification {
		if f.graded == nil {
			f.graded = map[string]int64{}
		}
		f.graded[grade] += sign * n
	}
}

// refresh writes the card if it lags far enough behind the log.
func (k *card) refresh() {
	k.mu.Lock()
	defer k.mu.Unlock()
	behind := k.facts.seq - k.written
	if behind > 0 && (!k.slow && behind*cardShare >= k.facts.seq || time.Since(k.at) >= cardAge) {
		k.write()
	}
}

func (k *card) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.folder {
		if err := k.findScores(); err != nil {
			k.logger.Warn("the dataset card names no scores set", "path", k.dir, "error", err)
		}
	}
	k.write()
}

// end writes the card if it lags behind the log at all.
func (k *card) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.facts.seq > k.written {
		k.write()
	}
}

// write replaces the card file. If the write fails, the old card stays in place, and a later commit
// retries the write. A bucket has no card, because it contains only a part of the samples.
func (k *card) write() {
	if !k.folder {
		return
	}
	if err := k.replace(); err != nil {
		k.logger.Warn("cannot write the dataset card", "path", k.objects.String()+"/"+cardName, "error", err)
		return
	}
	k.written, k.at = k.facts.seq, time.Now()
}

func (k *card) replace() error {
	ours, err := k.ours()
	if err == nil && ours {
		err = k.objects.Put(cardName, k.facts.text())
	}
	return err
}

// ours reports whether README.md can be replaced because it is missing or is a card.
func (k *card) ours() (bool, error) {
	head, err := readHead(k.objects, cardName, len("---\n"+cardMark))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return string(head) == "---\n"+cardMark, err
}

func (f *cardFacts) text() []byte {
	var b bytes.Buffer
	b.WriteString("---\n" + cardMark + "configs:\n")
	data := func() { f.config(&b, "default", f.paths[KindData]) }
	// The datasets library chooses a reader for the files of the first configuration, and uses the
	// same reader for all configurations. It therefore cannot read Parquet failures next to Arrow
	// data.
	failures := func() {
		if len(f.paths[KindFailures]) > 0 && !f.arrow {
			f.config(&b, KindFailures.String(), f.paths[KindFailures])
		}
	}
	if len(f.paths[KindData]) > 0 {
		data()
		failures()
	} else {
		failures()
		data()
	}
	b.WriteString("---\n\n")
	f.body(&b)
	return b.Bytes()
}

func (f *cardFacts) config(b *bytes.Buffer, name string, paths []string) {
	fmt.Fprintf(b, "- config_name: %s\n", name)
	if len(paths) == 0 {
		b.WriteString("  data_files: []\n")
		return
	}
	b.WriteString("  data_files:\n  - split: train\n    path:\n")
	for _, p := range paths {
		fmt.Fprintf(b, "    - %q\n", p)
	}
}
