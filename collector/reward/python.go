package reward

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// PythonConfig configures a [Python] or a [PythonGroup].
type PythonConfig struct {
	// File is the path of a Python file, and Function is the name of a function in it.
	File, Function string
	// Interpreter is the Python, 3.8 or newer. Default python3, from PATH.
	Interpreter string
	// Processes, Timeout and Stderr have the same meaning as in CommandConfig. The function's standard
	// output goes to Stderr too.
	Processes int
	Timeout   time.Duration
	Stderr    io.Writer
}

// Python scores rollouts with a Python function:
//
//	def score(sample: dict) -> float | dict | None
//
// The dict sample has the members that the program of a [Command] reads, except id. The function returns a
// finite number, None for no reward, or a dict with the key "reward"; the other keys of the dict are
// the details. It can be an async function. Its file can import modules in its folder.
//
// The function runs in worker processes that keep running during the run. All of them have the content
// that the file had at NewPython. If the function raises an exception or returns anything else, the
// rollout gets no reward, and the error has the exception and its line. If a worker crashes or does not
// answer in time, its rollout gets no reward, and another worker replaces it. If this process is killed, its
// workers exit within a second, even if the function hangs.
//
// A Python is safe for concurrent use. Rollouts wait for a free worker.
type Python struct {
	*Command
	digest string
}

// maxPython is the maximum size of a Python file.
const maxPython = 16 << 20

//go:embed worker.py
var worker string

// begin runs worker.py from the standard input, so that a list of processes does not show the whole program.
var begin = fmt.Sprintf(`import os, sys; sys.stdin = os.fdopen(os.dup(0), "rb", 1 << 20); exec(sys.stdin.read(%d))`, len(worker))

// NewPython reads the file and returns a Python. Workers start on first use, so that is when an error in the
// file shows. The caller must call Close.
func NewPython(cfg PythonConfig) (*Python, error) { return newPython(cfg, "sample") }

func newPython(cfg PythonConfig, scope string) (*Python, error) {
	if cfg.File == "" || cfg.Function == "" {
		return nil, errors.New("reward: no Python file or no function")
	}
	source, err := readPython(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("reward: %w", err)
	}
	args := []string{cmp.Or(cfg.Interpreter, "python3"), "-c", begin, cfg.File, cfg.Function, scope, strconv.Itoa(len(source))}
	c, err := NewCommand(CommandConfig{Args: args, Processes: cfg.Processes, Timeout: cfg.Timeout, Stderr: cfg.Stderr})
	if err != nil {
		return nil, err
	}
	c.name, c.preamble = filepath.Base(cfg.File), slices.Concat([]byte(worker), source)
	sum := sha256.Sum256(source)
	return &Python{c, hex.EncodeToString(sum[:])}, nil
}

func readPython(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxPython:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxPython)
	}
	return os.ReadFile(path)
}

// SHA256 returns the digest of the file's content, in lower-case hex.
func (p *Python) SHA256() string { return p.digest }

// PythonGroup scores groups with a Python function:
//
//	def score(samples: list[dict]) -> list[float | dict | None]
//
// The function gets all samples of a group and returns one result for each, in the same order. Otherwise it is
// like [Python]. If the function fails, or if the number of results is wrong, or one of them is
// invalid, no sample of the group gets a reward.
type PythonGroup struct{ python *Python }

// NewPythonGroup is like [NewPython]. Timeout bounds the time to score one group.
func NewPythonGroup(cfg PythonConfig) (*PythonGroup, error) {
	p, err := newPython(cfg, "group")
	return &PythonGroup{p}, err
}

// SHA256 returns the digest of the file's content, in lower-case hex.
func (g *PythonGroup) SHA256() string { return g.python.digest }

// Kill kills the workers; see [Command.Kill].
func (g *PythonGroup) Kill() { g.python.Kill() }

// Close ends the workers; see [Command.Close].
func (g *PythonGroup) Close() error { return g.python.Close() }

// ScoreGroup sends the group to a free worker and waits for its answer.
func (g *PythonGroup) ScoreGroup(ctx context.Context, group []Rollout) []Result {
	c := g.python.Command
	request := struct {
		ID      int64       `json:"id"`
		Samples []*question `json:"samples"`
	}{ID: c.nextID()}
	for _, r := range group {
		request.Samples = append(request.Samples, questionOf(r.Task, r.Reply))
	}
	v, err := c.ask(ctx, request.ID, &request)
	var verdicts []verdict
	if err == nil {
		err = json.Unmarshal(v.Rewards, &verdicts)
	}
	if err == nil && len(verdicts) != len(group) {
		err = fmt.Errorf("the worker returned %d rewards for %d samples", len(verdicts), len(group))
	}
	results := make([]Result, len(group))
	for i := range verdicts {
		if err == nil {
			results[i].Reward, err = verdicts[i].read()
		}
	}
	if err != nil {
		for i := range results {
			results[i] = Result{Err: fmt.Errorf("reward: %s: %w", c.name, err)}
		}
	}
	return results
}
