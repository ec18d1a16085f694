package reward_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reward"
)

// pythonScorer is a scoring function that does what the output asks for.
const pythonScorer = `
import os, subprocess, sys, time
import helper  # in the folder of this file

class Odd(Exception):
    def __str__(self):
        raise ValueError

class Tensor:
    def __float__(self): return 0.25
    def tolist(self): return [1, 2]

count = 0

def score(sample):
    global count
    count += 1
    output = sample["output"]
    if output.startswith("return "):
        return eval(output[7:])
    if output == "sample":
        return {"reward": 1, **sample}
    if output == "raise":
        return {}["difficulty"]
    if output == "odd":
        raise Odd
    if output == "exit":
        sys.exit("stop")
    if output == "deep":
        return score(sample)
    if output == "crash":
        os._exit(7)
    if output == "segfault":
        import ctypes
        ctypes.string_at(0)
    if output.startswith("say "):
        sys.stderr.write(output + "\n")
        print(output, end="")
        return 1
    if output.startswith("die "):
        sys.stderr.write(output + "\n")
        os._exit(7)
    if output == "hang":
        time.sleep(3600)
    if output == "print":
        print('{"id": 1, "reward": 77}')
        sys.stdout.flush()
        os.write(1, b'{"reward": 78}\n')
        subprocess.run(["sh", "-c", "echo '{\"reward\": 79}'"])
        return 0.5
    if output == "input":
        return len(sys.stdin.readline())
    if output == "surrogate":
        raise ValueError("\ud800 \x1b[31m" + "x" * 5000)
    return helper.number(output)

async def later(sample):
    import asyncio
    await asyncio.sleep(0.001)
    return {"reward": 1, "count": 1}

def rank(samples):
    first = samples[0]["output"]
    if first.startswith("return "):
        return eval(first[7:])
    if first == "crash":
        os._exit(7)
    lengths = [len(s["output"]) for s in samples]
    return [{"reward": n - sum(lengths) / len(lengths), "of": len(lengths)} for n in lengths]
`

// interpreter is the Python of the tests.
func interpreter(t *testing.T) string {
	t.Helper()
	path := os.Getenv("ROLLOUT_PYTHON")
	if path == "" {
		path = filepath.Join("..", "..", ".build", "venv", "bin", "python")
	}
	path, err := exec.LookPath(path)
	if err != nil {
		t.Fatalf("no Python for this test: run make python, or set ROLLOUT_PYTHON (%v)", err)
	}
	return path
}

// scorerFile writes a scorer and its helper.
func scorerFile(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "score.py")
	for name, text := range map[string]string{path: source, filepath.Join(dir, "helper.py"): "number = float\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func python(t *testing.T, cfg reward.PythonConfig) *reward.Python {
	t.Helper()
	cfg.Interpreter = interpreter(t)
	if cfg.File == "" {
		cfg.File = scorerFile(t, pythonScorer)
	}
	p := must(reward.NewPython(cfg))
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Whatever a function does costs the reward of its own sample only.
func TestPython(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	p := python(t, reward.PythonConfig{Function: "score", Timeout: 20 * time.Second, Stderr: &said})
	for _, tt := range []struct {
		output, want, err string // want is the reward and the details
	}{
		{"0.5", "0.5", ""},
		{"return True", "1", ""},
		{"return count", "3", ""}, // the same process
		{"return None", "null", ""},
		{"return {'reward': -2, 'why': 'é', 'list': [1]}", `-2 {"why":"é","list":[1]}`, ""},
		{"return {'reward': None, 'why': 'no'}", `null {"why":"no"}`, ""},
		{"return {'reward': Tensor(), 'of': Tensor()}", `0.25 {"of":[1,2]}`, ""},
		{"return {'why': 1}", "", `score.py: TypeError: the function returned a dict without the key "reward"`},
		{"return '1'", "", "score.py: TypeError: the function returned str, want a number, a dict or None"},
		{"return [1]", "", "the function returned list"},
		{"return float('nan')", "", "ValueError: the function returned nan, want a finite number"},
		{"return {'reward': 1e400}", "", "returned inf, want a finite number"},
		{"return {'reward': 1, 'a': float('inf')}", "", "ValueError: Out of range float values are not JSON compliant"},
		{"return {'reward': 1, 'a': {1, 2}}", "", "TypeError: details contain set, which JSON cannot represent"},
		{"raise", "", "score.py: KeyError: 'difficulty' (line 24)"},
		{"odd", "", "score.py: Odd (line 26)"},
		{"exit", "", "SystemExit: stop"},
		{"deep", "", "RecursionError: "},
		{"surrogate", "", "ValueError: ? \x1b[31mxxx"},
		{"abc", "", "ValueError: could not convert string to float: 'abc'"},
		{"print", "0.5", ""},
		{"input", "0", ""},
		{"return (os.fork(), 0.5)[1]", "0.5", ""},
		{"return setattr(sys, 'stdout', None) or 0.5", "0.5", ""},
		{"return count > 20", "1", ""}, // still the same process
		{"crash", "", "score.py: the program exited without answering: exit status 7"},
		{"return count", "1", ""},
		{"segfault", "", "signal: segmentation fault"},
		{"1", "1", ""},
	} {
		r, err := asked(t, p, tt.output)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || len(err.Error()) > 1100 {
				t.Errorf("%q: error %v, want %q", tt.output, err, tt.err)
			}
			continue
		}
		if got := resultText(t, r); err != nil || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q: %s, %v, want %s", tt.output, got, err, tt.want)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`"reward": 77`, `"reward": 78`, `"reward": 79`} {
		if !strings.Contains(said.String(), text) {
			t.Errorf("no %s in %s", text, said.String())
		}
	}
}

func resultText(t *testing.T, r collector.Reward) string {
	t.Helper()
	text := string(must(json.Marshal(r.Value)))
	if r.Details != nil {
		var details bytes.Buffer
		if err := json.Compact(&details, r.Details); err != nil {
			t.Fatal(err)
		}
		var plain any
		if err := json.Unmarshal(details.Bytes(), &plain); err != nil {
			t.Fatal(err)
		}
		text += " " + strings.ReplaceAll(details.String(), `\u00e9`, "é")
	}
	return text
}

// The reason of a crash has what the program wrote for the same sample, and nothing of an earlier one.
func TestPythonLastLine(t *testing.T) {
	t.Parallel()
	p := python(t, reward.PythonConfig{Function: "score", Timeout: 20 * time.Second})
	for range 25 {
		for _, tt := range []struct{ output, err string }{
			{"say one", ""}, {"crash", "exit status 7"}, {"say two", ""}, {"die three", "exit status 7: die three"}, {"die four", "exit status 7: die four"},
		} {
			_, err := asked(t, p, tt.output)
			if (tt.err == "") != (err == nil) || err != nil && !strings.HasSuffix(err.Error(), tt.err) {
				t.Fatalf("%s: %v, want %q", tt.output, err, tt.err)
			}
		}
	}
}

// A list of processes shows the file and the function of a worker, and not its program.
func TestPythonArguments(t *testing.T) {
	t.Parallel()
	p := python(t, reward.PythonConfig{Function: "score"})
	r, err := asked(t, p, "return {'reward': 1, 'args': open('/proc/self/cmdline').read().split(chr(0))}")
	if err != nil && strings.Contains(err.Error(), "FileNotFoundError") {
		t.Skip("needs /proc")
	}
	var details struct{ Args []string }
	if err != nil || json.Unmarshal(r.Details, &details) != nil || len(details.Args) < 6 {
		t.Fatalf("%v, %s", err, r.Details)
	}
	if n := len(details.Args[2]); n > 150 || filepath.Base(details.Args[3]) != "score.py" || details.Args[4] != "score" {
		t.Errorf("arguments %q", details.Args)
	}
}

// A worker that hangs is killed, and only its sample has no reward.
func TestPythonHangs(t *testing.T) {
	t.Parallel()
	p := python(t, reward.PythonConfig{Function: "score", Timeout: 2 * time.Second, Processes: 2})
	var all sync.WaitGroup
	for _, output := range []string{"hang", "1", "1", "hang", "1", "1"} {
		all.Go(func() {
			_, err := asked(t, p, output)
			if hung := err != nil && strings.Contains(err.Error(), "no answer within 2s"); hung != (output == "hang") || !hung && err != nil {
				t.Errorf("%s: %v", output, err)
			}
		})
	}
	all.Wait()
}

// The function gets the members that a program gets.
func TestPythonSample(t *testing.T) {
	t.Parallel()
	p := python(t, reward.PythonConfig{Function: "score"})
	r := must(p.Score(t.Context(), &collector.Task{ID: "t", Messages: []string{"m"}, Answer: new("4"), Metadata: []byte(`{"a":1}`)}, &collector.Reply{
		Output: "sample", Reasoning: "why", Text: "why sample", Messages: []byte(`[{"role":"user","content":"m"}]`), Sends: []collector.Send{{StopReason: "end_turn"}},
	}))
	const want = `{"task_id":"t","messages":["m"],"answer":"4","metadata":{"a":1},"output":"sample","reasoning":"why","text":"why sample",` +
		`"conversation":[{"role":"user","content":"m"}],"stop_reason":"end_turn","exit_code":null,"workdir":null,"trial":false}`
	if got := resultText(t, r); got != "1 "+want {
		t.Errorf("the function got\n%s, want\n%s", got, want)
	}
	later := python(t, reward.PythonConfig{Function: "later"})
	for range 2 {
		if r, err := asked(t, later, ""); err != nil || resultText(t, r) != `1 {"count":1}` {
			t.Errorf("an async function: %s, %v", resultText(t, r), err)
		}
	}
}

// A file that cannot be used is found by the trial sample.
func TestPythonBroken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ source, function, err string }{
		{"def score(sample)\n", "score", "score.py: SyntaxError: expected ':' (score.py, line 1)"},
		{"import no_such_module\n", "score", "score.py: ModuleNotFoundError: No module named 'no_such_module' (line 1)"},
		{"score = 5\n", "score", "score.py: AttributeError: there is no function score"},
		{"", "score", "there is no function score"},
		{"import os\nos._exit(3)\n", "score", "score.py: the program exited without answering: exit status 3"},
	} {
		p := python(t, reward.PythonConfig{File: scorerFile(t, tt.source), Function: tt.function})
		err := reward.Try(t.Context(), p, &collector.Task{ID: "t", Messages: []string{"m"}}, reward.Trial{})
		if err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %v, want %s", tt.source, err, tt.err)
		}
	}
	if _, err := reward.NewPython(reward.PythonConfig{File: t.TempDir(), Function: "score"}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := reward.NewPython(reward.PythonConfig{File: "nowhere.py", Function: "score"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// All workers of a run have the function that the file had at the start.
func TestPythonFileChanges(t *testing.T) {
	t.Parallel()
	path := scorerFile(t, "import os\ndef score(s):\n    if s['output'] == 'crash': os._exit(1)\n    return 1\n")
	p := python(t, reward.PythonConfig{File: path, Function: "score"})
	before := p.SHA256()
	for _, output := range []string{"", "crash", ""} {
		if err := os.WriteFile(path, []byte("def score(s): return 2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := asked(t, p, output)
		if output == "" && (err != nil || *r.Value != 1) {
			t.Errorf("%v, %v, want the reward of the first function", r, err)
		}
	}
	if again := python(t, reward.PythonConfig{File: path, Function: "score"}); again.SHA256() == before {
		t.Error("another file has the same digest")
	}
}

func groupOf(outputs ...string) (group []reward.Rollout) {
	for _, output := range outputs {
		group = append(group, reward.Rollout{Task: &collector.Task{ID: "t", Messages: []string{"m"}}, Reply: &collector.Reply{Output: output}})
	}
	return group
}

// A group function sees the whole group. If it fails, no sample of the group has a reward.
func TestPythonGroup(t *testing.T) {
	t.Parallel()
	g := must(reward.NewPythonGroup(reward.PythonConfig{File: scorerFile(t, pythonScorer), Function: "rank", Interpreter: interpreter(t), Timeout: 20 * time.Second}))
	defer func() { _ = g.Close() }()
	for _, tt := range []struct {
		first string
		want  []string
		err   string
	}{
		{"a", []string{`-1 {"of":3}`, `0 {"of":3}`, `1 {"of":3}`}, ""},
		{"return (1, None, 3)", []string{"1", "null", "3"}, ""},
		{"return [1, 2]", nil, "score.py: ValueError: the function returned 2 rewards for 3 samples"},
		{"return [1, 2, 3, 4]", nil, "the function returned 4 rewards for 3 samples"},
		{"return [1, 2, 'x']", nil, "TypeError: the function returned str"},
		{"return [1, 2, float('nan')]", nil, "the function returned nan"},
		{"return 5", nil, "TypeError: the function returned int, want a list"},
		{"return {'a': 1}", nil, "TypeError: the function returned dict, want a list"},
		{"return 'abc'", nil, "TypeError: the function returned str, want a list"},
		{"return None", nil, "TypeError: the function returned NoneType, want a list"},
		{"crash", nil, "score.py: the program exited without answering: exit status 7"},
		{"a", []string{`-1 {"of":3}`, `0 {"of":3}`, `1 {"of":3}`}, ""},
	} {
		for i, result := range g.ScoreGroup(t.Context(), groupOf(tt.first, "bb", "ccc")) {
			switch {
			case tt.err != "":
				if result.Err == nil || !strings.Contains(result.Err.Error(), tt.err) || result.Reward.Value != nil {
					t.Errorf("%s: sample %d: %v, want %s", tt.first, i, result.Err, tt.err)
				}
			case result.Err != nil || resultText(t, result.Reward) != tt.want[i]:
				t.Errorf("%s: sample %d: %s, %v, want %s", tt.first, i, resultText(t, result.Reward), result.Err, tt.want[i])
			}
		}
	}
	task := &collector.Task{ID: "t", Messages: []string{"m"}, Answer: new("42")}
	if err := reward.TryGroup(t.Context(), g, task, reward.Trial{}); err != nil {
		t.Error(err)
	}
	if err := reward.TryGroup(t.Context(), g, &collector.Task{ID: "t", Answer: new("return 5")}, reward.Trial{}); err == nil {
		t.Error("TryGroup of a broken function = nil, want an error")
	}
}

// A program that fails every time is not started in a tight loop, and an interrupt ends the pause.
func TestCommandPauses(t *testing.T) {
	t.Parallel()
	c := command(t, reward.CommandConfig{})
	began := time.Now()
	for range 9 {
		if _, err := asked(t, c, "die"); err == nil {
			t.Fatal("no error")
		}
	}
	if took := time.Since(began); took < (10+20+40+80+160+250+250)*time.Millisecond {
		t.Errorf("9 crashes took %v, want pauses between the starts", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Score(ctx, &collector.Task{ID: "t"}, &collector.Reply{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Score of a stopped run = %v", err)
	}
	if _, err := asked(t, c, "abc"); err != nil {
		t.Errorf("the next sample: %v", err)
	}
}
