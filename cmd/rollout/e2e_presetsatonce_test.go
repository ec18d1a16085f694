package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

// presetProgram is the name of a command that becomes a published harness, with its preset:
//
//	presetprogram BASE_URL KEY PROMPT
//
// The seed in the prompt's marker selects one of presetsAtOnce. So one run has several harnesses.
const presetProgram = "presetprogram"

// presetsAtOnce contains the harnesses that need the least memory.
var presetsAtOnce = []string{"pi", "mini-swe-agent", "letta-code"}

func presetMain() {
	err := becomePreset(os.Args[1], os.Args[2], os.Args[3], os.Getenv("HOME"))
	_, _ = fmt.Fprintln(os.Stderr, "preset:", err)
	os.Exit(1) //nolint:forbidigo // this is a program of its own
}

// becomePreset returns only an error.
func becomePreset(url, key, prompt, home string) error {
	seed, err := strconv.Atoi(seedOf.FindStringSubmatch(prompt)[1])
	if err != nil {
		return err
	}
	p, err := harness.FindPreset(presetsAtOnce[seed%len(presetsAtOnce)])
	if err != nil {
		return err
	}
	expand := strings.NewReplacer("{base_url}", url, "{key}", key, "{prompt}", prompt, "{home}", home, "{model}", "policy", "{context}", "32768", "{max_output}", "8192").Replace
	files := map[string]string{".stdin": p.Stdin}
	maps.Copy(files, p.Files)
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(expand(text)), 0o600); err != nil {
			return err
		}
	}
	stdin, err := os.Open(filepath.Join(home, ".stdin"))
	if err != nil {
		return err
	}
	program, err := exec.LookPath(p.Command[0])
	if err != nil {
		return err
	}
	env := os.Environ()
	for name, value := range p.Env {
		env = append(env, name+"="+expand(value))
	}
	for i := range p.Command {
		p.Command[i] = expand(p.Command[i])
	}
	// The harness keeps this process, so its supervisor and its process group.
	if err := syscall.Dup3(int(stdin.Fd()), 0, 0); err != nil {
		return err
	}
	return syscall.Exec(program, p.Command, env)
}

// Sixty-four sessions of three published harnesses are open at once in one run. The run is killed with
// SIGKILL and resumed twice: before the first session ends, and when some samples are committed. No
// process of a harness outlives the run. At the end, the run has each sample once, and every row is
// what the engine sampled for this session.
func TestHarnessesAtOnce(t *testing.T) {
	home := os.Getenv("ROLLOUT_HARNESS")
	if home == "" || testing.Short() || os.Getenv("HARNESSES") != "" {
		t.Skip("needs all published harnesses and some minutes: make e2e-harness runs it")
	}
	t.Setenv("PATH", filepath.Join(home, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	const n, answers = 64, 3
	var prompts []string
	for i := range n {
		prompts = append(prompts, "Write two notes. "+enginesim.Marker(i+1, [][]string{{"unicode"}, {"think"}, nil, {"compact"}}[i%4]...))
	}
	h := newHarnessRun(t, prompts, n, ", shard_age: 1s")
	settings := strings.NewReplacer(agentProgram, presetProgram, "timeout: 60s", "timeout: 15m, output: session").Replace(string(must(os.ReadFile(h.config))(t)))
	noError(t, os.WriteFile(h.config, []byte(settings), 0o600))
	h.gate.hold = n

	p := h.start(t, "rollout", "--json")
	select {
	case <-h.gate.opened:
	case <-p.ended:
		t.Fatal(p.said())
	case <-time.After(10 * time.Minute):
		t.Fatalf("%d of %d sessions have made a call", h.gate.sessions(), n)
	}
	calls := func() bool { return h.gate.count() >= n+n/2 }
	committed := func() bool { return len(committedKeys(t, h.dir)) >= n/8 }
	for _, due := range []func() bool{calls, committed} {
		waitFor(t, "the time of the kill", func() bool { return due() || !p.alive() })
		if !p.alive() {
			t.Fatalf("the run was over before it was killed\n%s", p.said())
		}
		p.kill()
		waitFor(t, "the end of the harnesses", func() bool { return processesIn(h.temp) == nil })
		t.Logf("killed after %d calls, with %d samples in the run", h.gate.count(), len(committedKeys(t, h.dir)))
		p = h.start(t, "rollout", "--json", "--resume")
	}
	p.ends(t, 15*time.Minute, exit.OK)

	got := verified(t, h.dir)
	if keys := got.once(t); len(keys) != n || len(got.rows) != n {
		t.Errorf("%d samples, %d have rows, want %d", len(keys), len(got.rows), n)
	}
	h.nothingLeft(t)
	c := checkTrained(t, got, h.engine.Calls())
	for seed := 1; seed <= n; seed++ {
		if steps := c.steps[strconv.Itoa(seed)]; len(steps) != answers {
			t.Errorf("session %d: the answers %v are trained, want each of the %d once", seed, steps, answers)
		}
	}
	t.Logf("%d calls of %d sessions, %d trained", len(h.engine.Calls()), n, c.trained)
}
