package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink/store"
)

// A damaged partition does not hide the others: the verbs that show a part of a run show the rest, export
// writes nothing, and all of them name the partition and end with 9.
func TestFleetDamage(t *testing.T) {
	t.Parallel()
	l := newFleetLab(t)
	objects := l.store(t, "run1")
	rows := func(r ran) map[string]float64 { // numbers of the first rows, by sample
		all := map[string]float64{}
		for line := range strings.Lines(r.stdout) {
			var row struct {
				Row     float64
				Key     string `json:"sample_key"`
				Segment int    `json:"segment_index"`
			}
			if noError(t, json.Unmarshal([]byte(line), &row)); row.Segment == 0 {
				all[row.Key] = row.Row
			}
		}
		return all
	}
	whole := rows(mustRun(t, exit.OK, "inspect", "--json", l.at("run1")))
	planned := jsonOf[runStatus](t, mustRun(t, exit.OK, "status", "--json", l.at("run1")))
	inOther := map[string]float64{} // the rows of partition 1
	for line := range strings.Lines(mustRun(t, exit.OK, "export", l.at("run1")).stdout) {
		var row struct {
			Key string `json:"sample_key"`
		}
		noError(t, json.Unmarshal([]byte(line), &row))
		if inOther[row.Key] = whole[row.Key]; hasSample(t, objects, "partitions/0000/", row.Key) {
			delete(inOther, row.Key)
		}
	}
	if len(inOther) == 0 || len(inOther) == len(whole) {
		t.Fatalf("%d of %d samples are in partition 1", len(inOther), len(whole))
	}
	inDamaged := ""
	for key := range whole {
		if _, ok := inOther[key]; !ok {
			inDamaged = key
		}
	}
	entry, shard := namesIn(t, objects, "partitions/0000/_commits/")[1], namesIn(t, objects, "partitions/0000/data/")[0]
	for _, c := range []struct {
		name, object, text string
		log                bool // the commit log is damaged
		damage             func(name string, body []byte) error
	}{
		{"entry", entry, entry + ": wrong checksum", true, func(name string, body []byte) error { return objects.Put(name, flipped(body)) }},
		{"missing entry", entry, entry + ": read: a later entry exists, but the store does not return this one", true, func(name string, _ []byte) error { return objects.Delete(name) }},
		{"shard", shard, shard + ": ", false, func(name string, body []byte) error { return objects.Put(name, flipped(body)) }},
		{"missing shard", shard, shard + ": ", false, func(name string, _ []byte) error { return objects.Delete(name) }},
	} {
		saved := map[string][]byte{c.object: must(objects.Get(c.object))(t)}
		if c.log {
			for _, name := range namesIn(t, objects, "partitions/0000/_checkpoints/") {
				saved[name] = must(objects.Get(name))(t)
				noError(t, objects.Delete(name))
			}
		}
		noError(t, c.damage(c.object, saved[c.object]))
		damaged := func(args ...string) ran {
			t.Helper()
			r := invoke(t.Context(), append(args, l.at("run1"))...)
			if r.code != exit.Verify || args[0] != "verify" && (!strings.Contains(r.stderr, c.text) || strings.Count(r.stderr, "\nhint: to list the damage, run rollout verify ") != 1) {
				t.Errorf("%s: %q ended with %d, want 9 and %q:\n%s%s", c.name, args, r.code, c.text, r.stdout, r.stderr)
			}
			return r
		}
		shown := rows(damaged("inspect", "--json"))
		if !slices.Equal(slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(inOther))) || !c.log && !maps.Equal(shown, inOther) {
			t.Errorf("%s: inspect shows the rows %v, want %v", c.name, shown, inOther)
		}
		for key, row := range shown {
			n := strconv.Itoa(int(row))
			for _, args := range [][]string{{"--key", key, "--row", "0"}, {"--row", n}, {"--key", key}} {
				args = append([]string{"inspect", "--json"}, args...)
				var r ran
				if c.log {
					r = damaged(args...)
				} else {
					r = mustRun(t, exit.OK, append(args, l.at("run1"))...) // it does not read the shard
				}
				contains(t, r.stdout, `"`+key+`"`)
			}
		}
		damaged("inspect", "--key", inDamaged)
		damaged("inspect", "--task", "nothing")
		damaged("inspect", "--task", "nothing", "--row", "0")
		if !c.log {
			damaged("inspect", "--row", "0")
		}
		contains(t, damaged("report").stdout, "not counted: partitions/0000/")
		page := damaged("view", "--tokenizer", "none", "--out", "-").stdout
		contains(t, page, "not counted: partitions/0000/")
		for key := range inOther {
			contains(t, page, `"key":"`+key+`"`)
		}
		if c.log {
			damaged("failures")
		} else {
			mustRun(t, exit.OK, "failures", l.at("run1"))
		}
		contains(t, damaged("verify").stdout, c.text)
		if r := damaged("export"); c.log && r.stdout != "" {
			t.Errorf("%s: export wrote %s", c.name, r.stdout)
		}
		if c.log {
			damaged("clean", "--dry-run")
			s := jsonOf[runStatus](t, damaged("status", "--json"))
			if s.Planned != planned.Planned || s.Committed != len(inOther) || *s.Partitions != (partitionStatus{Total: 2, Complete: 1, Damaged: 1}) {
				t.Errorf("%s: status %+v, %+v", c.name, s, *s.Partitions)
			}
			contains(t, damaged("status").stdout, "2: 1 complete, 0 claimed, 0 not claimed, 1 damaged")
		}
		for name, body := range saved {
			noError(t, objects.Put(name, body))
		}
		mustRun(t, exit.OK, "verify", l.at("run1"))
	}
}

func jsonOf[T any](t *testing.T, r ran) (v T) {
	t.Helper()
	noError(t, json.Unmarshal([]byte(r.stdout), &v))
	return v
}

// namesIn returns the names of the objects below a prefix.
func namesIn(t *testing.T, objects store.Store, prefix string) (names []string) {
	t.Helper()
	for i, err := range objects.List(prefix, "") {
		noError(t, err)
		names = append(names, i.Name)
	}
	return slices.Clip(names)
}

// hasSample reports whether an entry of a partition contains a sample.
func hasSample(t *testing.T, objects store.Store, partition, key string) bool {
	t.Helper()
	return slices.ContainsFunc(namesIn(t, objects, partition+"_commits/"), func(name string) bool {
		return bytes.Contains(must(objects.Get(name))(t), fmt.Appendf(nil, "%q", key))
	})
}

func flipped(body []byte) []byte {
	body = bytes.Clone(body)
	body[len(body)/2] ^= 1
	return body
}
