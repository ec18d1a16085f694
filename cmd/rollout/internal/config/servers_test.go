package config

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

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

// A continued run has its servers again, except for header values that it did not keep.
func TestServersFromRun(t *testing.T) {
	t.Parallel()
	env := func(name string) string { return map[string]string{"OWN": "hunter2"}[name] }
	for _, tt := range []struct{ raw, want, bad string }{
		{`["http://a"]`, "[http://a]", ""},
		{`[]`, "[]", ""},
		{
			`["http://a",{"url":"http://b","weight":2,"max_in_flight":7,"headers":{"X-Own":"${env:OWN}"}}]`,
			`[http://a, http://b weight=2 max_in_flight=7 headers={"X-Own":"${env:OWN}"}]`, "",
		},
		{`[{"url":"http://b","headers":{"X":"***"}}]`, "[]", "run.json: server.urls: the run does not store the values of headers: pass the file again; references such as ${env:NAME} are stored"},
		{`[{"url":"http://b","newer":1}]`, "[]", "run.json: server.urls: server 1: newer: unknown key (want url, weight, max_in_flight or headers)"},
	} {
		l := NewLoader(env)
		l.FromRun(Values{"server": {"urls": json.RawMessage(tt.raw)}}, "")
		if got := strings.Join(complaintsOf(l), "\n"); got != tt.bad {
			t.Errorf("%s: complaints %q, want %q", tt.raw, got, tt.bad)
		}
		s := l.ByKey["server.urls"]
		if got := s.Text(); got != tt.want {
			t.Errorf("%s became %s, want %s", tt.raw, got, tt.want)
		}
		if raw, err := s.Json(); tt.bad == "" && (err != nil || string(raw) != tt.raw) {
			t.Errorf("%s is written as %s, %v", tt.raw, raw, err)
		}
	}
}

func TestServersThatAreWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ urls, want string }{
		{"['http://a wait=2']", "server 1: wait: unknown key (want url, weight, max_in_flight or headers)"},
		{"['http://a wieght=2']", "server 1: wieght: unknown key; did you mean weight?"},
		{"['http://a max-in-flight=2']", "server 1: max-in-flight: unknown key; did you mean max_in_flight?"},
		{"['http://a weight=0']", `server 1: weight: "0" is not a number from 0.001 to 1000`},
		{"['http://a weight=NaN']", `server 1: weight: "NaN" is not a number from 0.001 to 1000`},
		{"['http://a weight=1 weight=2']", "server 1: weight is given twice"},
		{"['http://a max_in_flight=0']", "server 1: max_in_flight: 0: must be ≥ 1 and ≤ 2147483647"},
		{"['http://a s3cret']", "server 1: unexpected text after the URL (want weight=N or max_in_flight=N)"},
		{"['http://a headers=s3cret']", "server 1: headers can be secret: set them in the configuration file, where a value can be a reference"},
		{"[http://a, {weight: 2}]", "server 2: has no url"},
		{"[{url: http://a, url: http://b}]", "server 1: url: given twice in one object"},
		{"[http://a, {url: http://b, headers: {X: 1, X: s3cret}}]", "server 2: headers: X: given twice in one object"},
		{"[{url: http://a, headers: {X: !!float s3cret}}]", "line 2: the value is not a !!float"},
		{"[{url: [http://a]}]", "server 1: url: must be a single value"},
		{"[{url: http://a, headers: s3cret}]", "server 1: headers: must be a mapping of names to strings"},
		{"[{url: http://a, headers: {X: '${env:NONE}'}}]", "server 1: headers: X: the environment variable NONE is not set: export it"},
		{"[[http://a]]", "server 1: must be a URL, or a mapping with a url"},
	} {
		l := loadWith(t, "server:\n  urls: "+tt.urls+"\n", nil)
		if got, want := strings.Join(complaintsOf(l), "\n"), "run.yaml:2: server.urls: "+tt.want; got != want {
			t.Errorf("%s: %q, want %q", tt.urls, got, want)
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
		if checkURL(s.URL) != nil { // no run has it
			return
		}
		raw, err := servers{s}.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		l := NewLoader(func(string) string { return "" })
		l.FromRun(Values{"server": {"urls": raw}}, "")
		if got := l.Config.Server.URLs; len(l.Bad) > 0 || len(got) != 1 || !reflect.DeepEqual(got[0], s) {
			t.Errorf("%s is %+v, want %+v: %v", raw, got, s, l.Bad)
		}
	})
}
