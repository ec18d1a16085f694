package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/subprocess"
)

// TestMain makes the test binary a supervisor, an agent, or a collection that is killed.
func TestMain(m *testing.M) {
	if code, ok := subprocess.Main(os.Args); ok {
		os.Exit(code) //nolint:forbidigo // this is the main of a supervisor
	}
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "agent":
			os.Exit(runAgent(os.Args[2])) //nolint:forbidigo // this is the main of an agent
		case "collect":
			collect(os.Args[2])
			return
		case "score":
			score()
			return
		}
	}
	_ = os.Setenv("ROLLOUT_TEST_SECRET", "hunter2")
	m.Run()
}

func executable() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// A rig is a store of sessions and a server that plays the proxy and its engine.
type rig struct {
	store *store.Store
	url   string
}

func newRig(tb testing.TB) *rig {
	tb.Helper()
	s, err := store.Open(store.Config{Dir: filepath.Join(tb.TempDir(), "sessions")})
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{store: s}
	server := httptest.NewServer(r)
	r.url = server.URL
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// config returns a configuration that runs this binary as an agent.
func (r *rig) config(tb testing.TB) harness.Config {
	tb.Helper()
	return r.configIn(tb.TempDir(), true)
}

// These are values of variables that no text can contain.
const otherSecret, referredSecret = `other-"<secret>&`, "referred-sécret"

func (r *rig) configIn(dir string, supervised bool) harness.Config {
	cfg := harness.Config{
		Command: []string{executable(), "agent", "{prompt}"},
		Env: map[string]string{
			"OPENAI_BASE_URL": "{base_url}/v1", "OPENAI_API_KEY": "{key}",
			"OTHER_API_KEY": otherSecret, "REFERRED": referredSecret,
		},
		Secrets: []string{referredSecret},
		BaseURL: r.url, Sessions: stored{r.store}, Dir: dir,
		Timeout: time.Minute,
	}
	if supervised {
		cfg.Supervisor = []string{executable()}
	}
	return cfg
}

// ServeHTTP records a call in the way of the proxy. The words of the first user message determine
// the answer: see runAgent.
func (r *rig) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var body struct{ Messages []json.RawMessage }
	text, err := io.ReadAll(q.Body)
	key, _, ok := strings.Cut(strings.TrimPrefix(q.URL.Path, "/r/"), "/v1/chat/completions")
	if err != nil || !ok || json.Unmarshal(text, &body) != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	x, err := r.store.Session(session.Key(key))
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	ctx, cancel := context.WithCancelCause(q.Context())
	defer cancel(nil)
	a, err := x.Admit(func(err error) { cancel(err) })
	if err != nil {
		http.Error(w, err.Error(), http.StatusGone)
		return
	}
	defer a.Done()
	c, status := r.generate(ctx, body.Messages)
	err = a.Add(c, body.Messages, nil)
	if err == nil && c.Delivered {
		err = a.Delivered()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"choices":[{"message":%s,"finish_reason":"%s"}]}`, c.Answer, c.Finish)
}

// tokensOf returns one token per byte, and a token before and after the message.
func tokensOf(role, text string) []int32 {
	ids := []int32{map[string]int32{"system": 1001, "user": 1002, "assistant": 1003, "tool": 1004}[role]}
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return append(ids, 2000)
}

func (r *rig) generate(ctx context.Context, messages []json.RawMessage) (*session.Call, int) {
	c := &session.Call{Delivered: true, Retry: -1}
	c.Began, c.Dialect, c.Matched, c.Cached = time.Now(), "chat", 2000, -1
	c.Engine = "http://engine"
	first := ""
	for _, m := range messages {
		var in struct{ Role, Content string }
		_ = json.Unmarshal(m, &in)
		if first == "" && in.Role == "user" {
			first = in.Content
		}
		c.Prompt = append(c.Prompt, tokensOf(in.Role, in.Content)...)
	}
	c.Prompt = append(c.Prompt, 1003)
	asked := words(first)
	c.Model = asked["model"]
	n, _ := strconv.Atoi(asked["calls"])
	last := (len(messages)+1)/2 >= n
	if asked["hang"] != "" && last {
		<-ctx.Done()
		c.Cut, c.Delivered, c.Status = true, false, 200
		c.PromptTokens, c.OutputTokens = -1, -1
		c.Answer, c.Ended = json.RawMessage(`{"role":"assistant","content":""}`), time.Now()
		return c, http.StatusOK
	}
	c.Status = http.StatusOK
	if asked["status"] != "" && last {
		c.Status, _ = strconv.Atoi(asked["status"])
		c.Prompt, c.PromptTokens, c.OutputTokens, c.Ended = nil, -1, -1, time.Now()
		if asked["overflow"] != "" {
			c.Unread = session.UnreadOverflow
		}
		return c, c.Status
	}
	text := "answer " + strconv.Itoa(len(messages))
	if asked["empty"] != "" && last {
		text = ""
	}
	if asked["leak"] != "" {
		text = "the key is " + asked["leak"]
	}
	c.Output = tokensOf("assistant", text)[1:]
	c.Logprobs = make([]float32, len(c.Output))
	for i := range c.Logprobs {
		c.Logprobs[i] = -0.5
	}
	c.Finish = "stop"
	if asked["finish"] != "" && last {
		c.Finish, c.Output = asked["finish"], c.Output[:len(c.Output)-1]
		c.Logprobs = c.Logprobs[:len(c.Output)]
	}
	c.PromptTokens, c.OutputTokens = int32(len(c.Prompt)), int32(len(c.Output))
	if asked["broken"] != "" && last {
		c.Output, c.Logprobs, c.Finish = c.Output[:3], c.Logprobs[:3], ""
		c.Cut, c.Delivered, c.PromptTokens, c.OutputTokens = true, false, -1, -1
		text = text[:3]
	}
	if asked["noids"] != "" && !last {
		c.Output, c.Unread = c.Output[:len(c.Output)-1], "no_ids"
		c.Logprobs = c.Logprobs[:len(c.Output)]
	}
	c.Answer, _ = json.Marshal(map[string]string{"role": "assistant", "content": text})
	if asked["broken"] == "all" && last {
		c.Output, c.Logprobs, c.Answer = nil, nil, nil
	}
	c.Ended = time.Now()
	return c, http.StatusOK
}

func words(text string) map[string]string {
	all := map[string]string{}
	for w := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(w, "=")
		all[name] = value
	}
	return all
}

// runOf returns the id of the run of an attempt. Each has its own, because Clean kills the processes of
// a whole run.
func runOf(prompt string) string { return "run of " + prompt }

func attempt(prompt string, n int) collector.Attempt {
	return collector.Attempt{
		Task: &collector.Task{ID: "t", Messages: []string{prompt}}, Key: "key-" + prompt, GroupSize: 1, N: n, RunID: runOf(prompt),
	}
}

func backend(tb testing.TB, cfg harness.Config) *harness.Backend {
	tb.Helper()
	b, err := harness.NewBackend(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func open(tb testing.TB, b *harness.Backend, a collector.Attempt) collector.Agent {
	tb.Helper()
	g, err := b.Open(tb.Context(), a)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// run makes one attempt until its Close, and calls check before the Close.
func run(t *testing.T, cfg harness.Config, prompt string, check func(r *collector.Reply, err error)) {
	t.Helper()
	b := backend(t, cfg)
	a := attempt(prompt, 1)
	g := open(t, b, a)
	r, err := g.Run(t.Context())
	if err == nil {
		err = collector.CheckReply(t.Context(), collector.Config{}, a.Task, r, g.Prompts)
	}
	check(r, err)
	if err := g.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	empty(t, cfg.Dir)
}

// empty checks that no attempt has left a file or a folder.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left in %s: %v, %v", dir, entries, err)
	}
}

// stored is the Sessions of a store in this process.
type stored struct{ *store.Store }

func (s stored) End(ctx context.Context, key session.Key, e session.End) error {
	x, err := s.Session(key)
	if err != nil {
		return err
	}
	_, err = x.End(ctx, e, false)
	return err
}
