package sink_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

var cardPath = regexp.MustCompile(`(?m)^    - "(.*)"$`)

// cardNames checks that the card names only files of the log and, if complete is set, all of them.
func cardNames(t *testing.T, dir string, complete bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if os.IsNotExist(err) && !complete {
		return
	}
	must(t, err)
	if !strings.HasPrefix(string(text), "---\n# Written by rollout") || !strings.HasSuffix(string(text), "\n") {
		t.Errorf("the card is torn: %q", text)
	}
	log := readLog(t, dir)
	var want, got []string
	for _, kind := range []sink.Kind{sink.KindData, sink.KindFailures} {
		for s := range log.Shards(kind) {
			want = append(want, s.Path)
		}
	}
	for _, m := range cardPath.FindAllStringSubmatch(string(text), -1) {
		got = append(got, m[1])
		if !slices.Contains(want, m[1]) {
			t.Errorf("the card names %s, the log does not", m[1])
		}
	}
	if strings.Contains(string(text), "They are not a configuration of this card") { // Arrow
		want = slices.DeleteFunc(want, func(p string) bool { return strings.HasPrefix(p, "failures/") })
	}
	slices.Sort(want)
	slices.Sort(got)
	if complete && !slices.Equal(got, want) {
		t.Errorf("the card names %q, the log %q", got, want)
	}
}

func cardOf(t *testing.T, dir string) string {
	t.Helper()
	return string(readFile(t, filepath.Join(dir, "README.md")))
}

func TestCardSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := sink.Config{RunID: "r1"}
	open(t, dir, cfg)
	if got := cardOf(t, dir); !strings.Contains(got, "data_files: []") || !strings.Contains(got, "no commit yet") {
		t.Errorf("card without a commit: %s", got)
	}
	b := sinktest.NewBuilder(1)
	unverified := b.Sample(b.Row(1, 2))
	unverified.Rows[0].Grade = tokenize.Unverified
	sinktest.Write(t, dir, cfg, []*tokenize.Sample{b.Sample(b.Row(3, 4), b.Row(5, 6)), unverified, b.Failure(2), b.Sample()})
	cardNames(t, dir, true)
	text := cardOf(t, dir)
	for _, want := range []string{
		"# Rollouts of run r1\n", "| samples in the data | 3 |", "| rows | 3 |", "| tokens | 21 |", "| tokens with loss mask 1 | 12 |",
		"| rows with verification `count_verified` | 2 |", "| rows with verification `unverified` | 1 |", "| failure rows | 1 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the card lacks %q:\n%s", want, text)
		}
	}
	for _, other := range []string{"license:", "without counts"} {
		if strings.Contains(text, other) {
			t.Errorf("the card has %q", other)
		}
	}
}

// TestCardOfTheUser tests that commits replace neither the user's README.md nor an unmarked card.
func TestCardOfTheUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := sinktest.NewBuilder(1)
	sinktest.Write(t, dir, sink.Config{}, []*tokenize.Sample{b.Sample(b.Row(3, 4))})
	mine := bytes.Replace([]byte(cardOf(t, dir)), []byte("# Written by"), []byte("# Once written by"), 1)
	must(t, os.WriteFile(filepath.Join(dir, "README.md"), mine, 0o666))
	sinktest.Write(t, dir, sink.Config{}, []*tokenize.Sample{b.Sample(b.Row(3, 4))})
	if got := cardOf(t, dir); got != string(mine) {
		t.Errorf("the user's file was replaced by %s", got)
	}
	// After its removal Create writes a complete card, and removes leftovers.
	must(t, os.Remove(filepath.Join(dir, "README.md")))
	must(t, os.WriteFile(filepath.Join(dir, ".tmp-README.md-X"), nil, 0o666))
	open(t, dir, sink.Config{})
	cardNames(t, dir, true)
	if left, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestCardOfScores tests that the card names the newest complete scores set of its run, and that only a complete card
// replaces the card.
func TestCardOfScores(t *testing.T) {
	t.Parallel()
	dir, samples, cfg := t.TempDir(), someSamples(4), sink.Config{RunID: "run"}
	sinktest.Write(t, dir, cfg, samples)
	before := cardOf(t, dir)
	const puts = "`rollout rescore` puts newer rewards into `scores/`"
	if strings.Contains(before, "## Rewards") || !strings.Contains(before, puts) {
		t.Errorf("card without a set:\n%s", before)
	}
	names := func(want string) {
		t.Helper()
		text := cardOf(t, dir)
		_, part, ok := strings.Cut(text, "## Rewards")
		if ok != (want != "") || ok && (!strings.Contains(part, "newest complete scores set was `"+want+"`.") || strings.Count(part, "/scores/"+want+"/scores") != 2) || !strings.Contains(text, puts) {
			t.Errorf("want a card with set %q:\n%s", want, text)
		}
		cardNames(t, dir, true)
	}
	scored(t, dir, "0001", samples, 2, false)
	must(t, sink.WriteCard(dir, cfg))
	names("")
	if got := cardOf(t, dir); got != before {
		t.Errorf("WriteCard without a set wrote\n%s\nwant\n%s", got, before)
	}
	scored(t, dir, "0002", samples, 2, true)
	names("") // a process that is killed here leaves an older card; it is true
	must(t, sink.WriteCard(dir, cfg))
	names("0002")
	scored(t, dir, "0003", samples, 2, false)
	open(t, dir, cfg)
	names("0002")
	// A set that is damaged does not end a collection.
	entry := got(filepath.Glob(filepath.Join(dir, "scores", "0003", "_commits", "*1.json")))(t)[0]
	must(t, os.WriteFile(entry, []byte("{}"), 0o666))
	if err := sink.WriteCard(dir, cfg); !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), "scores/0003") {
		t.Errorf("WriteCard with a damaged set: %v", err)
	}
	names("0002")
	open(t, dir, cfg)
	names("")
	must(t, os.RemoveAll(filepath.Join(dir, "scores", "0003")))
	mine := []byte("# My run\n")
	must(t, os.WriteFile(filepath.Join(dir, "README.md"), mine, 0o666))
	must(t, sink.WriteCard(dir, cfg))
	if got := cardOf(t, dir); got != string(mine) {
		t.Errorf("the user's file was replaced by %s", got)
	}
}

// TestCardCost tests that the bytes of all cards grow linearly with the commits up to 10,000.
func TestCardCost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1000, 10_000} {
		written, last := sink.CardBytes(t.TempDir(), n)
		t.Logf("%d commits: %d bytes in all, the last card has %d", n, written, last)
		if written > 80*last {
			t.Errorf("%d commits: %d bytes written, the last card has %d", n, written, last)
		}
	}
}
