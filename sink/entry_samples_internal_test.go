package sink

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// checkCutSamples checks that cutSamples returns the same as encoding/json, or ok false.
func checkCutSamples(t *testing.T, body []byte) {
	t.Helper()
	rest, groups, samples, ok := cutSamples(body)
	if !ok {
		return
	}
	var want, got Commit
	wantErr, err := json.Unmarshal(body, &want), json.Unmarshal(rest, &got)
	if (wantErr == nil) != (err == nil) {
		t.Fatalf("%q: %v; with its samples %v", body, err, wantErr)
	}
	if err != nil {
		return
	}
	if got.Groups == nil {
		got.Groups = groups
	}
	if got.Samples == nil {
		got.Samples = samples
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q:\n%+v\nwant:\n%+v", body, got, want)
	}
}

func FuzzCutSamples(f *testing.F) {
	for _, c := range []Commit{
		{},
		{Version: 1, Seq: 1, Groups: []CommittedGroup{{ID: "g", Size: 1}}, Samples: []CommittedSample{{Key: "0123456789abcdef0123456789abcdef-0", Attempt: 1, Rows: 2}}},
		{Shards: []Shard{{Path: `data/x,"samples":[{"key":"`}}, Samples: []CommittedSample{{Key: "a", Attempt: -1, Failures: 1, Class: "decode"}, {Key: "<b>", Rows: 1 << 30}}},
		{Samples: []CommittedSample{{Key: "a"}, {Key: `"`}}},
		{Version: 1, Groups: []CommittedGroup{{ID: "g", Size: 2}, {ID: "", Size: 1}}, Samples: []CommittedSample{{Key: "a", Index: 1}, {Key: "b", Group: 1, Class: "decode"}, {Key: "c", Rows: 1, Filtered: "reward_std"}}},
		{Version: 1, Groups: []CommittedGroup{{ID: "g", Size: 2}}, Samples: []CommittedSample{
			{Key: "a", Filtered: "x", Unshown: tokenize.Unshown{Retries: 1, Summaries: 65535}}, {Key: "b", Unshown: tokenize.Unshown{Failed: 2, Cut: 3}}, {Key: "c"},
		}},
		{Groups: []CommittedGroup{{ID: `,"samples":[{"key":"`, Size: -1}}, Samples: []CommittedSample{{Key: "a"}}},
	} {
		b, err := json.Marshal(c)
		must(f, err)
		f.Add(b)
	}
	for _, text := range []string{
		`{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":01,"rows":1,"failures":0,"group":0,"index":0}]}`, `{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0},]}`,
		`{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":2147483648,"rows":1,"failures":0,"group":0,"index":0}]}`, `{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":-0,"group":0,"index":0}]}`,
		`{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","rows":1,"failures":0,"group":0,"index":0}]}`, `{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0}],"sha256":"x"}`,
		`{"seq":1,"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0}]}`,
		`{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0}]}`,
		`{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"index":0}]}`,
		`{"seq":1,"groups":[{"id":"g","size":1},],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0}]}`,
		`{"seq":1,"groups":[{"id":"g","size":1}],"epoch":1,"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0}]}`,
		`{"seq":1,"later":[{"id":"g","samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0}]}]}`,
		`{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0,"unshown":{"summary":1,"retry":1}}]}`,
		`{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0,"unshown":{"retry":0}}]}`, `{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0,"unshown":{}}]}`,
		`{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0,"unshown":{"retry":65536}}]}`, `{"seq":1,"groups":[{"id":"g","size":1}],"samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0,"unshown":{"later":1}}]}`,
		`{"seq":1,"run_id":"[{\\","samples":[{"key":"a","attempt":1,"rows":1,"failures":0,"group":0,"index":0}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(checkCutSamples)
}

// TestGateEntryAllocs tests that a sample of an entry costs one allocation, its key, and a group its id,
// and no memory besides the lists.
func TestGateEntryAllocs(t *testing.T) {
	const samples = 10_000
	c := Commit{Version: commitVersion, Seq: 1, RunID: "run", SchemaVersion: SchemaVersion}
	for i := range int32(samples) {
		if i%16 == 0 {
			c.Groups = append(c.Groups, CommittedGroup{ID: "scripted-0001", Size: 16})
		}
		c.Samples = append(c.Samples, CommittedSample{Key: "0123456789abcdef0123456789abcdef-0", Attempt: i, Rows: 1, Group: i / 16, Index: i % 16})
	}
	body, err := encodeCommit(&c)
	must(t, err)
	allocs := testing.AllocsPerRun(3, func() {
		got, err := decodeCommit(body)
		if err != nil || len(got.Samples) != samples {
			t.Fatalf("%d samples, %v", len(got.Samples), err)
		}
	})
	if most := 1.1 * samples; allocs > most {
		t.Errorf("%.0f allocations for %d samples, want at most %.0f", allocs, samples, most)
	}
}
