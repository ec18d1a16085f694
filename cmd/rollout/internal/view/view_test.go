package view_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/view"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/view/web"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// serve serves a run until the test ends, and returns the URL of the page.
func serve(tb testing.TB, dir string, follow bool) string {
	tb.Helper()
	url, _ := start(tb, dir, follow)
	return url
}

// start is like serve, but also returns a function that ends the server.
func start(tb testing.TB, dir string, follow bool) (url string, stop func()) {
	tb.Helper()
	s := &view.Server{View: open(tb, dir), Follow: follow}
	listener := must(s.Listen(tb.Context()))(tb)
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return s.URL(), stop
}

// get returns the answer to a request, and its body.
func get(tb testing.TB, method, url, host string) (*http.Response, []byte) {
	tb.Helper()
	r := must(http.NewRequestWithContext(tb.Context(), method, url, http.NoBody))(tb)
	if host != "" {
		r.Host = host
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	reply := must(client.Do(r))(tb)
	defer reply.Body.Close()
	return reply, must(io.ReadAll(reply.Body))(tb)
}

func fetch[T any](tb testing.TB, url string) (v T) {
	tb.Helper()
	reply, body := get(tb, http.MethodGet, url, "")
	if reply.StatusCode != http.StatusOK {
		tb.Fatalf("%s: %s: %s", url, reply.Status, body)
	}
	if err := json.Unmarshal(body, &v); err != nil {
		tb.Fatal(err)
	}
	return v
}

// TestGuard checks that only requests with the token and for the server's own address get an answer.
func TestGuard(t *testing.T) {
	t.Parallel()
	url := serve(t, manyRun(t, 8), false)
	base, token, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	token = strings.TrimSuffix(token, "/")
	_, port, _ := strings.Cut(base, ":")
	for _, c := range []struct {
		name, method, path, host string
		want                     int
	}{
		{"the page", "GET", "/" + token + "/", "", 200},
		{"localhost", "GET", "/" + token + "/api/samples", "localhost:" + port, 200},
		{"no token", "GET", "/", "", 403},
		{"another token", "GET", "/" + strings.Repeat("A", len(token)) + "/api/samples", "", 403},
		{"a prefix of the token", "GET", "/" + token[:10] + "/api/samples", "", 403},
		{"the token later in the path", "GET", "/x/" + token + "/api/samples", "", 403},
		{"the token as a parameter", "GET", "/api/samples?token=" + token, "", 403},
		{"DNS rebinding", "GET", "/" + token + "/api/samples", "evil.example:" + port, 421},
		{"another port", "GET", "/" + token + "/api/samples", "127.0.0.1:1", 421},
		{"no port", "GET", "/" + token + "/api/samples", "127.0.0.1", 421},
		{"a method that changes", "POST", "/" + token + "/api/samples", "", 405},
		{"outside of the page", "GET", "/etc/passwd", "", 403},
		{"no such sample", "GET", "/" + token + "/api/sample/8", "", 404},
		{"not a number", "GET", "/" + token + "/api/sample/%3Cscript%3E", "", 404},
	} {
		reply, body := get(t, c.method, "http://"+base+c.path, c.host)
		if reply.StatusCode != c.want {
			t.Errorf("%s: %s, want %d: %.80s", c.name, reply.Status, c.want, body)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			if got := reply.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", c.name, name, got, want)
			}
		}
		if policy := reply.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'; script-src 'sha256-") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", c.name, policy)
		}
		if reply.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: another site can read the answer", c.name)
		}
	}
}

type columns struct {
	Revision        int64
	N               int
	Words           map[string][]string
	Task, Status    []int
	Index, Grade    []int
	Flags           []uint64
	Failed          []int
	Reward          []*float64
	Tokens, Trained []int64
	Sampled         []int64
	Calls, Rows     []int32
	Seconds         []float64
}

// TestColumns compares the columns with the samples that were written.
func TestColumns(t *testing.T) {
	t.Parallel()
	dir := smallRun(t)
	url := serve(t, dir, false)
	c := fetch[columns](t, url+"api/samples")
	if c.N != 96 || len(c.Task) != 96 || len(c.Seconds) != 96 {
		t.Fatalf("%d samples, want 96", c.N)
	}
	log := must(sink.ReadLog(dir))(t)
	seen := 0
	for shard := range log.Shards(sink.KindData) {
		for r, err := range log.Rows(shard) {
			if err != nil {
				t.Fatal(err)
			}
			n := -1
			for i := range c.N {
				if c.Words["task"][c.Task[i]] == r.TaskID && c.Index[i] == int(r.SampleIndex) {
					n = i
				}
			}
			if n < 0 {
				t.Fatalf("sample %s is not in the columns", r.SampleKey)
			}
			seen++
			if c.Rows[n] != r.SegmentCount || c.Words["status"][c.Status[n]] != r.Status || c.Words["grade"][c.Grade[n]] != r.Verification ||
				c.Failed[n] != 0 || !reflect.DeepEqual(c.Reward[n], r.Reward) || c.Calls[n] != r.Steps {
				t.Errorf("sample %d differs from its row %+v", n, r.SampleKey)
			}
			if total := int64(len(r.InputIDs)); r.SegmentCount == 1 && c.Tokens[n] != total {
				t.Errorf("sample %d has %d tokens, want %d", n, c.Tokens[n], total)
			}
			of := fetch[sampleOf](t, fmt.Sprintf("%sapi/sample/%d", url, n))
			got := of.Rows[r.SegmentIndex]
			if !slices.Equal(got.IDs, r.InputIDs) || !slices.Equal(got.Mask, r.LossMask) || !slices.Equal(got.Logprobs, r.Logprobs) || !slices.Equal(got.Versions, r.Versions) {
				t.Errorf("the page gets other tokens than row %d of sample %s has", r.SegmentIndex, r.SampleKey)
			}
		}
	}
	for i := range c.N { // in the order of the log
		if c.Index[i] != i%4 {
			t.Fatalf("sample %d has the index %d", i, c.Index[i])
		}
	}
	failed := 0
	for _, f := range c.Failed {
		failed += f
	}
	if seen != 95 || failed != 2 {
		t.Errorf("%d rows and %d failed samples, want 95 and 2", seen, failed)
	}
}

type sampleOf struct {
	Key, Task, Status, Unshown string
	Index                      int
	Reward                     *float64
	Vocab                      map[string]string
	Rows                       []struct {
		IDs, Versions []int32
		Mask          []int8
		Logprobs      []float32
		Text          [][]struct {
			T string
			S int
		}
		Divergence *struct{ Offset int }
	}
	Failures []struct{ Class, Error string }
}

// TestTexts checks that the texts of the spans and of the tokens give the text of the row.
func TestTexts(t *testing.T) {
	t.Parallel()
	m := newMaker(t)
	const text = "naïve 日本語 👩‍👧 <think>no</think>"
	m.sample("a", 0, 1, nil, m.row(chat("hi"), text+"<|im_end|>"))
	dir := filepath.Join(t.TempDir(), "run")
	m.write(dir)
	s := fetch[sampleOf](t, serve(t, dir, false)+"api/sample/0")
	var spans, tokens strings.Builder
	for _, span := range s.Rows[0].Text {
		for _, part := range span {
			spans.WriteString(part.T)
		}
	}
	for _, id := range s.Rows[0].IDs {
		tokens.WriteString(s.Vocab[fmt.Sprint(id)])
	}
	if want := chat("hi") + text + "<|im_end|>"; spans.String() != want {
		t.Errorf("spans: %q, want %q", spans.String(), want)
	}
	if last := s.Rows[0].Text[1]; len(last) != 2 || last[1].T != "<|im_end|>" || last[1].S != 1 || last[0].S != 0 {
		t.Errorf("the answer has the parts %+v: text that looks like a token is not a special token", last)
	}
	if !strings.Contains(tokens.String(), "na") || strings.Contains(tokens.String(), "\ufffd") {
		t.Errorf("tokens: %q", tokens.String())
	}
}

// TestSearch checks that a search finds text in tokens, errors and tasks, in any case.
func TestSearch(t *testing.T) {
	t.Parallel()
	url := serve(t, smallRun(t), false)
	c := fetch[columns](t, url+"api/samples")
	for _, s := range []struct {
		text string
		want int
	}{{"NEEDLE in", 1}, {"longer than", 1}, {"gsm8k-002", 4}, {"the answer is 5.", 2}, {"not in the run", 0}, {"WORD2999", 1}} {
		_, body := get(t, http.MethodGet, url+"api/search?q="+strings.ReplaceAll(s.text, " ", "%20"), "")
		found := map[int]bool{}
		done := 0
		for line := bufio.NewScanner(bytes.NewReader(body)); line.Scan(); {
			var h struct {
				Done, Of int
				Found    []int
				Error    string
			}
			if err := json.Unmarshal(line.Bytes(), &h); err != nil || h.Error != "" {
				t.Fatal(err, h.Error)
			}
			for _, n := range h.Found {
				found[n] = true
			}
			done = h.Done
		}
		if len(found) != s.want || done != c.N {
			t.Errorf("%q: found in %v after %d samples, want %d samples", s.text, found, done, s.want)
		}
	}
}

// TestFollow checks that new samples appear, that a failed sample becomes a success, and that
// numbers do not change.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	m := newMaker(t)
	m.sample("a", 0, 2, new(1.0), m.row("q", "one"))
	m.failure("a", 1, 2, "timeout_total", "too long")
	m.write(dir)
	follows, frozen := serve(t, dir, true), serve(t, dir, false)
	before := fetch[columns](t, follows+"api/samples")
	_ = fetch[columns](t, frozen+"api/samples")
	if reply, _ := get(t, http.MethodGet, fmt.Sprintf("%sapi/samples?since=%d", follows, before.Revision), ""); reply.StatusCode != http.StatusNotModified {
		t.Errorf("nothing has changed, but the answer is %s", reply.Status)
	}
	retried := m.samples[1]
	add(t, dir, func() []*tokenize.Sample {
		retried.Failures, retried.Attempt, retried.Status, retried.Reward = nil, 2, "completed", new(0.5)
		retried.Rows = []tokenize.Row{m.row("q", "two words")}
		retried.Rows[0].SegmentCount = 1
		next := m.sample("b", 0, 1, new(0.0), m.row("q", "three"))
		return []*tokenize.Sample{retried, next}
	}())
	after := fetch[columns](t, follows+"api/samples")
	if before.N != 2 || before.Failed[1] != 1 || after.N != 3 || after.Failed[1] != 0 || *after.Reward[1] != 0.5 || after.Revision == before.Revision {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if s := fetch[sampleOf](t, follows+"api/sample/1"); len(s.Rows) != 1 || len(s.Failures) != 0 || s.Task != "a" {
		t.Errorf("the retried sample is %+v", s)
	}
	if c := fetch[columns](t, frozen+"api/samples"); c.N != 2 {
		t.Errorf("without --follow, the page has %d samples", c.N)
	}
}

// TestOut checks what a file contains, and that hostile text cannot leave its place.
func TestOut(t *testing.T) {
	t.Parallel()
	v := open(t, smallRun(t))
	var page bytes.Buffer
	left := write(t, v, &page)
	if left.Kept != 96 || left.Samples != 0 {
		t.Errorf("left out: %+v", left)
	}
	checkPage(t, page.String(), "connect-src 'none'")

	many := open(t, manyRun(t, 1000))
	page.Reset()
	left = write(t, many, &page)
	if left.Kept != view.Most || left.Samples != 800 || left.Tasks != 100 || len(left.IDs) != 100 {
		t.Errorf("left out: %d samples, %d tasks, %d kept", left.Samples, left.Tasks, left.Kept)
	}
	data := dataOf(t, page.String())
	if !strings.Contains(data, `"left_out":{"kept":200,"samples":800,"tasks":100,"ids":["task-`) {
		t.Error("the page does not say what it lacks")
	}
	var chosen struct{ Samples columns }
	if err := json.Unmarshal([]byte(data), &chosen); err != nil {
		t.Fatal(err)
	}
	tasks := slices.Sorted(slices.Values(chosen.Samples.Words["task"]))
	if len(tasks) != 25 || tasks[0] > "task-000010" || tasks[24] < "task-000110" || tasks[12] < "task-000040" || tasks[12] > "task-000085" {
		t.Errorf("the groups are not from all parts of the run: %q", tasks)
	}
}

func write(t *testing.T, v *view.View, w io.Writer) (left leftOut) {
	t.Helper()
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := must(v.Write(t.Context(), w))(t)
	return leftOut{l.Kept, l.Samples, l.Tasks, l.IDs}
}

type leftOut struct {
	Kept, Samples, Tasks int
	IDs                  []string
}

func dataOf(t *testing.T, page string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<script type="application/json" id="data">`)
	data, _, ok2 := strings.Cut(rest, "</script>")
	if !ok || !ok2 || !json.Valid([]byte(data)) {
		t.Fatal("the page has no valid data")
	}
	return data
}

// checkPage checks that a page loads nothing, and contains only our own elements.
func checkPage(t *testing.T, page, connect string) {
	t.Helper()
	if !strings.Contains(page, strings.ReplaceAll(connect, "'", "&#39;")) {
		t.Errorf("the policy lacks %s", connect)
	}
	data := dataOf(t, page)
	if strings.ContainsAny(data, "<>") {
		t.Error("the data contains < or >")
	}
	rest := strings.Replace(page, data, "", 1)
	if n := strings.Count(rest, "<script"); n != 2 {
		t.Errorf("%d script elements, want 2", n)
	}
	if m := regexp.MustCompile(`(?i)<(link|img|iframe|object|embed|base|form)\b|\s(src|style|on[a-z]+)="|@import|url\(`).FindString(strings.Split(rest, "</script>")[0]); m != "" {
		t.Errorf("%q is in the page", m)
	}
}

// TestSources checks that no source of the page uses text as HTML, and that the page is small.
func TestSources(t *testing.T) {
	t.Parallel()
	files := must(os.ReadDir("web/src"))(t)
	for _, f := range files {
		text := string(must(os.ReadFile("web/src/" + f.Name()))(t))
		if m := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerously|eval\(|new Function`).FindString(text); m != "" {
			t.Errorf("%s uses %s", f.Name(), m)
		}
		if n := strings.Count(text, "\n"); n > 350 {
			t.Errorf("%s has %d lines", f.Name(), n)
		}
	}
	var page bytes.Buffer
	err := web.Write(&page, web.Page{Title: hostile, Live: true, Text: hostile, Data: func(w io.Writer) error { return json.NewEncoder(w).Encode(hostile) }})
	if err != nil {
		t.Fatal(err)
	}
	checkPage(t, page.String(), "connect-src 'self'")
	if page.Len() > 200<<10 {
		t.Errorf("the page has %d bytes before data", page.Len())
	}
	if strings.ContainsRune(page.String(), '\u202e') {
		t.Error("the page contains a bidirectional control")
	}
}
