package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Texts of tasks.from_runs are parsed, and are written in a form that can be parsed again.
func TestRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		texts, want []string // in the form that is written
		err         string
	}{
		{[]string{"agent=agent-00aa-1", "run=run-2", "tag=a=b c", "agent=agent-1"}, []string{"agent=agent-00aa-1", "agent=agent-1", "run=run-2", "tag=a=b c"}, ""},
		{[]string{"since=2026-01-02T15:04:05Z"}, []string{"since=2026-01-02T15:04:05Z"}, ""},
		{[]string{"since=2026-01-02T15:04:05.5+02:00"}, []string{"since=2026-01-02T15:04:05.5+02:00"}, ""},
		{[]string{"since=1h", "since=2h"}, nil, "since=: given twice"},
		{[]string{"since=-1h"}, nil, `"-1h" is neither a time such as`},
		{[]string{"since=yesterday"}, nil, "is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 24h"},
		{[]string{"since=0001-01-01T00:00:00Z"}, nil, "is neither a time"},
		{[]string{"agent=run-1"}, nil, `"run-1" is not the id of a server's agent (want agent- and a UUID)`},
		{[]string{"run=run-1/../x"}, nil, "is not the id of a server's run (want run- and a UUID)"},
		{[]string{"tag="}, nil, "tag=: is empty"},
		{[]string{"agents=agent-1"}, nil, `"agents=agent-1" is not one of agent=ID, run=ID, tag=TAG, since=TIME; did you mean agent=…?`},
		{[]string{"prod"}, nil, "is not one of agent=ID"},
		{[]string{""}, nil, "is not one of agent=ID"},
	} {
		l := NewLoader(func(string) string { return "" })
		s := l.ByKey["tasks.from_runs"]
		l.Put(s, "--from-runs", test.texts...)
		if test.err != "" {
			if err := l.Err(); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q: %v, want %q", test.texts, err, test.err)
			}
			continue
		}
		if got, _ := s.get().([]string); l.Err() != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, %v, want %q", test.texts, got, l.Err(), test.want)
		}
	}
}

// A duration in since= becomes a time, so that a continued run selects the same server runs.
func TestRunsSince(t *testing.T) {
	t.Parallel()
	l := NewLoader(func(string) string { return "" })
	before := time.Now().Add(-24 * time.Hour)
	l.Put(l.ByKey["tasks.from_runs"], "--from-runs", "since=24h")
	at := l.Config.Tasks.FromRuns.Since
	if at.Before(before.Truncate(time.Second)) || at.After(time.Now().Add(-24*time.Hour)) || !l.Config.Tasks.FromRuns.All() {
		t.Errorf("%v", at)
	}
	raw, err := l.ByKey["tasks.from_runs"].Json()
	if err != nil {
		t.Fatal(err)
	}
	if want := `["since=` + at.Format(time.RFC3339) + `"]`; string(raw) != want {
		t.Errorf("%s, want %s", raw, want)
	}
}
