package sink_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// entryOf returns the first entry of a dataset with rows, failures, rewards and a class.
func entryOf(t *testing.T) (dir string, body []byte) {
	t.Helper()
	dir = t.TempDir()
	b := sinktest.NewBuilder(5)
	sinktest.Write(t, dir, sink.Config{RunID: "20260101-120000-0a1b2c3d"}, append(samples(0), b.Sample(b.Row(10, 20), b.Row(30, 20, 3, 1)), b.Failure(3), b.Sample()))
	body = readFile(t, filepath.Join(dir, "_commits", "00000000000000000001.json"))
	return dir, body
}

// TestEveryByteOfAnEntryCounts tests that an entry with any byte changed, removed or added is refused as
// damaged, even if it is still JSON. A changed key would be another sample, and its rows would be
// collected again.
func TestEveryByteOfAnEntryCounts(t *testing.T) {
	t.Parallel()
	_, body := entryOf(t)
	if _, err := sink.DecodeCommit(body); err != nil {
		t.Fatal(err)
	}
	valid := 0
	refused := func(what string, at int, bad []byte) {
		t.Helper()
		if json.Valid(bad) {
			valid++
		}
		if c, err := sink.DecodeCommit(bad); err == nil || errors.Is(err, sink.ErrNewer) {
			t.Errorf("byte %d %s: %+v, %v", at, what, c, err)
		}
	}
	bad := bytes.Clone(body)
	for at, was := range body {
		for v := range 256 {
			if byte(v) != was {
				bad[at] = byte(v)
				refused(fmt.Sprintf("as %q", byte(v)), at, bad)
			}
		}
		bad[at] = was
		refused("gone", at, append(bytes.Clone(body[:at]), body[at+1:]...))
		for _, v := range []byte{0, ' ', '\n', '"', '0', '9', 'a', ',', '}'} {
			refused(fmt.Sprintf("preceded by %q", v), at, append(append(bytes.Clone(body[:at]), v), body[at:]...))
		}
		refused("the first that is cut", at, body[:at])
	}
	refused("a newline more", len(body), append(bytes.Clone(body), '\n'))
	if valid < 10*len(body) {
		t.Errorf("only %d of the changes leave JSON", valid)
	}
}

// TestEntryRefused tests why entries are refused, beyond single bytes, and the error messages.
func TestEntryRefused(t *testing.T) {
	t.Parallel()
	_, body := entryOf(t)
	var c sink.Commit
	must(t, json.Unmarshal(body, &c))
	c.SHA256 = ""
	unsummed, err := json.Marshal(c)
	must(t, err)
	summed := func(edit func(c *sink.Commit)) []byte {
		c := c
		edit(&c)
		b, err := sink.EncodeCommit(&c)
		must(t, err)
		return b
	}
	for _, tt := range []struct {
		name, want string
		newer      bool
		body       []byte
	}{
		{"as it was written", "", false, body},
		{"without a checksum", "has no checksum", false, append(unsummed, '\n')},
		{"checksum in another place", "has no checksum at its end", false, slices.Concat(bytes.TrimSuffix(body, []byte("}\n")), []byte(" }\n"))},
		{"newer, with members of other types", "upgrade rollout", true, summed(func(c *sink.Commit) { c.Version, c.Samples[0].Key = 2, "\"" })},
		{"newer, and its checksum is wrong", "wrong checksum", false, bytes.Replace(body, []byte(`"version":1`), []byte(`"version":5`), 1)},
	} {
		_, err := sink.DecodeCommit(tt.body)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || errors.Is(err, sink.ErrNewer) != tt.newer) {
			t.Errorf("%s: %v, want %q, newer %t", tt.name, err, tt.want, tt.newer)
		}
	}
}

// TestEntryOfAnotherRun tests that readers report an entry of another run, and that Create refuses it.
func TestEntryOfAnotherRun(t *testing.T) {
	t.Parallel()
	dir, _ := entryOf(t)
	if _, err := sink.Create(dir, sink.Config{RunID: "other"}); !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), `but the log belongs to run "other"`) {
		t.Errorf("Create: %v", err)
	}
	report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{RunID: "other"})
	if err != nil || report.ProblemCount == 0 {
		t.Errorf("Verify: %+v, %v", report, err)
	}
	b := sinktest.NewBuilder(6)
	cfg := sink.Config{RunID: "20260101-120000-0a1b2c3d"}
	sinktest.Write(t, dir, cfg, append(samples(0), b.Sample(b.Row(1, 2))))
	spoiled{t, dir}.commit(2, func(c *sink.Commit) { c.RunID = "other" })
	_, readErr := sink.ReadLog(dir)
	_, createErr := sink.Create(dir, cfg)
	report, err = sink.Verify(t.Context(), dir, sink.VerifyOptions{})
	must(t, err)
	for _, err := range []error{readErr, createErr, errors.Join(report.Problems...)} {
		if !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), `belongs to run "other"`) {
			t.Errorf("%v", err)
		}
	}
}
