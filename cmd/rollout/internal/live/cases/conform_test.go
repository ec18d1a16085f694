//go:build linux

package cases_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A side is one of the two compared servers.
type side struct {
	t      *testing.T
	url    string
	handle string
	header http.Header       // of the next requests
	names  map[string]string // names of objects by id
	id     map[string]string // ids by name, and other variables of the steps
	facts  []string          // of the running check
	label  string            // of the last request
	last   exchanged         // its answer
}

func newSide(t *testing.T, url, handle string) *side {
	t.Helper()
	s := &side{t: t, url: url, handle: handle, header: http.Header{"User-Agent": {"rollout/test"}}, names: map[string]string{}}
	source := must(os.ReadFile("testdata/conform_add.py"))(t)
	s.id = map[string]string{
		"HANDLE": handle, "NO-AGENT": unknownID("agent"), "NO-RUN": unknownID("run"), "NO-CONV": unknownID("conv"),
		"SOURCE":         string(object(t, string(source))),
		"CHANGED-SOURCE": string(object(t, strings.ReplaceAll(string(source), "first", "1st"))),
		"ADD-SOURCE":     string(object(t, toolSource(t, "add"))),
	}
	return s
}

// fact records a finding of a request, in words that are the same on both sides.
func (s *side) fact(format string, args ...any) {
	s.facts = append(s.facts, fmt.Sprintf(format, args...))
}

var (
	uuids   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	moments = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{6})?`)
)

// common replaces the parts of a text that differ between servers: ids, times, addresses.
func (s *side) common(text string) string {
	text = strings.ReplaceAll(text, s.url, "URL")
	text = strings.ReplaceAll(text, s.handle, "HANDLE")
	text = uuids.ReplaceAllStringFunc(text, func(id string) string {
		for whole, name := range s.names {
			if strings.HasSuffix(whole, id) {
				return name
			}
		}
		return "UUID"
	})
	return moments.ReplaceAllString(text, "MOMENT$1")
}

// named gives the object with the id a name.
func (s *side) named(id, name string) { s.names[id], s.id[name] = name, id }

type exchanged struct {
	status int
	header http.Header
	body   []byte
}

// do makes a request with this body of JSON; empty: none.
func (s *side) do(method, path, body string) exchanged {
	s.t.Helper()
	media := ""
	if body != "" {
		media = "application/json"
	}
	return s.send(method, path, media, strings.NewReader(body))
}

func (s *side) send(method, path, media string, body io.Reader) exchanged {
	s.t.Helper()
	r := must(http.NewRequestWithContext(s.t.Context(), method, s.url+path, body))(s.t)
	r.Header = s.header.Clone()
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	w, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r) // does not follow redirects
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	return exchanged{w.StatusCode, w.Header, must(io.ReadAll(w.Body))(s.t)}
}

// shape makes a request and records the status, the media type, and the names and types of all
// members of the answer. Of an error it also records the text.
func (s *side) shape(what, method, path, body string) {
	s.t.Helper()
	s.label, s.last = what, s.do(method, path, body)
	s.shapeOf(what, s.last)
}

func (s *side) shapeOf(what string, x exchanged) {
	media, _, _ := strings.Cut(x.header.Get("Content-Type"), ";")
	s.fact("%s: status %d, %s", what, x.status, media)
	if to := x.header.Get("Location"); to != "" {
		s.fact("%s: to %s", what, s.common(to))
	}
	var v any
	if json.Unmarshal(x.body, &v) != nil {
		s.fact("%s: no JSON: %s", what, s.common(string(x.body)))
		return
	}
	if x.status >= 300 {
		s.fact("%s: %s", what, s.refusal(v))
		return
	}
	types := map[string]map[string]bool{}
	membersOf(v, "", types)
	for _, at := range slices.Sorted(maps.Keys(types)) {
		s.fact("%s: %s is %s", what, at, strings.Join(slices.Sorted(maps.Keys(types[at])), " or "))
	}
}

// pydantic finds the failed rule and its location in the text of a failed validation.
var pydantic = regexp.MustCompile(`'type': '(\w+)', 'loc': \(([^)]*)\)`)

// refusal returns the part of an error that clients can rely on: its members and the start of its
// text. The rest of the text contains database queries. For a failed validation it returns the rule
// and the location.
func (s *side) refusal(v any) string {
	o, _ := v.(map[string]any)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(o)) {
		text, ok := o[name].(string)
		if !ok {
			b, _ := json.Marshal(o[name])
			text = string(b)
		}
		if rules := pydantic.FindAllStringSubmatch(text, -1); rules != nil {
			text = ""
			for _, rule := range rules {
				text += rule[1] + " at " + rule[2] + ";"
			}
		}
		const most = 50
		text = s.common(text)
		out = append(out, name+" "+text[:min(most, len(text))])
	}
	return strings.Join(out, ", ")
}

// opaque are members whose own members are data: of an agent's tool, of a request to an engine, or
// of user input.
var opaque = map[string]bool{"json_schema": true, "args_json_schema": true, "parameters": true}

// membersOf records the types of all values. All elements of a list count as one, except that
// messages are separated by type.
func membersOf(v any, at string, types map[string]map[string]bool) {
	kind := "null"
	switch v := v.(type) {
	case bool:
		kind = "bool"
	case float64:
		kind = "number"
	case string:
		kind = "string"
	case []any:
		kind = "list"
		for _, one := range v {
			name := "[]"
			if o, ok := one.(map[string]any); ok {
				if typed, ok := o["message_type"].(string); ok {
					name = "[" + typed + "]"
				}
			}
			membersOf(one, at+name, types)
		}
	case map[string]any:
		kind = "object"
		if !opaque[at[strings.LastIndexByte(at, '.')+1:]] {
			for name, one := range v {
				membersOf(one, at+"."+uuids.ReplaceAllString(name, "UUID"), types)
			}
		}
	}
	if types[at] == nil {
		types[at] = map[string]bool{}
	}
	types[at][kind] = true
}

// value returns a member of the answer. The path is names and indexes with dots between them, or "."
// for the whole answer.
func (x exchanged) value(path string) any {
	var v any
	if json.Unmarshal(x.body, &v) != nil || path == "." {
		return v
	}
	for step := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

func (x exchanged) text(path string) string {
	s, _ := x.value(path).(string)
	return s
}

// ids returns the ids of a list without consecutive duplicates, because one stored message can be
// several elements.
func (x exchanged) ids() (ids []string) {
	var list []struct{ ID string }
	_ = json.Unmarshal(x.body, &list)
	for i := range list {
		if n := len(ids); n == 0 || ids[n-1] != list[i].ID {
			ids = append(ids, list[i].ID)
		}
	}
	return ids
}

// paging records which elements a list returns for combinations of order, cursor and limit, by
// their index in the whole list, oldest first. One cursor is an id of the kind that no list has.
func (s *side) paging(kind, path string) {
	s.t.Helper()
	join, gone := "?", unknownID(kind)
	if strings.Contains(path, "?") {
		join = "&"
	}
	all := s.do(http.MethodGet, path+join+"order=asc", "").ids()
	if len(all) < 5 {
		s.fact("%d elements to page through", len(all))
		return
	}
	queries := []string{"", "order=asc", "limit=2", "after=" + gone}
	for _, order := range []string{"order=asc&", "order=desc&"} {
		after, before := order+"after="+all[2]+"&limit=1", order+"before="+all[2]+"&limit=1"
		queries = append(queries, after, before)
		if !testing.Short() {
			queries = append(queries, strings.TrimSuffix(order, "&"), order+"after="+all[2], order+"before="+all[2], order+"before="+gone, order+"after="+all[1]+"&before="+all[3])
		}
	}
	for _, query := range queries {
		x := s.do(http.MethodGet, path+join+query, "")
		where := strings.ReplaceAll(query, gone, "gone")
		for i, id := range all {
			where = strings.ReplaceAll(where, id, fmt.Sprint("#", i))
		}
		if x.status != http.StatusOK {
			s.shapeOf(where, exchanged{x.status, x.header, bytes.ReplaceAll(x.body, []byte(gone), []byte("gone"))})
			continue
		}
		var numbers []int
		for _, id := range x.ids() {
			numbers = append(numbers, slices.Index(all, id))
		}
		s.fact("%s: %v", where, numbers)
	}
}

// conform sends the same requests to the real and the simulated server and compares the answers.
func (w *world) conform(t *testing.T) {
	t.Helper()
	compareSides(t, newSide(t, w.l.URLs[0], w.handle), simulated(t))
}

// The steps are sound, and two simulated servers answer the same.
func TestConformSteps(t *testing.T) {
	t.Parallel()
	compareSides(t, simulated(t), simulated(t))
}

func simulated(t *testing.T) *side {
	t.Helper()
	sim, err := lettasim.New(lettasim.Config{
		Script:  lettasim.Script{Calls: lettasim.Range{Min: 6, Max: 6}},
		Latency: lettasim.Latency{Low: 50 * time.Millisecond},
	})
	noError(t, err)
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	return newSide(t, server.URL, "sglang//models/qwen3")
}

func compareSides(t *testing.T, sides ...*side) {
	t.Helper()
	compared := map[string][]string{}
	facts, differences := 0, 0
	for _, c := range checks() {
		for _, s := range sides {
			s.facts, s.header = nil, http.Header{"User-Agent": {"rollout/test"}}
			for _, step := range c.steps {
				s.step(step)
			}
		}
		facts += len(sides[0].facts)
		for _, d := range differing(sides[0].facts, sides[1].facts) {
			differences++
			t.Errorf("%s, %s: %s", c.endpoint, c.behavior, d)
		}
		compared[c.endpoint] = append(compared[c.endpoint], c.behavior)
	}
	table(t, compared, facts, differences)
}

// differing lists the facts of only one of the servers.
func differing(served, simulated []string) (out []string) {
	for _, f := range served {
		if !slices.Contains(simulated, f) {
			out = append(out, "only the real server: "+f)
		}
	}
	for _, f := range simulated {
		if !slices.Contains(served, f) {
			out = append(out, "only the simulated one: "+f)
		}
	}
	return out
}

// table logs the compared and the unproven behaviors. It fails for a simulated behavior that is
// neither.
func table(t *testing.T, compared map[string][]string, facts, differences int) {
	t.Helper()
	var out strings.Builder
	tab := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	proven, open := 0, 0
	all := lettasim.Routes()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[lettasim.Config]()) {
		all = append(all, "Config."+field.Name)
	}
	for _, kind := range lettasim.FaultKinds() {
		all = append(all, "fault "+string(kind))
	}
	left := unproven()
	for _, what := range all {
		behaviors, reason := compared[what], left[what]
		delete(left, what)
		if len(behaviors) > 0 {
			proven += len(behaviors)
			fmt.Fprintf(tab, "%s\tcompared\t%s\n", what, strings.Join(behaviors, ", "))
		}
		if reason != "" {
			open++
			fmt.Fprintf(tab, "%s\tunproven\t%s\n", what, reason)
		}
		if len(behaviors) == 0 && reason == "" {
			t.Errorf("%s is simulated and neither compared with a real server nor listed as unproven", what)
		}
	}
	for what := range left {
		t.Errorf("%s is listed as unproven and not simulated", what)
	}
	_ = tab.Flush()
	t.Logf("all behaviors of the simulated server: %d compared by %d facts, %d differ; %d unproven\n%s", proven, facts, differences, open, out.String())
}
