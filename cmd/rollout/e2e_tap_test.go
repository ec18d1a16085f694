package main

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	seen "github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

type tapProcess struct {
	*process
	url, spool string
}

func startTap(t *testing.T, args ...string) *tapProcess {
	t.Helper()
	p := &tapProcess{spool: filepath.Join(t.TempDir(), "spool")}
	p.process, p.url = startServing(t, "", nil, append([]string{"tap", "--listen", "127.0.0.1:0", "--spool", p.spool, "--json"}, args...)...)
	return p
}

// restart starts a killed tap again, at its address and on its spool.
func (p *tapProcess) restart(t *testing.T, engine string) *tapProcess {
	t.Helper()
	again := startTap(t, "--engine", engine, "--listen", strings.TrimPrefix(p.url, "http://"), "--spool", p.spool)
	again.spool = p.spool
	return again
}

func (p *tapProcess) calls(t *testing.T, n int) (calls []*tap.Call) {
	t.Helper()
	r := must(tap.OpenReader(p.spool, ""))(t)
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a missing call would block
	defer cancel()
	for range n {
		c, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	return calls
}

// The first SIGTERM refuses new requests and lets open ones finish. The second one ends them.
func TestTapEnds(t *testing.T) {
	t.Parallel()
	for _, second := range []bool{false, true} {
		began, release := make(chan struct{}), make(chan struct{})
		e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			began <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
			_, _ = io.WriteString(w, `{"output_ids":[7],"meta_info":{"prompt_tokens":1}}`)
		}))
		p := startTap(t, "--engine", e.URL)
		status := make(chan int, 1) // buffered: the receiver can be gone
		ask := func(ctx context.Context) int {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/generate", strings.NewReader(`{"input_ids":[1]}`))
			if err != nil {
				t.Error(err)
				return -1
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0
			}
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
			return res.StatusCode
		}
		go func() { status <- ask(t.Context()) }()
		<-began
		p.signal(t, syscall.SIGTERM, "refusing new requests and waiting for 1 request")
		if got := ask(t.Context()); got != http.StatusServiceUnavailable {
			t.Errorf("a new request is answered with %d", got)
		}
		if second {
			p.signal(t, syscall.SIGTERM, "")
			p.ends(t, time.Minute, exit.Interrupted)
			if got := <-status; got == http.StatusOK {
				t.Errorf("the request that was ended was answered with %d", got)
			}
		} else {
			close(release)
			if got := <-status; got != http.StatusOK {
				t.Errorf("the open request was answered with %d", got)
			}
			p.ends(t, time.Minute, exit.OK)
		}
		if c := p.calls(t, 1)[0]; c.Cut != second || len(c.Prompt) != 1 {
			t.Errorf("second %v: kept %+v", second, c)
		}
		e.Close()
	}
}

// A tapTrial is a collection with prompts from a tap that fails meanwhile.
type tapTrial struct {
	*tappedServer
	t     *testing.T
	r     *rand.Rand
	run   string
	ended chan ran
}

// newTapTrial starts collecting. The prompts come from the tap's URL, or from its folder.
func newTapTrial(t *testing.T, overHTTP bool) *tapTrial {
	t.Helper()
	x := &tapTrial{t: t, r: randomOf(t), run: filepath.Join(t.TempDir(), "run"), ended: make(chan ran, 1)} // buffered: read at the end
	x.tappedServer = newTapped(t, 60, lettasim.Config{Seed: x.r.Uint64() >> 1})
	where := x.tap.spool
	if overHTTP {
		where = x.tap.url
	}
	args := []string{"collect", "--server", x.url, "--model", simModel, "--tasks", x.tasks, "--samples", "4", "--prompts", "tap", "--tap", where, "--out", x.run, "--max-in-flight", "8", "--quiet"}
	go func() { x.ended <- invoke(t.Context(), args...) }()
	return x
}

// made waits until the engine has made this many calls. It reports whether the collection still
// runs.
func (x *tapTrial) made(calls int) bool {
	x.t.Helper()
	waitFor(x.t, "calls of the engine", func() bool { return len(x.ended) > 0 || len(x.engine.Calls()) >= calls })
	return len(x.ended) == 0
}

// check waits for the end. Every sample has rows or a failure, and every claimed prompt matches the
// engine's calls. At least the given share of the calls is in rows.
func (x *tapTrial) check(least float64) *seen.Result {
	x.t.Helper()
	end := <-x.ended
	if end.code != exit.OK && end.code != exit.Tolerance {
		x.t.Fatalf("exit code %d\n%s%s", end.code, end.stdout, end.stderr)
	}
	res := seen.Compare(must(seen.Read(x.run))(x.t), x.engine.Calls())
	x.t.Logf("%v", res)
	if res.Wrongs > 0 || res.Samples != 60*4 || res.Rows != res.Grades["exact"] {
		x.t.Errorf("wrong, or not all: %d samples, want %d\n%s", res.Samples, 60*4, end.stderr)
	}
	if share := float64(res.InRows.Calls) / float64(len(x.engine.Calls())); share < least {
		x.t.Errorf("%.2f of the calls are in rows, want %.2f", share, least)
	}
	return res
}

func tapTrials(t *testing.T, trial func(t *testing.T, overHTTP bool)) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes some seconds: run without -short")
	}
	for name, overHTTP := range map[string]bool{"folder": false, "http": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trial(t, overHTTP)
		})
	}
}

// If a tap is killed during a run and restarted, calls that it had not written are quarantined, and
// all others have their prompts.
func TestTapKilled(t *testing.T) {
	t.Parallel()
	tapTrials(t, func(t *testing.T, overHTTP bool) {
		t.Helper()
		x := newTapTrial(t, overHTTP)
		for kills := 1; kills <= 3 && x.made(100*kills+x.r.IntN(60)); kills++ {
			x.tap.kill()
			x.tap = x.tap.restart(t, x.engineURL)
		}
		x.check(0.5)
		if m := readTapFacts(t, x.run).Tap.Missing; m["torn"] == 0 || m["damaged"]+m["dropped"]+m["removed"] > 0 {
			t.Errorf("the report counts %v as missing", m)
		}
	})
}

// If the spool is damaged while it is written and read, damaged data never counts as a call, and
// intact calls are found.
func TestTapDamaged(t *testing.T) {
	t.Parallel()
	tapTrials(t, func(t *testing.T, overHTTP bool) {
		t.Helper()
		x := newTapTrial(t, overHTTP)
		hits := 0
		for n := 20; x.made(n); n += 5 {
			hits += x.damage()
		}
		res := x.check(0.3)
		if hits == 0 {
			t.Errorf("nothing was damaged: %v", res)
		}
		if m := readTapFacts(t, x.run).Tap.Missing; m["damaged"] == 0 || m["dropped"]+m["torn"] > 0 {
			t.Errorf("the report counts %v as missing", m)
		}
	})
}

// damage overwrites some bytes of each segment, most often at its end.
func (x *tapTrial) damage() (hits int) {
	files := must(os.ReadDir(x.tap.spool))(x.t)
	for _, entry := range files {
		if filepath.Ext(entry.Name()) != ".tap" {
			continue
		}
		f, err := os.OpenFile(filepath.Join(x.tap.spool, entry.Name()), os.O_WRONLY, 0)
		if err != nil {
			continue // it was removed
		}
		info, err := f.Stat()
		if err == nil && info.Size() > 2000 {
			at := info.Size() - 1 - x.r.Int64N(1000)
			junk := make([]byte, 1+x.r.Int64N(100))
			for i := range junk {
				junk[i] = byte(x.r.Uint32())
			}
			if _, err := f.WriteAt(junk[:min(int64(len(junk)), info.Size()-at)], at); err == nil {
				hits++
			}
		}
		_ = f.Close()
	}
	return hits
}

// If the server deletes a thought or renders a call differently, the tap gives the engine its
// earlier output, even after the tap was killed and restarted.
func TestTapContinuity(t *testing.T) {
	t.Parallel()
	tok := bpetest.Tokenizer(t, "qwen3")
	ids := func(text string) []int32 { return must(tok.AppendTokens(nil, text))(t) }
	const (
		head   = "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n2 and 3?<|im_end|>\n<|im_start|>assistant\n"
		said   = "<think>\nI add them.\n</think>\n\n<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":2,\"b\":3}}</tool_call><|im_end|>"
		shown  = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": 3}}\n</tool_call><|im_end|>"
		result = "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
		answer = "Five.<|im_end|>"
	)
	var given [][]int32 // one call at a time
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"data":[{"id":"m","max_model_len":4200}]}`)
			return
		}
		var body struct {
			InputIDs []int32 `json:"input_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		given = append(given, body.InputIDs)
		output := ids(said)
		if len(body.InputIDs) > len(ids(head)) {
			output = ids(answer)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"output_ids": output, "meta_info": map[string]any{"prompt_tokens": len(body.InputIDs), "completion_tokens": len(output)}})
	}))
	defer e.Close()
	args := []string{"--engine", e.URL, "--continuity", "--tokenizer", qwen3Dir}
	// passes sends a prompt through a tap. The engine must receive want.
	passes := func(p *tapProcess, prompt, want string) {
		t.Helper()
		get(t, p.url+"/generate", asText(t, map[string]any{"input_ids": ids(prompt)}))
		if got := given[len(given)-1]; !slices.Equal(got, ids(want)) {
			t.Errorf("the engine got %v, want %v", got, ids(want))
		}
	}
	counted := func(p *tapProcess, outcome, reason string) {
		t.Helper()
		contains(t, get(t, p.url+"/tap/metrics"), `rollout_tap_continuity_total{outcome="`+outcome+`",reason="`+reason+`"} 1`)
	}
	p := startTap(t, args...)
	passes(p, head, head)
	p.calls(t, 1) // it is in the spool
	p.kill()

	again := startTap(t, append(args, "--spool", p.spool)...)
	again.spool = p.spool
	passes(again, head+shown+result, head+said+result)
	if c := again.calls(t, 2)[1]; !slices.Equal(c.Prompt, ids(head+said+result)) || !slices.Equal(c.Asked, ids(head+shown+result)) {
		t.Errorf("the call is kept as %+v", c)
	}
	counted(again, "spliced", "text")
	again.kill()

	// The same prompt after its answer is another conversation.
	third := startTap(t, append(args, "--spool", p.spool)...)
	passes(third, head+shown+result, head+shown+result)
	counted(third, "refused", "taken")

	// The engine takes 4,200 tokens. With an output of 4,140, the prompt has 60 and the spliced
	// prompt 61.
	short := startTap(t, append(args, "--set", "max_new_tokens=4140")...)
	passes(short, head, head)
	passes(short, head+shown+result, head+shown+result)
	counted(short, "refused", "long")
}
