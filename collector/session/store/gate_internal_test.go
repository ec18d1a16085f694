package store

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
)

// A talk produces the calls of a conversation that grows by 1,000 tokens per call: 200 sampled ones
// and a tool result.
type talk struct {
	r        *rand.Rand
	prompt   []int32
	messages []json.RawMessage
	tools    json.RawMessage
}

func newTalk(seed uint64) *talk {
	r := rand.New(rand.NewPCG(32, seed))
	return &talk{r: r, prompt: some(r, 1000), tools: text(r, 4000), messages: []json.RawMessage{text(r, 3000), text(r, 500)}}
}

func some(r *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(151_936)
	}
	return ids
}

func text(r *rand.Rand, n int) json.RawMessage {
	b := fmt.Appendf(nil, `{"content":"`)
	for len(b) < n {
		b = fmt.Appendf(b, "%x ", r.Uint32())
	}
	return append(b, `"}`...)
}

// next returns the next call. The next call continues it.
func (t *talk) next() *session.Call {
	c := &session.Call{Call: tap.Call{Engine: "http://127.0.0.1:30000", Dialect: "vllm", Status: 200, Prompt: t.prompt, Output: some(t.r, 200)}}
	c.Answer = text(t.r, 800)
	for range c.Output {
		c.Logprobs = append(c.Logprobs, -t.r.Float32())
	}
	return c
}

func (t *talk) grow(c *session.Call) {
	t.prompt = append(append(slices.Clip(t.prompt), c.Output...), some(t.r, 800)...)
	t.messages = append(t.messages, c.Answer, text(t.r, 3000))
}

func (t *talk) add(tb testing.TB, x *Session) {
	tb.Helper()
	c := t.next()
	a := admit(tb, x)
	if err := a.Add(c, t.messages, t.tools); err != nil {
		tb.Fatal(err)
	}
	a.Done()
	t.grow(c)
}

func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// files returns the number of open files below open/ in the folder of the store.
func files(tb testing.TB, s *Store) (n int) {
	tb.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Skip("this system has no /proc")
	}
	for _, fd := range list {
		name, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(name, filepath.Join(s.cfg.Dir, openFolder)+"/") {
			n++
		}
	}
	return n
}

// TestGateMemory proves that an open session with 20,000 tokens takes at most 100 KB of memory, and
// that a thousand of them need few file descriptors.
func TestGateMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a thousand sessions")
	}
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const sessions, most = 1000, 100 << 10
	before, peak := held(), 0
	written := int64(0)
	for n := range uint64(sessions) {
		key, err := s.Begin(session.Head{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := s.Session(key)
		if err != nil {
			t.Fatal(err)
		}
		talk := newTalk(n)
		for len(talk.prompt) < 20_000 {
			talk.add(t, x)
		}
		if n%50 == 0 {
			peak = max(peak, files(t, s))
		}
		written += x.size
	}
	each := (held() - before) / sessions
	t.Logf("%d bytes of memory and %d bytes on disk per session, at most %d files", each, written/sessions, peak)
	if each > most {
		t.Errorf("an open session takes %d bytes, at most %d are right", each, most)
	}
	if peak > maxFiles+1 {
		t.Errorf("%d files were open, at most %d are right", peak, maxFiles+1)
	}
	for _, x := range s.sessions { // as after a long pause
		x.mu.Lock()
		_ = x.sync()
		x.mu.Unlock()
		x.rest(x.used.Add(2 * idleAfter))
	}
	if each := (held() - before) / sessions; each > 4<<10 {
		t.Errorf("an idle session takes %d bytes", each)
	}
	runtime.KeepAlive(s)
}

// TestGateBytes bounds the size of the file of a conversation: it grows with the conversation.
func TestGateBytes(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key, err := s.Begin(session.Head{})
	if err != nil {
		t.Fatal(err)
	}
	x, _ := s.Session(key)
	talk := newTalk(1)
	talk.add(t, x)
	first, texts := x.size, 0
	for range 19 {
		n := len(talk.messages)
		talk.add(t, x)
		for _, m := range talk.messages[n:] {
			texts += len(m)
		}
	}
	// Each call has 1,000 new tokens of 3 bytes, 200 log-probabilities, an answer and two texts.
	if each, most := (x.size-first)/19, int64(1000*3+200*4+800+texts/19+500); each > most {
		t.Errorf("a call takes %d bytes, at most %d are right", each, most)
	}
}

func BenchmarkAdd(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	key, err := s.Begin(session.Head{})
	if err != nil {
		b.Fatal(err)
	}
	x, _ := s.Session(key)
	talk := newTalk(1)
	for len(talk.prompt) < 20_000 {
		talk.add(b, x)
	}
	c := talk.next()
	b.Run("tokens=20k/messages=40", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a, err := x.Admit(nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := a.Add(c, talk.messages, talk.tools); err != nil {
				b.Fatal(err)
			}
			a.Done()
		}
	})
}
