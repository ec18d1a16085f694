package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		help(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func open(tb testing.TB, cfg store.Config) *store.Store {
	tb.Helper()
	s, err := store.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func shut(tb testing.TB, s *store.Store) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Error(err)
	}
}

func begin(tb testing.TB, s *store.Store) (session.Key, *store.Session) {
	tb.Helper()
	key, err := s.Begin(session.Head{Task: &session.Task{ID: "t1", Prompt: "fix it"}})
	if err != nil {
		tb.Fatal(err)
	}
	return key, find(tb, s, key)
}

func find(tb testing.TB, s *store.Store, key session.Key) *store.Session {
	tb.Helper()
	x, err := s.Session(key)
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

// A request is one call of a conversation, with the texts of its request.
type request struct {
	call     session.Call
	messages []json.RawMessage
	tools    json.RawMessage
}

// conversation returns the n-th call of a conversation. The prompt and the messages of a call begin
// with the prompt and the messages of the call before. The seed changes every token and text.
func conversation(seed, n int) request {
	text := func(format string, args ...any) json.RawMessage {
		b, _ := json.Marshal(map[string]string{"content": fmt.Sprintf(format, args...)})
		return b
	}
	r := request{
		messages: []json.RawMessage{text("system %d", seed), text("fix it")},
		tools:    json.RawMessage(fmt.Sprintf(`[{"name":"bash%d"}]`, seed)),
	}
	prompt := tokens(seed*1000, 200)
	for i := range n {
		r.messages = append(r.messages, text("answer %d", i), text("result %d", i))
		prompt = append(append(prompt, tokens(seed*1000+10*i, 20)...), tokens(i, 10)...)
	}
	output := tokens(seed*1000+10*n, 20)
	r.call = session.Call{
		Call: tap.Call{
			Began: time.Unix(1_800_000_000+int64(n), 1).UTC(), Ended: time.Unix(1_800_000_001+int64(n), 2).UTC(),
			Engine: "http://127.0.0.1:30000", Dialect: "vllm", Status: 200, Finish: "tool_calls", Matched: -1,
			Prompt: prompt, Output: output, PromptTokens: int32(len(prompt)), OutputTokens: 20, Cached: -1,
			Sampling: tap.Sampling{Temperature: new(0.7)},
		},
		Answer: text("answer %d", n), Delivered: n%2 == 0, Spliced: n%3 == 0, Retry: n%3 - 1, Unread: []string{"", "no_ids"}[n%2],
		Model: []string{"", "step-1"}[n/2%2], Agent: []string{"", "a1"}[n%2], ParentAgent: []string{"", "b2"}[n/3%2],
	}
	for i := range output {
		r.call.Logprobs = append(r.call.Logprobs, -float32(i)/3)
	}
	return r
}

func tokens(from, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((from + i*7) % 150_000)
	}
	return ids
}

// addTo adds the request and, if the client received the whole answer, its delivery.
func (r *request) addTo(a *store.Admission) error {
	err := a.Add(&r.call, r.messages, r.tools)
	if err == nil && r.call.Delivered {
		err = a.Delivered()
	}
	return err
}

func admit(tb testing.TB, x *store.Session, cancel func(error)) *store.Admission {
	tb.Helper()
	a, err := x.Admit(cancel)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func add(tb testing.TB, x *store.Session, r request) int {
	tb.Helper()
	a := admit(tb, x, nil)
	defer a.Done()
	if err := r.addTo(a); err != nil {
		tb.Fatal(err)
	}
	return a.Number()
}

func end(tb testing.TB, x *store.Session, e session.End) session.End {
	tb.Helper()
	got, err := x.End(tb.Context(), e, false)
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

func read(tb testing.TB, s *store.Store, id string) *session.Record {
	tb.Helper()
	rec, err := s.Read(id)
	if err != nil {
		tb.Fatal(err)
	}
	return rec
}

// check checks that a record contains the requests, with the numbers from 1.
func check(tb testing.TB, rec *session.Record, want ...request) {
	tb.Helper()
	if len(rec.Calls) != len(want) {
		tb.Fatalf("%d calls, want %d", len(rec.Calls), len(want))
	}
	for i, w := range want {
		same(tb, rec, i, w)
	}
}

func same(tb testing.TB, rec *session.Record, i int, w request) {
	tb.Helper()
	c := rec.Calls[i]
	if len(c.Messages) != len(w.messages) {
		tb.Fatalf("call %d has %d messages, want %d", i, len(c.Messages), len(w.messages))
	}
	for k, text := range c.Messages {
		if string(rec.Texts[text]) != string(w.messages[k]) {
			tb.Fatalf("call %d: message %d is %s, want %s", i, k, rec.Texts[text], w.messages[k])
		}
	}
	if (c.Tools < 0) != (w.tools == nil) || c.Tools >= 0 && string(rec.Texts[c.Tools]) != string(w.tools) {
		tb.Fatalf("call %d has the wrong tools", i)
	}
	want := w.call
	want.Number, want.Messages, want.Tools = c.Number, c.Messages, c.Tools
	if !reflect.DeepEqual(c, want) {
		tb.Fatalf("call %d is %+v\nwant %+v", i, c, want)
	}
}

// TestLife proves that a sealed session contains what was added, each text once, also after a
// restart.
func TestLife(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	key, x := begin(t, s)
	if x.ID() != key.ID() {
		t.Errorf("the id is %s, want %s", x.ID(), key.ID())
	}
	var want []request
	for n := range 6 {
		if n == 3 { // a restart in between
			shut(t, s)
			s = open(t, store.Config{Dir: dir})
			x = find(t, s, key)
		}
		want = append(want, conversation(1, n))
		if got := add(t, x, want[n]); got != n+1 {
			t.Errorf("call %d has the number %d", n, got)
		}
		check(t, read(t, s, x.ID()), want...) // an open session can be read
	}
	e := end(t, x, session.End{Reward: new(0.5), Metadata: json.RawMessage(`{"a": 1}`), FinalText: new("done")})
	if e.Calls != 6 || len(e.Digest) != 64 || e.At.IsZero() {
		t.Errorf("the end is %+v", e)
	}
	for range 2 {
		rec := read(t, s, x.ID())
		check(t, rec, want...)
		if !reflect.DeepEqual(*rec.End, e) || rec.ID != x.ID() || rec.Head.Task.Prompt != "fix it" || rec.Head.Began.IsZero() {
			t.Errorf("the record is %+v", rec)
		}
		if len(rec.Texts) != 1+2+2*5 {
			t.Errorf("the record has %d texts", len(rec.Texts))
		}
		if _, err := x.Admit(nil); !errors.Is(err, store.ErrSealed) {
			t.Errorf("a sealed session admits a call: %v", err)
		}
		shut(t, s)
		s = open(t, store.Config{Dir: dir})
		x = find(t, s, key)
	}
	if files, _ := os.ReadDir(filepath.Join(dir, "open")); len(files) > 0 {
		t.Errorf("%v is left in open", files)
	}
	if err := s.Remove(x.ID()); err != nil {
		t.Error(err)
	}
	for _, err := range []error{s.Remove(x.ID()), second(s.Read(x.ID())), second(s.Session(key)), second(s.Session("guess"))} {
		if !errors.Is(err, store.ErrUnknown) {
			t.Errorf("after Remove: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}
