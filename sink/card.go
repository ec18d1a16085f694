package sink

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// The dataset card is README.md of the run's folder. Its front matter is what
// datasets.load_dataset of Hugging Face looks for: the files of each configuration, by name.
// A pattern would take in a shard before its commit.
//
// The card follows the log and is never ahead of it. It is written under a temporary name,
// synced and renamed, after the commit is durable. The folder is not synced: after a power
// cut there is this card or an older one, and the next Create writes it again.
const (
	cardName = "README.md"
	// cardTemp begins the name of a card that is being written.
	cardTemp = tempPrefix + "card-"
	// cardMark is the second line of a card. A README.md without it is the user's.
	cardMark = "# Written by rollout, and replaced after each commit. Delete this line to keep the file as it is.\n"
)

// A card of n commits is written again when n/cardShare more are there, or cardAge has
// passed. So 10,000 commits write 50 MB of cards in all; at every commit it would be 4 GB.
const (
	cardShare = 64
	cardAge   = 30 * time.Second
)

// A card is the dataset card of one run.
type card struct {
	fs     FS
	dir    string
	logger *slog.Logger
	// slow: commits are small and many, so only time lets the card be written again.
	slow bool

	mu      sync.Mutex
	facts   cardFacts
	written int64     // the last commit in the file
	at      time.Time // when the file was written
}

// cardFacts is what a card says.
type cardFacts struct {
	runID   string
	schema  int // the newest version of the columns
	mixed   bool
	seq     int64 // the last commit
	created time.Time
	paths   [1 + KindFailures][]string
	arrow   bool // a data shard is in format Arrow
	samples int64
	rows    [1 + KindFailures]int64
	tokens  Tokens
	// graded counts rows by verification; rows of entries that do not say it are in none.
	graded map[string]int64
}

// add takes the next commit of the log. The card keeps nothing of c.
func (k *card) add(c *Commit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.facts.add(c)
	k.facts.addSamples(c)
}

// merge takes a merge in place of the entries that it replaces.
func (k *card) merge(c *Commit, sources []Commit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := &k.facts
	var at [1 + KindFailures]int // the place of the first path of each kind that goes
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

// addSamples counts the samples of a commit.
func (f *cardFacts) addSamples(c *Commit) {
	for _, s := range c.Samples {
		if !s.Failed() {
			f.samples++
		}
	}
}

// add takes what the next entry says of its shards, in logical order.
func (f *cardFacts) add(c *Commit) {
	f.runID = c.RunID
	if c.Seq > f.seq {
		f.seq, f.created = c.Seq, c.CreatedAt
	}
	for _, s := range c.Shards {
		f.paths[s.Kind] = append(f.paths[s.Kind], s.Path)
		f.count(s, 1)
		if s.Kind == KindData {
			f.mixed = f.mixed || f.schema != 0 && f.schema != c.SchemaVersion
			f.schema = max(f.schema, c.SchemaVersion)
			f.arrow = f.arrow || s.Format == Arrow
		}
	}
}

// count adds a shard, or takes it away where sign is -1.
func (f *cardFacts) count(s Shard, sign int64) {
	f.rows[s.Kind] += sign * s.Rows
	if s.Kind != KindData {
		return
	}
	if sign > 0 {
		f.tokens.add(s.Tokens)
	} else {
		f.tokens.add(s.Tokens.negative())
	}
	for grade, n := range s.Verification {
		if f.graded == nil {
			f.graded = map[string]int64{}
		}
		f.graded[grade] += sign * n
	}
}

// refresh writes the card if it lags far enough.
func (k *card) refresh() {
	k.mu.Lock()
	defer k.mu.Unlock()
	behind := k.facts.seq - k.written
	if behind > 0 && (!k.slow && behind*cardShare >= k.facts.seq || time.Since(k.at) >= cardAge) {
		k.write()
	}
}

// begin removes what an earlier process left of a card and writes it. names are those in
// the folder.
func (k *card) begin(names []string) {
	for _, name := range names {
		if strings.HasPrefix(name, cardTemp) {
			_ = k.fs.Remove(filepath.Join(k.dir, name)) // it is in nobody's way
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write()
}

// end writes the card if it lags at all.
func (k *card) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.facts.seq > k.written {
		k.write()
	}
}

// write replaces the file. A card that cannot be written stays as it is, for it holds
// nothing that the log does not have: the next commit tries again.
func (k *card) write() {
	ours, err := k.ours()
	if err == nil && ours {
		err = k.put(k.facts.text())
	}
	if err != nil {
		k.logger.Warn("the dataset card was not written", "path", filepath.Join(k.dir, cardName), "error", err)
		return
	}
	k.written, k.at = k.facts.seq, time.Now()
}

// ours reports whether there is no README.md, or one that a card may replace.
func (k *card) ours() (bool, error) {
	f, err := k.fs.Open(filepath.Join(k.dir, cardName))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	head := make([]byte, len("---\n"+cardMark))
	n, err := f.ReadAt(head, 0)
	if cerr := f.Close(); err == nil || errors.Is(err, io.EOF) {
		err = cerr
	}
	return string(head[:n]) == "---\n"+cardMark, err
}

func (k *card) put(text []byte) error {
	temp := filepath.Join(k.dir, cardTemp+rand.Text()+".md")
	f, err := k.fs.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = k.fs.Rename(temp, filepath.Join(k.dir, cardName))
	}
	if err != nil {
		_ = k.fs.Remove(temp) // a leftover goes with the next Create
	}
	return err
}

// text is the file.
func (f *cardFacts) text() []byte {
	var b bytes.Buffer
	b.WriteString("---\n" + cardMark + "configs:\n")
	data := func() { f.config(&b, "default", f.paths[KindData]) }
	// The library takes one reader for all configurations, by the files of the first one: it
	// cannot have failures, which are Parquet, beside data in Arrow.
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
	if name == "default" && f.mixed {
		b.WriteString(cardFeatures())
	}
	b.WriteString("  data_files:\n  - split: train\n    path:\n")
	for _, p := range paths {
		fmt.Fprintf(b, "    - %q\n", p)
	}
}
