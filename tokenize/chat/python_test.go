package chat_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// An answer is Python's result: text, an error, or a skip because of a limit of Python.
type answer struct{ Out, Err, Skip *string }

// A request is one template, by name or by source, with its variables as JSON.
type request struct {
	Name, Src *string
	Vars      []byte
}

// line returns the request as a line for render.py. It does not encode the variables, because Go's
// encoder rejects NaN and changes numbers.
func (r request) line() []byte {
	key, template := "src", r.Src
	if r.Name != nil {
		key, template = "name", r.Name
	}
	return fmt.Appendf(nil, "{%q: %s, \"vars\": %s}\n", key, quoted(*template), r.Vars)
}

// askPython renders all requests with Jinja2. Without an interpreter it fails, because no other
// test compares the two; -short skips it. Templates on which Python hangs are skipped.
func askPython(t *testing.T, sources map[string]string, requests []request) []answer {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: skipping the comparison with Python's Jinja2")
	}
	if err := hasJinja(); err != nil {
		t.Fatal(err)
	}
	lines := make([][]byte, len(requests))
	for i, r := range requests {
		lines[i] = r.line()
	}
	var answers []answer
	for hung := 0; len(answers) < len(requests); hung++ {
		if hung > 20 {
			t.Fatalf("Python hung or died on %d templates", hung)
		}
		if n := len(answers); n > 0 {
			why := "hung"
			t.Logf("Python hung on %.600s", lines[n])
			answers = append(answers, answer{Skip: &why})
		}
		more, err := answersOf(t, interpreter(), "render.py", sources, lines[len(answers):])
		if err != nil && len(more) == 0 {
			t.Fatal(err)
		}
		answers = append(answers, more...)
	}
	return answers
}

var hasJinja = sync.OnceValue(func() error {
	if out, err := exec.Command(interpreter(), "-c", "import jinja2").CombinedOutput(); err != nil {
		return fmt.Errorf("%s has no jinja2 (%w %s): run make python, or name an interpreter in ROLLOUT_PYTHON", interpreter(), err, bytes.TrimSpace(out))
	}
	return nil
})

func interpreter() string {
	if python := os.Getenv("ROLLOUT_PYTHON"); python != "" {
		return python
	}
	return filepath.Join("..", "..", ".build", "venv", "bin", "python")
}

// answersOf runs a script with the templates and lines, and returns its answers.
func answersOf(t *testing.T, python, script string, sources map[string]string, lines [][]byte) ([]answer, error) {
	t.Helper()
	var in, stderr bytes.Buffer
	enc := json.NewEncoder(&in)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(sources); err != nil {
		t.Fatal(err)
	}
	in.Write(bytes.Join(lines, nil))
	cmd := exec.Command(python, filepath.Join("testdata", "python", script))
	cmd.Env = append(os.Environ(), "PYTHONHASHSEED=0", "PYTHONWARNINGS=ignore")
	cmd.Stdin, cmd.Stderr = &in, &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	// Python has its own timeout, but code inside the C library must be killed.
	watch := time.AfterFunc(maxSilence, func() { _ = cmd.Process.Kill() })
	defer watch.Stop()
	var answers []answer
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 1<<28)
	for sc.Scan() {
		watch.Reset(maxSilence)
		var a answer
		if err := json.Unmarshal(sc.Bytes(), &a); err != nil {
			t.Fatalf("%v in %.200s", err, sc.Text())
		}
		answers = append(answers, a)
	}
	if err := cmd.Wait(); err != nil {
		return answers, fmt.Errorf("%s: %w\n%s", python, err, stderr.String())
	}
	return answers, nil
}

// maxSilence is Python's deadline for one template, and for its start.
const maxSilence = time.Minute

// compare describes how our render differs from Python's, or returns nothing.
func compare(a answer, got string, err error) string {
	switch {
	case a.Skip != nil:
		return ""
	case a.Out == nil && err == nil:
		return fmt.Sprintf("no error, but Python: %s; output %.200q", *a.Err, got)
	case a.Out != nil && err != nil:
		return fmt.Sprintf("error %v, but Python gives %.200q", err, *a.Out)
	case a.Out != nil && got != *a.Out:
		return firstDifference(got, *a.Out)
	}
	return ""
}
