package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

const simModel = "sglang//models/qwen3"

var (
	exchangesDir = filepath.Join("..", "..", "testdata", "letta")
	qwen3Dir     = filepath.Join("..", "..", "testdata", "tokenizers", "qwen3")
)

type ran struct {
	code           int
	stdout, stderr string
}

func invoke(ctx context.Context, args ...string) ran {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
	return ran{code, stdout.String(), stderr.String()}
}

// must returns the value of a call that must not fail: must(os.ReadFile(path))(t).
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		noError(t, err)
		return value
	}
}

// each yields the values of an iterator that must not fail.
func each[T any](t *testing.T, seq iter.Seq2[T, error]) iter.Seq[T] {
	t.Helper()
	return func(yield func(T) bool) {
		for value, err := range seq {
			noError(t, err)
			if !yield(value) {
				return
			}
		}
	}
}

// get returns the answer to a GET, or to a POST of a JSON body, which must be 200.
func get(t *testing.T, url string, body ...string) string {
	t.Helper()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	status, text := curl{t, url}.do(method, "", strings.Join(body, ""))
	if status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, url, status, text)
	}
	return string(text)
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	noError(t, err)
	return r, w
}

// contains fails the test if a text lacks a part.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

// mustRun is like invoke, but fails the test unless the program exits with code.
func mustRun(t *testing.T, code int, args ...string) ran {
	t.Helper()
	r := invoke(t.Context(), args...)
	if r.code != code {
		t.Fatalf("rollout %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.stdout, r.stderr)
	}
	return r
}

func serveSim(t *testing.T, sim *lettasim.Server) (url string) {
	t.Helper()
	return serve(t, sim.HTTPServer())
}

func serve(t *testing.T, server *http.Server) (url string) {
	t.Helper()
	l := must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	s := &httptest.Server{Listener: l, Config: server}
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

func findPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("ROLLOUT_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".build", "venv", "bin", "python")
	}
	python, err := exec.LookPath(python)
	if err != nil {
		t.Fatalf("no Python for this test: run make python, or set ROLLOUT_PYTHON (%v)", err)
	}
	return python
}

func latencyOf(t *testing.T, text string) lettasim.Latency {
	t.Helper()
	return must(lettasim.ParseLatency(text))(t)
}

var recordedCases = sync.OnceValues(func() ([]*lettasim.Case, error) { return lettasim.LoadCases(os.DirFS(exchangesDir), ".") })

func newSim(t *testing.T, cfg lettasim.Config) *lettasim.Server {
	t.Helper()
	cfg.Cases = must(recordedCases())(t)
	return must(lettasim.New(cfg))(t)
}

// randomOf returns the random numbers of a test. ROLLOUT_SEED repeats an earlier test.
func randomOf(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ROLLOUT_SEED"); text != "" {
		seed = must(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Logf("ROLLOUT_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func writeFile(t *testing.T, name string, body []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	noError(t, os.WriteFile(path, body, 0o666))
	return path
}

// collectArgs returns the arguments of a collect of n scripted tasks from the server at url, with
// further flags, and the folder of its run.
func collectArgs(t *testing.T, sim *lettasim.Server, url string, n int, flags ...string) (dir string, args []string) {
	t.Helper()
	return collectTasks(t, url, sim.Tasks(lettasim.TaskOptions{Scripted: n}), flags...)
}

// collectTasks is collectArgs for the lines of a task file.
func collectTasks(t *testing.T, url string, tasks []byte, flags ...string) (dir string, args []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	file := writeFile(t, "tasks.jsonl", tasks)
	return dir, slices.Clip(append([]string{"collect", "--server", url, "--model", simModel, "--out", dir, "--tasks", file}, flags...))
}

type sampleID struct {
	task  string
	index int32
}

type attempt struct {
	sampleID
	n int
}

// A readBack is the whole content of a run, as our own readers return it.
type readBack struct {
	logs     []*sink.Log                    // one per partition
	rows     map[sampleID][]*sink.StoredRow // by segment
	failures map[sampleID][]*sink.StoredFailure
}

func readDataset(t *testing.T, dir string) *readBack {
	t.Helper()
	return readLogs(t, must(sink.ReadLog(dir))(t))
}

// readLogs is readDataset for the logs of a run.
func readLogs(t *testing.T, logs ...*sink.Log) *readBack {
	t.Helper()
	d := &readBack{logs: logs, rows: map[sampleID][]*sink.StoredRow{}, failures: map[sampleID][]*sink.StoredFailure{}}
	for _, log := range logs {
		for s := range log.Shards(sink.KindData) {
			for r := range each(t, log.Rows(s)) {
				id := sampleID{r.TaskID, r.SampleIndex}
				d.rows[id] = append(d.rows[id], r)
			}
		}
		for s := range log.Shards(sink.KindFailures) {
			for f := range each(t, log.Failures(s)) {
				id := sampleID{f.TaskID, f.SampleIndex}
				d.failures[id] = append(d.failures[id], f)
			}
		}
	}
	for _, rows := range d.rows {
		slices.SortFunc(rows, func(a, b *sink.StoredRow) int { return int(a.SegmentIndex - b.SegmentIndex) })
	}
	return d
}

func commitsOf(dir string) int {
	commits, _ := filepath.Glob(filepath.Join(dir, "_commits", "0*.json"))
	return len(commits)
}

// verified is readDataset for a run that must be intact.
func verified(t *testing.T, dir string) *readBack {
	t.Helper()
	mustRun(t, exit.OK, "verify", dir)
	return readDataset(t, dir)
}

// has fails the test if the run has other numbers of samples with rows and of failed samples.
func (d *readBack) has(t *testing.T, rows, failures int) {
	t.Helper()
	if len(d.rows) != rows || len(d.failures) != failures {
		t.Errorf("%d samples have rows and %d failed, want %d and %d", len(d.rows), len(d.failures), rows, failures)
	}
}

// allRows yields the rows of all samples.
func (d *readBack) allRows() iter.Seq2[sampleID, *sink.StoredRow] { return flattened(d.rows) }

func (d *readBack) allFailures() iter.Seq2[sampleID, *sink.StoredFailure] {
	return flattened(d.failures)
}

func flattened[K comparable, V any](lists map[K][]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for key, list := range lists {
			for _, value := range list {
				if !yield(key, value) {
					return
				}
			}
		}
	}
}

// commits returns the number of commits.
func (d *readBack) commits() (n int) {
	for _, log := range d.logs {
		n += len(log.Commits)
	}
	return n
}

// keys returns how often the commit logs have each sample.
func (d *readBack) keys() map[string]int {
	keys := map[string]int{}
	for _, key := range keysOf(d.logs...) {
		keys[key]++
	}
	return keys
}

// once fails the test if the commit log has a sample twice. It returns the keys of the samples.
func (d *readBack) once(t *testing.T) map[string]int {
	t.Helper()
	keys := d.keys()
	for key, n := range keys {
		if n != 1 {
			t.Errorf("sample %s is in the commit log %d times", key, n)
		}
	}
	return keys
}

// newEngine starts a simulated engine.
func newEngine(t *testing.T) (engine *enginesim.Engine, url string) {
	t.Helper()
	engine = must(enginesim.New(enginesim.Config{}))(t)
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	return engine, server.URL
}

// readReport decodes the report of a run.
func readReport(t *testing.T, dir string, report any) {
	t.Helper()
	noError(t, json.Unmarshal(must(os.ReadFile(filepath.Join(dir, runfolder.ReportFile)))(t), report))
}

// qwen3Folder returns a folder with the tokenizer and the configuration of qwen3, of which change
// returns another version.
func qwen3Folder(t *testing.T, change func(config []byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"tokenizer.json.zst", "tokenizer_config.json"} {
		b := must(os.ReadFile(filepath.Join(qwen3Dir, name)))(t)
		if name == "tokenizer_config.json" {
			b = change(b)
		}
		noError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	return dir
}

// Shared by the tests of whole runs: processes of the program that can be killed, a log of the
// sends to a server, and samples without the columns that differ from run to run.

// A lockedBuffer can be read while a process writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type process struct {
	cmd            *exec.Cmd
	stdout, stderr lockedBuffer
	ended          chan struct{} // closed when the process has ended
	code           int           // valid then; -1: ended by a signal
}

// newProcess returns a process that is not started. env is added to the environment of the test.
func newProcess(t *testing.T, bin string, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), bin, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	return p
}

func startProgram(t *testing.T, bin string, env []string, args ...string) *process {
	t.Helper()
	p := newProcess(t, bin, env, args...)
	p.start(t)
	return p
}

// startServing starts a command that serves, in dir and until the test ends, and returns its address.
func startServing(t *testing.T, dir string, env []string, args ...string) (p *process, url string) {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	p = newProcess(t, "rollout", env, append(args, "--ready-file", ready)...)
	p.cmd.Dir = dir
	p.start(t)
	t.Cleanup(p.kill)
	waitFor(t, "the address of "+args[0], func() bool {
		b, err := os.ReadFile(ready)
		url = strings.TrimSpace(string(b))
		return err == nil || !p.alive()
	})
	if !p.alive() {
		t.Fatal(p.said())
	}
	return p, url
}

func (p *process) start(t *testing.T) {
	t.Helper()
	noError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		err := p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			p.code = -2
		}
	}()
}

// signal sends sig and waits until the output contains until.
func (p *process) signal(t *testing.T, sig os.Signal, until string) {
	t.Helper()
	noError(t, p.cmd.Process.Signal(sig))
	waitFor(t, until, func() bool { return strings.Contains(p.said(), until) })
}

// wait returns the exit code. It kills the process if it does not end in time.
func (p *process) wait(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.code
	case <-time.After(within):
		p.kill()
		t.Fatalf("%v has not ended within %v\n%s", p.cmd.Args, within, p.said())
		return 0
	}
}

// ends waits for the end of the process, which must exit with code.
func (p *process) ends(t *testing.T, within time.Duration, code int) {
	t.Helper()
	if got := p.wait(t, within); got != code {
		t.Errorf("exit code %d, want %d\n%s", got, code, p.said())
	}
}

// kill sends SIGKILL and waits until the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it might have ended
	<-p.ended
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) said() string { return p.stdout.String() + p.stderr.String() }

// serveHandler serves handler, a wrapper of sim, until the test ends.
func serveHandler(t *testing.T, sim *lettasim.Server, handler http.Handler) (url string) {
	t.Helper()
	server := sim.HTTPServer()
	server.Handler = handler
	return serve(t, server)
}

func killScript() lettasim.Script {
	return lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 3}, Drift: 0.2, Length: 0.05, Wrong: 0.3, Tokens: lettasim.Range{Min: 24, Max: 120}}
}

// reportedDone adds the keys of the samples that the files of a run report as done: those in the
// commit log, and those that the journal reports as durable.
func reportedDone(t *testing.T, committed []string, dir string, done map[string]bool) {
	t.Helper()
	for _, key := range committed {
		done[key] = true
	}
	for e, err := range journal.Read(filepath.Join(dir, runfolder.JournalDir)) {
		if err != nil {
			t.Errorf("the journal: %v", err)
		}
		if e.Op == journal.OpEnd && e.Class == collector.ClassNone.String() {
			done[e.Key] = true
		}
	}
}

// agentsLeft returns the agents on the server that belong to a run. The agent of a killed preflight
// belongs to none, and a later preflight removes it.
func agentsLeft(t *testing.T, sim *lettasim.Server) (left []string) {
	t.Helper()
	list := httptest.NewRecorder()
	sim.ServeHTTP(list, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/agents/?limit=1000", nil))
	var agents []struct {
		Metadata struct {
			Rollout struct{ Run, Key string }
		}
	}
	noError(t, json.Unmarshal(list.Body.Bytes(), &agents))
	for _, a := range agents {
		if of := a.Metadata.Rollout; of.Run != "preflight" {
			left = append(left, of.Key)
		}
	}
	return left
}

// A sent is one send to an agent, as the server saw it.
type sent struct {
	id           sampleID
	attempt      int
	agent        string
	began, ended time.Time // ended is zero while it is in progress
	status       int       // 0: no answer, the connection was cut
}

// A sendLog wraps a server and records every send, as independent evidence of repeated work.
type sendLog struct {
	server http.Handler
	worked atomic.Int64 // sends, and look-ups of server runs
	mu     sync.Mutex
	agents map[string]sent // by agent id: the sample and the attempt
	sends  []*sent
	free   int           // creations before they wait for open
	open   chan struct{} // nil: none wait
}

func newSendLog(server http.Handler) *sendLog {
	return &sendLog{server: server, agents: map[string]sent{}}
}

func (l *sendLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if asks(r, onSend) || asks(r, onEvidence) {
		l.worked.Add(1)
	}
	switch {
	case asks(r, onCreate):
		l.create(w, r)
	case asks(r, onSend):
		l.mu.Lock()
		s := l.agents[strings.Split(r.URL.Path, "/")[3]]
		s.began = time.Now()
		l.sends = append(l.sends, &s)
		l.mu.Unlock()
		seen := &seenWriter{ResponseWriter: w}
		defer func() { // a cut connection causes a panic
			l.mu.Lock()
			defer l.mu.Unlock()
			s.ended, s.status = time.Now(), seen.status
		}()
		l.server.ServeHTTP(seen, r)
	default:
		l.server.ServeHTTP(w, r)
	}
}

// holdAfter lets the next n agents be created. Later creations wait until release is called, so a process
// cannot collect all samples before the test stops it.
func (l *sendLog) holdAfter(n int) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := make(chan struct{})
	l.free, l.open = n, open
	return sync.OnceFunc(func() { close(open) })
}

// pass waits until an agent may be created. It returns false if the client disconnected.
func (l *sendLog) pass(ctx context.Context) bool {
	l.mu.Lock()
	open := l.open
	if l.free--; l.free >= 0 {
		open = nil
	}
	l.mu.Unlock()
	if open == nil {
		return true
	}
	select {
	case <-open:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *sendLog) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !l.pass(r.Context()) {
		return // the client disconnected
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var asked struct {
		Metadata struct {
			Rollout struct {
				Task    string `json:"task_id"`
				Sample  int32  `json:"sample_index"`
				Attempt int    `json:"attempt"`
			} `json:"rollout"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(body, &asked) // the server refuses anything that is not an agent
	seen := &seenWriter{ResponseWriter: w, kept: new(bytes.Buffer)}
	l.server.ServeHTTP(seen, r)
	var made struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(seen.kept.Bytes(), &made) == nil && made.ID != "" {
		of := asked.Metadata.Rollout
		l.mu.Lock()
		defer l.mu.Unlock()
		l.agents[made.ID] = sent{id: sampleID{of.Task, of.Sample}, attempt: of.Attempt, agent: made.ID}
	}
}

func (l *sendLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sends)
}

func (l *sendLog) all() map[sampleID][]sent {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[sampleID][]sent{}
	for _, s := range l.sends {
		all[s.id] = append(all[s.id], *s)
	}
	return all
}

// A seenWriter records the status and, if kept is set, the body.
type seenWriter struct {
	http.ResponseWriter
	status int
	kept   *bytes.Buffer
}

func (w *seenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *seenWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *seenWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if w.kept != nil {
		w.kept.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// physicalIDs matches ids that a server assigns again when work is repeated.
var physicalIDs = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// logical returns the columns of each sample as text, without the physical columns, which say who
// made a row and when. A failure is reduced to what the model's tokens decide, because its error
// can name an agent.
func (d *readBack) logical(t *testing.T) map[sampleID]string {
	t.Helper()
	all := map[sampleID]string{}
	for id, stored := range d.allRows() {
		r := *stored
		r.AgentID, r.RunIDs, r.StepIDs, r.RolloutID = "", nil, nil, ""
		r.Attempt, r.StartedAt, r.DurationMS, r.WorkingMS = 0, 0, 0, 0
		r.Flags = slices.DeleteFunc(slices.Clone(r.Flags), func(f string) bool { return f == tokenize.FlagReattached.String() })
		if r.Messages != nil {
			text := physicalIDs.ReplaceAllString(*r.Messages, "id")
			r.Messages = &text
		}
		all[id] += asText(t, r)
	}
	for id, f := range d.allFailures() {
		all[id] += asText(t, struct {
			SampleKey, Class, Stage string
			GroupSize, Call         int32
			OutputIDs               []int32
		}{f.SampleKey, f.Class, f.Stage, f.GroupSize, f.Call, f.OutputIDs})
	}
	return all
}

func asText(t *testing.T, v any) string {
	t.Helper()
	b := must(json.Marshal(v))(t)
	return string(b) + "\n"
}

// sameSamples compares two runs that can differ only in physical columns.
func sameSamples(t *testing.T, got, want map[sampleID]string) {
	t.Helper()
	all := maps.Clone(want)
	maps.Copy(all, got)
	wrong := 0
	for id := range all {
		if a, b := got[id], want[id]; a != b {
			if wrong++; wrong <= 3 {
				t.Errorf("%v differs: %s", id, firstDifference(a, b))
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d samples differ", wrong, len(all))
	}
}

func firstDifference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	part := func(s string) string { return s[min(max(0, i-80), len(s)):min(len(s), i+80)] }
	return "at byte " + strconv.Itoa(i) + ": got …" + part(a) + "…, want …" + part(b) + "…"
}

func committedKeys(t *testing.T, dir string) []string {
	t.Helper()
	return keysOf(must(sink.ReadLog(dir))(t))
}

// keysOf returns the keys of the samples in logs, sorted.
func keysOf(logs ...*sink.Log) (keys []string) {
	for _, log := range logs {
		for i := range log.Commits {
			for _, s := range log.Commits[i].Samples {
				keys = append(keys, s.Key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}
