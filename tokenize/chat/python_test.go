package chat_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An answer is what Python made of a request: text, or an error.
type answer struct{ Out, Err *string }

// A request is one template, by name or itself, with its variables as JSON.
type request struct {
	Name *string         `json:"name,omitempty"`
	Src  *string         `json:"src,omitempty"`
	Vars json.RawMessage `json:"vars"`
}

// askPython renders all requests with Jinja2. Without an interpreter the test
// fails, because nothing else shows that the two agree; -short leaves it out.
func askPython(t *testing.T, sources map[string]string, requests []request) []answer {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the comparison with Python's Jinja2 is left out")
	}
	python := os.Getenv("ROLLOUT_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".build", "venv", "bin", "python")
	}
	if out, err := exec.Command(python, "-c", "import jinja2").CombinedOutput(); err != nil {
		t.Fatalf("%s has no jinja2 (%v %s): run make python, or name an interpreter in ROLLOUT_PYTHON", python, err, bytes.TrimSpace(out))
	}
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(sources); err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		// Not through the encoder: Go would refuse NaN and change numbers.
		b, err := json.Marshal(struct {
			Name *string `json:"name,omitempty"`
			Src  *string `json:"src,omitempty"`
		}{r.Name, r.Src})
		if err != nil {
			t.Fatal(err)
		}
		in.Write(b[:len(b)-1])
		in.WriteString(`,"vars":`)
		in.Write(r.Vars)
		in.WriteString("}\n")
	}
	cmd := exec.Command(python, filepath.Join("testdata", "python", "render.py"))
	cmd.Env = append(os.Environ(), "PYTHONHASHSEED=0", "PYTHONWARNINGS=ignore")
	cmd.Stdin = &in
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", python, err, stderr.String())
	}
	var answers []answer
	sc := bufio.NewScanner(bytes.NewReader(out))
	sc.Buffer(nil, 1<<28)
	for sc.Scan() {
		var a answer
		if err := json.Unmarshal(sc.Bytes(), &a); err != nil {
			t.Fatalf("%v in %.200s", err, sc.Text())
		}
		answers = append(answers, a)
	}
	if len(answers) != len(requests) {
		t.Fatalf("%d answers to %d requests\n%s", len(answers), len(requests), stderr.String())
	}
	return answers
}

// compare reports how our render differs from Python's, or nothing.
func compare(a answer, got string, err error) string {
	switch {
	case a.Out == nil && err == nil:
		return "no error, but Python: " + *a.Err + "; output " + clip(got)
	case a.Out != nil && err != nil:
		return "error " + err.Error() + ", but Python gives " + clip(*a.Out)
	case a.Out != nil && got != *a.Out:
		return firstDifference(got, *a.Out)
	}
	return ""
}

func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	b, _ := json.Marshal(s)
	return string(b)
}
