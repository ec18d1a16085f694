package view_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/view"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/view/web"
)

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
	l, damage, err := v.Write(t.Context(), w)
	if err != nil || damage != nil {
		t.Fatal(err, damage)
	}
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
		if n := strings.Count(text, "\n"); n > 300 {
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
