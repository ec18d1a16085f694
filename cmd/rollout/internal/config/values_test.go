package config

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/chat"
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
		{[]string{"since=1h", "since=2h"}, nil, "since= is given twice"},
		{[]string{"since=-1h"}, nil, `"-1h" is neither a time such as`},
		{[]string{"since=yesterday"}, nil, "is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 24h"},
		{[]string{"since=0001-01-01T00:00:00Z"}, nil, "is neither a time"},
		{[]string{"agent=run-1"}, nil, `"run-1" is not a valid agent id (want agent- followed by a UUID)`},
		{[]string{"run=run-1/../x"}, nil, "is not a valid run id (want run- followed by a UUID)"},
		{[]string{"tag="}, nil, "tag= has no value"},
		{[]string{"agents=agent-1"}, nil, `"agents=agent-1" is not one of agent=ID, run=ID, tag=TAG, since=TIME; did you mean agent=…?`},
		{[]string{"prod"}, nil, "is not one of agent=ID"},
		{[]string{""}, nil, "is not one of agent=ID"},
	} {
		l := NewLoader(func(string) string { return "" })
		s := l.ByKey["tasks.from_runs"]
		l.Put(s, "--from-runs", test.texts...)
		if test.err != "" {
			if err := l.Bad.Err(); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q: %v, want %q", test.texts, err, test.err)
			}
			continue
		}
		if got, _ := s.get().([]string); l.Bad.Err() != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, %v, want %q", test.texts, got, l.Bad.Err(), test.want)
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
	must(t, err)
	if want := `["since=` + at.Format(time.RFC3339) + `"]`; string(raw) != want {
		t.Errorf("%s, want %s", raw, want)
	}
}

// tokens.policy_version accepts a number, a page, or a reference to a page, from every source of
// settings.
func TestPolicyVersion(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PAGE": "https://user:hunter2@trainer/v?token=hunter3"}
	for _, tt := range []struct {
		name, file, variable, flag string
		claimed, traces            bool
		version                    int32
		url, shown, json, bad      string
	}{
		{name: "none", json: `""`},
		{name: "a number in the file", file: "tokens: {policy_version: 0}\n", claimed: true, json: `"0"`},
		{name: "a number in the environment", variable: "12", claimed: true, version: 12, json: `"12"`},
		{name: "traces", flag: "trace", traces: true, json: `"trace"`},
		{name: "traces in the file", file: "tokens: {policy_version: trace}\n", traces: true, json: `"trace"`},
		{name: "a page", flag: "http://h:30000/model_info#a.b", url: "http://h:30000/model_info#a.b", shown: "http://h:30000/model_info", json: `"http://h:30000/model_info#a.b"`},
		{name: "a reference", flag: "${env:PAGE}", url: env["PAGE"], shown: "https://trainer", json: `"${env:PAGE}"`},
		{name: "a reference to nothing", flag: "${env:NONE}", bad: "NONE is not set"},
		{name: "a negative number", flag: "-1", bad: "must be from 0 to 2147483647, got -1"},
		{name: "a large number", flag: "2147483648", bad: "must be from 0 to 2147483647, got 2147483648"},
		{name: "a word", flag: "latest", bad: "want a whole number"},
		{name: "no whole number", flag: "1.5", bad: "want a whole number"},
		{name: "a password", flag: "http://u:hunter2@h/", bad: "use a reference"},
		{name: "a query", flag: "http://h/?token=hunter2", bad: "use a reference"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := map[string]string{"PAGE": env["PAGE"], "ROLLOUT_TOKENS_POLICY_VERSION": tt.variable}
			var flags []string
			if tt.flag != "" {
				flags = []string{"--policy-version", tt.flag}
			}
			l := loadWith(t, tt.file, all, flags...)
			if tt.bad != "" {
				if text := strings.Join(complaintsOf(l), "\n"); !strings.Contains(text, tt.bad) || strings.Contains(text, "hunter") {
					t.Errorf("complaints %q, want %q and no secret", text, tt.bad)
				}
				return
			}
			if len(l.Bad) > 0 {
				t.Fatal(l.Bad)
			}
			v := l.Config.Tokens.PolicyVersion
			if v.Claimed != tt.claimed || v.Traces != tt.traces || v.Version != tt.version || v.URL.Reveal() != tt.url || v.Shown != tt.shown {
				t.Errorf("%+v (%s), want %+v", v, v.URL.Reveal(), tt)
			}
			if raw, err := l.ByKey["tokens.policy_version"].Json(); err != nil || string(raw) != tt.json {
				t.Errorf("run.json holds %s (%v), want %s", raw, err, tt.json)
			}
		})
	}
}

// The claim of one engine holds only for the same page and the same servers.
func TestOneEngineOfAnEarlierInvocation(t *testing.T) {
	t.Parallel()
	had := Values{
		"server": {"urls": []byte(`["http://one"]`)},
		"tokens": {"policy_version": []byte(`"http://h/v"`), "one_engine": []byte(`true`)},
	}
	for _, c := range []struct {
		name, server, version string
		want                  bool
	}{
		{"the same", "", "", true},
		{"said again", "http://one", "http://h/v", true},
		{"another page", "", "http://h/w", false},
		{"another server", "http://two", "", false},
		{"a claim", "", "9", false},
	} {
		env := map[string]string{"ROLLOUT_SERVER_URLS": c.server, "ROLLOUT_TOKENS_POLICY_VERSION": c.version}
		l := loadWith(t, "", env)
		l.FromRun(had)
		if l.Config.Tokens.OneEngine != c.want || len(l.Bad) > 0 {
			t.Errorf("%s: one engine: %v (%v), want %v", c.name, l.Config.Tokens.OneEngine, l.Bad, c.want)
		}
	}
}

// A run keeps whether the release of transformers was set, even if it was set to the default.
func TestReleaseOfAnEarlierInvocation(t *testing.T) {
	for _, tt := range []struct {
		given string // null: not set
		want  []chat.Transformers
	}{
		{`null`, nil},
		{`"4.57"`, []chat.Transformers{chat.Transformers457}},
		{`"5.0"`, []chat.Transformers{chat.Transformers50}},
	} {
		l := NewLoader(func(string) string { return "" })
		l.FromRun(Values{"tokens": {"transformers": []byte(tt.given)}})
		if got := l.Config.Releases(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: releases %v, want %v", tt.given, got, tt.want)
		}
	}
}

func TestTimezone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, says string }{
		{"UTC", ""},
		{"Europe/Berlin", ""},
		{"Etc/GMT-14", ""},
		{"America/Argentina/Buenos_Aires", ""},
		{"", ""},
		{"Local", "means the time zone of this machine"},
		{"europe/berlin", "did you mean Europe/Berlin?"},
		{"Europe/Berln", "did you mean Europe/Berlin?"},
		{"Kolkata", "did you mean Asia/Kolkata?"},
		{"america/new york", "did you mean America/New_York?"},
		{"UTC+2", "did you mean Etc/GMT-2?"},
		{"-05:00", "did you mean Etc/GMT+5?"},
		{"+05:30", "want UTC or a name such as Europe/Berlin)"},
		{"../etc/passwd", "is not a time zone"},
		{"nowhere at all", "want UTC or a name such as Europe/Berlin)"},
	} {
		zone, err := parseTimezone(tt.text)
		switch {
		case tt.says == "" && (err != nil || tt.text != "" && zone.String() != tt.text):
			t.Errorf("%q: %v, %v", tt.text, zone, err)
		case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%q: %v, want %q", tt.text, err, tt.says)
		}
	}
}

// Every suggested zone can be loaded.
func TestZoneNames(t *testing.T) {
	t.Parallel()
	if len(zones()) < 500 {
		t.Errorf("%d zones", len(zones()))
	}
	for _, name := range zones() {
		if _, err := time.LoadLocation(name); err != nil {
			t.Error(err)
		}
	}
}

const threeServers = `
server:
  max_in_flight: 10
  headers: {X-All: all, X-Both: shared}
  urls:
    - http://a
    - http://b weight=2.5
    - url: http://c
      weight: 0.5
      max_in_flight: 64
      headers: {X-Own: "${env:OWN}", x-both: hunter3}
`

// Each server has its own settings and shares the others. Its own header replaces the shared header
// in any spelling.
func TestServersOfTheirOwn(t *testing.T) {
	t.Parallel()
	l := loaded(t, threeServers, map[string]string{"OWN": "hunter2"})
	c := l.Config
	want := []struct {
		url      string
		weight   float64
		inFlight int
		headers  http.Header
	}{
		{"http://a", 0, 10, http.Header{"X-All": {"all"}, "X-Both": {"shared"}}},
		{"http://b", 2.5, 10, http.Header{"X-All": {"all"}, "X-Both": {"shared"}}},
		{"http://c", 0.5, 64, http.Header{"X-All": {"all"}, "X-Both": {"hunter3"}, "X-Own": {"hunter2"}}},
	}
	for i, w := range want {
		s := &c.Server.URLs[i]
		if s.URL != w.url || s.Weight != w.weight || c.InFlight(s) != w.inFlight || !reflect.DeepEqual(c.HeadersOf(s), w.headers) {
			t.Errorf("server %d: %s, weight %v, %d in flight, headers %v; want %+v", i, s.URL, s.Weight, c.InFlight(s), c.HeadersOf(s), w)
		}
	}
	if got, want := l.ByKey["server.urls"].Text(), `[http://a, http://b weight=2.5, http://c weight=0.5 max_in_flight=64 headers={"X-Own":"${env:OWN}","x-both":"***"}]`; got != want {
		t.Errorf("shown as %s\nwant %s", got, want)
	}
	raw, err := l.ByKey["server.urls"].Json()
	if want := `["http://a",{"url":"http://b","weight":2.5},{"url":"http://c","weight":0.5,"max_in_flight":64,"headers":{"X-Own":"${env:OWN}","x-both":"***"}}]`; err != nil || string(raw) != want {
		t.Errorf("written as %s, %v\nwant %s", raw, err, want)
	}
	for _, secret := range []string{"hunter2", "hunter3"} {
		if !slices.Contains(c.Secrets(), secret) {
			t.Errorf("%s does not count as a secret", secret)
		}
		for _, format := range []string{"%v", "%+v", "%s"} {
			if text := fmt.Sprintf(format, l.ByKey["server.urls"].get()); strings.Contains(text, secret) {
				t.Errorf("%s shows %s", format, text)
			}
		}
	}
}

// A server of the file that the command line names keeps its settings, including its headers.
// Settings on the command line win. A server that is not in the file has no own settings.
func TestServersNamedAgain(t *testing.T) {
	t.Parallel()
	l := loaded(t, threeServers, map[string]string{"OWN": "hunter2"}, "--server", "http://C:80/ weight=3", "--server", "http://b", "--server", "http://d")
	want := `[http://C:80/ weight=3 max_in_flight=64 headers={"X-Own":"${env:OWN}","x-both":"***"}, http://b weight=2.5, http://d]`
	if got := l.ByKey["server.urls"].Text(); got != want {
		t.Errorf("servers %s\nwant    %s", got, want)
	}
}

// A continued run has its servers again, except for header values that it did not keep. It does not keep
// the claimed version of an earlier invocation, but it keeps a page.
func TestFromRun(t *testing.T) {
	t.Parallel()
	env := func(name string) string { return map[string]string{"OWN": "hunter2"}[name] }
	for _, tt := range []struct{ key, raw, want, bad string }{
		{"tokens.policy_version", `"7"`, "", ""},
		{"tokens.policy_version", `"http://h/v"`, "http://h/v", ""},
		{"server.urls", `["http://a"]`, "[http://a]", ""},
		{"server.urls", `[]`, "[]", ""},
		{
			"server.urls", `["http://a",{"url":"http://b","weight":2,"max_in_flight":7,"headers":{"X-Own":"${env:OWN}"}}]`,
			`[http://a, http://b weight=2 max_in_flight=7 headers={"X-Own":"${env:OWN}"}]`, "",
		},
		{"server.urls", `[{"url":"http://b","headers":{"X":"***"}}]`, "[]", "run.json: server.urls: the run stores only references such as ${env:NAME}, not the values of headers: pass the configuration file again"},
		{"server.urls", `[{"url":"http://b","newer":1}]`, "[]", "run.json: server.urls: server 1: newer: unknown key (want url, weight, max_in_flight or headers)"},
	} {
		l := NewLoader(env)
		section, name, _ := strings.Cut(tt.key, ".")
		l.FromRun(Values{section: {name: json.RawMessage(tt.raw)}})
		if got := strings.Join(complaintsOf(l), "\n"); got != tt.bad {
			t.Errorf("%s: complaints %q, want %q", tt.raw, got, tt.bad)
		}
		s := l.ByKey[tt.key]
		if got := s.Text(); got != tt.want {
			t.Errorf("%s became %s, want %s", tt.raw, got, tt.want)
		}
		fleet := NewLoader(env)
		fleet.FromFleet(Values{section: {name: json.RawMessage(tt.raw)}})
		if got := strings.Join(complaintsOf(fleet), "\n"); got != strings.Replace(tt.bad, "run.json: ", "fleet.json: ", 1) {
			t.Errorf("%s in a fleet: complaints %q", tt.raw, got)
		}
		if given := fleet.ByKey[tt.key].Given(); given != "" {
			t.Errorf("%s in a fleet: Given() = %q", tt.raw, given)
		}
		if raw, err := s.Json(); tt.want != "" && tt.bad == "" && (err != nil || string(raw) != tt.raw) {
			t.Errorf("%s is written as %s, %v", tt.raw, raw, err)
		}
	}
}

// The text form of a server can be parsed to the same server.
func FuzzServer(f *testing.F) {
	for _, text := range []string{"http://a", "http://a weight=2 max_in_flight=64", "http://a  weight=1e-3", "", "a=b", "http://a weight=0x1p4"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseServer(text)
		if err != nil || !utf8.ValidString(text) {
			return
		}
		again, err := parseServer(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%q is %+v, and %q is %+v, %v", text, s, s.String(), again, err)
		}
		if checkURL(s.URL, "") != nil { // no run has it
			return
		}
		raw, err := servers{s}.MarshalJSON()
		must(t, err)
		l := NewLoader(func(string) string { return "" })
		l.FromRun(Values{"server": {"urls": raw}})
		if got := l.Config.Server.URLs; len(l.Bad) > 0 || len(got) != 1 || !reflect.DeepEqual(got[0], s) {
			t.Errorf("%s is %+v, want %+v: %v", raw, got, s, l.Bad)
		}
	})
}
