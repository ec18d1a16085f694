package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

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

// startProgram starts bin. env is added to the environment of the test.
func startProgram(t *testing.T, bin string, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), bin, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		err := p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			p.code = -2
		}
	}()
	return p
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

// kill sends SIGKILL and waits until the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it can have ended
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
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := sim.HTTPServer()
	server.Handler = handler
	s := &httptest.Server{Listener: l, Config: server}
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

func killScript() lettasim.Script {
	return lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 3}, Drift: 0.2, Length: 0.05, Wrong: 0.3, Tokens: lettasim.Range{Min: 24, Max: 120}}
}

// reportedDone adds the keys of the samples that the files of a run report as done: those in the
// commit log, and those that the journal reports as durable.
func reportedDone(t *testing.T, dir string, done map[string]bool) {
	t.Helper()
	for _, key := range committedKeys(t, dir) {
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
	if err := json.Unmarshal(list.Body.Bytes(), &agents); err != nil {
		t.Fatal(err)
	}
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
	deleted      time.Time // when its agent was deleted; zero: never
}

// A sendLog wraps a server and records every send, as independent evidence of repeated work.
type sendLog struct {
	server http.Handler
	worked atomic.Int64 // sends, and look-ups of server runs
	mu     sync.Mutex
	agents map[string]sent // by agent id: the sample and the attempt
	sends  []*sent
	last   map[string]*sent // by agent id
}

func newSendLog(server http.Handler) *sendLog {
	return &sendLog{server: server, agents: map[string]sent{}, last: map[string]*sent{}}
}

func (l *sendLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	parts := strings.Split(path, "/")
	if strings.HasPrefix(path, "v1/runs") || len(parts) == 4 && parts[3] == "messages" {
		l.worked.Add(1)
	}
	switch {
	case r.Method == http.MethodDelete && len(parts) == 3 && parts[1] == "agents":
		l.mu.Lock()
		if s := l.last[parts[2]]; s != nil && s.deleted.IsZero() {
			s.deleted = time.Now()
		}
		l.mu.Unlock()
		l.server.ServeHTTP(w, r)
	case r.Method != http.MethodPost:
		l.server.ServeHTTP(w, r)
	case path == "v1/agents":
		l.create(w, r)
	case len(parts) == 4 && parts[1] == "agents" && parts[3] == "messages":
		l.mu.Lock()
		s := l.agents[parts[2]]
		s.began = time.Now()
		l.sends = append(l.sends, &s)
		l.last[parts[2]] = &s
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

func (l *sendLog) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
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
	for id, rows := range d.rows {
		for _, stored := range rows {
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
	}
	for id, failures := range d.failures {
		for _, f := range failures {
			all[id] += asText(t, struct {
				SampleKey, Class, Stage string
				GroupSize, Call         int32
				OutputIDs               []int32
			}{f.SampleKey, f.Class, f.Stage, f.GroupSize, f.Call, f.OutputIDs})
		}
	}
	return all
}

func asText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// sameSamples compares two runs that can differ only in physical columns.
func sameSamples(t *testing.T, got, want map[sampleID]string) {
	t.Helper()
	ids := map[sampleID]bool{}
	for id := range got {
		ids[id] = true
	}
	for id := range want {
		ids[id] = true
	}
	wrong := 0
	for id := range ids {
		a, b := got[id], want[id]
		if a == b {
			continue
		}
		if wrong++; wrong > 3 {
			continue
		}
		t.Errorf("%v differs: %s", id, firstDifference(a, b))
	}
	if wrong > 0 {
		t.Errorf("%d of %d samples differ", wrong, len(ids))
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

func (d *readBack) keysOf() map[string]sampleID {
	ids := map[string]sampleID{}
	for id, rows := range d.rows {
		ids[rows[0].SampleKey] = id
	}
	for id, failures := range d.failures {
		ids[failures[0].SampleKey] = id
	}
	return ids
}

func committedKeys(t *testing.T, dir string) []string {
	t.Helper()
	log, err := sink.ReadLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i := range log.Commits {
		for _, s := range log.Commits[i].Samples {
			keys = append(keys, s.Key)
		}
	}
	slices.Sort(keys)
	return keys
}
