package store_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// TestAbout proves that the lists of all sources contain the task and the metadata of a session, unless
// they are too large or damaged, and that the session is listed in any case.
func TestAbout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	var want []*store.About
	seal := func(head session.Head, e session.End, about *store.About) *store.Session {
		t.Helper()
		key, err := s.Begin(head)
		if err != nil {
			t.Fatal(err)
		}
		x := find(t, s, key)
		add(t, x, conversation(1, 0))
		end(t, x, e)
		want = append(want, about)
		return x
	}
	task := &session.Task{ID: "t1", Prompt: "fix <it> ÿ\xff", Answer: new("42"), Metadata: json.RawMessage(`{"a":[1,2]}`)}
	read := *task
	read.Prompt = "fix <it> ÿ\ufffd"
	metadata := json.RawMessage(`{"exit_code":0,"mark":"\u003c"}`)
	large := strings.Repeat("x", 2<<20)
	seal(session.Head{}, session.End{}, &store.About{})
	seal(session.Head{Task: task}, session.End{Metadata: metadata, FinalText: new("done")}, &store.About{Task: &read, Metadata: metadata})
	seal(session.Head{Task: task}, session.End{FinalText: new(large[:100_000])}, &store.About{Task: &read})
	seal(session.Head{Task: &session.Task{Prompt: large}}, session.End{}, nil)
	seal(session.Head{}, session.End{FinalText: new(large)}, nil)
	seal(session.Head{Task: task}, session.End{}, &store.About{Task: &read}) // its call is damaged below
	seal(session.Head{Task: task}, session.End{}, nil)                       // its head is damaged below
	seal(session.Head{Task: task}, session.End{}, nil)                       // its end is damaged below
	entries, err := s.Sealed("")
	if err != nil || len(entries) != len(want) {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for i, at := range map[int]int64{5: entries[5].Bytes / 2, 6: 100, 7: entries[7].Bytes - 3} {
		path := filepath.Join(dir, "sealed", entries[i].Name+".session")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[at]++
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, where := range []string{dir, serve(t, guarded(s))} {
		src, err := store.OpenSource(t.Context(), where, token)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := src.Sealed(t.Context(), "")
		if err != nil || len(entries) != len(want) {
			t.Fatalf("%s: %d entries, %v", where, len(entries), err)
		}
		for i, e := range entries {
			if !reflect.DeepEqual(e.About, want[i]) {
				t.Errorf("%s: session %d: %+v, want %+v", where, i, e.About, want[i])
			}
		}
		src.Close()
	}
}

// TestAboutLimit proves that a list with many large tasks is cut, and that the cursor finds the rest.
func TestAboutLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	const sessions = 11
	for n := range sessions {
		key, err := s.Begin(session.Head{Task: &session.Task{ID: fmt.Sprint(n), Prompt: strings.Repeat("<", 160_000)}})
		if err != nil {
			t.Fatal(err)
		}
		end(t, find(t, s, key), session.End{})
	}
	for _, where := range []string{dir, serve(t, guarded(s))} {
		src, err := store.OpenSource(t.Context(), where, token)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		var lists []int
		for after := ""; ; {
			entries, err := src.Sealed(t.Context(), after)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) == 0 {
				break
			}
			for _, e := range entries {
				after = e.Name
				got = append(got, e.About.Task.ID)
			}
			lists = append(lists, len(entries))
		}
		if want := "0 1 2 3 4 5 6 7 8 9 10"; strings.Join(got, " ") != want || !reflect.DeepEqual(lists, []int{5, 5, 1}) {
			t.Errorf("%s: lists of %v sessions: %v", where, lists, got)
		}
		src.Close()
	}
}
